"""The programs of ``examples/programs`` are plain PyTorch: the same file gives the same losses on telegrad."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "programs"


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.stem)
def test_losses_agree_with_pytorchs(path: Path, seed: int) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TELEGRAD_")}
    losses = []
    for runner in ([], ["-m", "telegrad"]):
        command = [sys.executable, *runner, str(path), "--seed", str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        losses.append([float(line) for line in done.stdout.splitlines()])
    assert len(losses[0]) >= 4 and losses[1] == pytest.approx(losses[0], rel=1e-4, abs=1e-4)
