"""What the programs with the profiler show that the seeds print, run by ``telegrad run`` on a private server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = Path(__file__).parents[1] / "examples" / "seeds"
ON_GPU = {
    "profile_squares": ("aten::square", "aten::mul", "aten::pow", "Self CUDA"),
    "profile_linear": ("aten::linear", "Self CUDA"),
    "profiler_schedule": ("aten::linear", "ProfilerStep*"),
}


def _run(name: str, folder: Path) -> str:
    text = (SEEDS / f"{name}.py").read_text()
    (folder / "program.py").write_text(text.replace("100000", "10000"))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TELEGRAD_")}
    command = [sys.executable, "-m", "telegrad", "run", "program.py"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_labels_of_a_training_step(tmp_path: Path) -> None:
    shown = _run("profiler_minimal", tmp_path)
    for row in ("forward", "loss", "backward", "aten::linear", "aten::pow", "aten::mean", "# of Calls"):
        assert row in shown, row


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_tables_of_a_gpu(name: str, tmp_path: Path) -> None:
    shown = _run(name, tmp_path)
    for row in ON_GPU[name]:
        assert row in shown, row
