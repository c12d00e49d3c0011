"""``torch.fx``, and what is beside ``compile``: what is printed, rewritten and run is PyTorch's, text for text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pytorch_process import PyTorchProcess

from .programs import run
from .server_process import ServerProcess

PROGRAMS = Path(__file__).parent


@pytest.mark.parametrize(
    "program", ["fx_program.txt", "compiler_program.txt", "compiled_program.txt", "compiled_calls.txt"]
)
def test_a_program_with_graphs_prints_what_it_prints_with_pytorch(
    program: str, server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path
) -> None:
    file = PROGRAMS / program
    ours = run("-W", "ignore", "-m", "telegrad", "run", "--url", server.url, file, folder=tmp_path)
    theirs = pytorch.run(file, folder=tmp_path)
    assert (ours.returncode, theirs.returncode) == (0, 0), ours.stderr + theirs.stderr
    assert ours.stdout.splitlines() == theirs.stdout.splitlines()
