"""``torch.fx``: what is traced, printed, rewritten and run is PyTorch's, text for text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .server_process import ServerProcess

PROGRAMS = Path(__file__).parent


def _printed(*command: object, folder: Path) -> list[str]:
    folder.mkdir()
    arguments = [sys.executable, "-W", "ignore", *map(str, command)]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("program", ["fx_program.txt"])
def test_a_program_with_graphs_prints_what_it_prints_with_pytorch(
    program: str, server: ServerProcess, tmp_path: Path
) -> None:
    file = PROGRAMS / program
    ours = _printed("-m", "telegrad", "run", "--url", server.url, file, folder=tmp_path / "a")
    assert ours == _printed(file, folder=tmp_path / "b")
