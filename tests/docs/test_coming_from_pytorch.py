"""Pages tell the truth: their blocks of code run, in order, against a server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/coming-from-pytorch.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("page", "least"), [("coming-from-pytorch", 9), ("profiling", 2), ("custom-operators", 2), ("modes", 5)]
)
def test_every_block_of_a_page_runs(tmp_path: Path, page: str, least: int) -> None:
    blocks = BLOCK.findall((PAGE.parent / f"{page}.md").read_text())
    assert len(blocks) >= least
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TELEGRAD_")}
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (run.returncode, run.stderr) == (0, "")


def test_what_the_page_calls_absent_is_absent_or_refuses() -> None:
    import telegrad
    from telegrad._programs.absent import INSTEAD

    told = PAGE.read_text()
    for name in ("onnx",):
        assert name in INSTEAD and name.rpartition(".")[2] in told
        assert not hasattr(telegrad, name)
