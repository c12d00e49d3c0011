"""Runs a program on PyTorch in this process, or on telegrad as a person would."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]


def run_on_pytorch(program: Path, arguments: list[str]) -> str:
    """Run a program in this process and return what it printed; PyTorch's settings are as they were.

    What it warns of is not shown.
    """
    printed, argv, dtype = StringIO(), sys.argv, torch.get_default_dtype()
    sys.argv = [str(program), *arguments]
    try:
        with redirect_stdout(printed), torch.random.fork_rng(devices=[]), warnings.catch_warnings(), _flags_allowed():
            warnings.simplefilter("ignore")
            runpy.run_path(str(program), run_name="__main__")
    finally:
        sys.argv = argv
        torch.set_default_dtype(dtype)
    return printed.getvalue()


def _flags_allowed() -> Any:
    """Let programs set ``torch.backends``, which the operator database has closed for the process that imports it."""
    return torch.backends.__allow_nonbracketed_mutation()


def run_on_telegrad(program: Path, arguments: list[str], url: str) -> str:
    """Have ``telegrad run`` run a program and return what it printed."""
    command = [sys.executable, "-m", "telegrad", "run", "--url", url, str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def environment() -> dict[str, str]:
    """Programs import the tree that is tested, and no setting of this process's is theirs."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TELEGRAD_")}
    path = [str(ROOT / "client"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(path)}
