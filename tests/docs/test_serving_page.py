"""The page on serving works as it is written: its module is exported, served by its command, and called by curl."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.session.server import ROOT, ServerProcess

PAGE = ROOT / "docs" / "serving.md"
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(curl .*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_works(tmp_path: Path) -> None:
    (script,), (command,) = _PYTHON.findall(PAGE.read_text()), _COMMAND.findall(PAGE.read_text())
    (tmp_path / "export.py").write_text(script)
    (tmp_path / "programs").mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "client"), str(ROOT)))}
    ran = subprocess.run([sys.executable, "export.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert 'softmax: "f32[batch, 3]" = telegrad.ops.aten.' in ran.stdout
    assert "export.py:12 in forward" in ran.stdout
    with ServerProcess(PROGRAMS=str(tmp_path / "programs")) as server:
        called = subprocess.run(["bash", "-c", command], env=environment | {"URL": server.url}, capture_output=True)
        outputs = json.loads(called.stdout)["outputs"]
        np.testing.assert_allclose(np.sum(outputs["probabilities"]), 1, rtol=1e-5)
        assert outputs["label"] == [int(np.argmax(outputs["probabilities"]))]


def test_the_page_has_every_endpoint_and_variable() -> None:
    from server.gateway.settings import Settings

    text = PAGE.read_text()
    named = {f"TELEGRAD_{name.upper()}" for name in Settings.model_fields if name.startswith("program")}
    assert {name for name in named if name not in text} == set()
    assert all(f"`{verb} /v1/programs" in text for verb in ("GET", "PUT", "POST", "DELETE"))
