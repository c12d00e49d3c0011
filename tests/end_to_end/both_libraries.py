"""Runs a program under telegrad and under PyTorch, each in a folder of its own."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from tests.support.pytorch_process import PyTorchProcess

from ..examples.running import run_on_pytorch
from .programs import run


def on_telegrad(program: Path, folder: Path, url: str) -> tuple[list[str], str]:
    """Return the lines that a program prints under telegrad in a folder of its own, and what it says of errors."""
    folder.mkdir()
    done = run("-W", "ignore", "-m", "telegrad", program, folder=folder, url=url)
    return _lines(done.stdout, folder), done.stderr


def on_pytorch(program: Path, folder: Path) -> tuple[list[str], str]:
    """Return the same under PyTorch, which this process has imported."""
    folder.mkdir()
    with contextlib.chdir(folder):
        return _lines(run_on_pytorch(program, []), folder), ""


def apart(pytorch: PyTorchProcess, program: Path, folder: Path) -> tuple[list[str], str]:
    """Return the same under PyTorch in a process of its own."""
    folder.mkdir()
    done = pytorch.run(program, folder=folder)
    return _lines(done.stdout, folder), done.stderr


def _lines(printed: str, folder: Path) -> list[str]:
    return re.sub(r"w-\w{8}", "w-hash", printed.replace(str(folder), "")).splitlines()
