"""What the client costs before it does anything: import time, and the size of a fresh install."""

from __future__ import annotations

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from .measure import Figure, figure

ROOT = pathlib.Path(__file__).parent.parent
_REPEATS = 9


def run(with_install: bool) -> list[Figure]:
    """Import time in fresh processes; and, where a package index is at hand, the size of a fresh install."""
    figures = _import_times()
    if with_install:
        figures.append(_install_size())
    return figures


def _import_times() -> list[Figure]:
    """The bare import; with the layers; and from the command to the first line after ``import torch``."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "program.py"
        script.write_text("import torch\nfrom torch import nn, optim\n")
        programs = {
            "import telegrad": ["-c", "import telegrad"],
            "import telegrad, telegrad.nn, telegrad.optim": ["-c", "import telegrad, telegrad.nn, telegrad.optim"],
            "telegrad run of a program that imports torch": ["-m", "telegrad", "run", str(script)],
        }
        environment = _with_bytecode(folder)
        torch = statistics.median([_run(["-c", "import torch"], environment) for _ in range(4)][1:])
        bare = min(_run(["-c", "pass"], environment) for _ in range(_REPEATS))
        figures = []
        for name, arguments in programs.items():
            _run(arguments, environment)
            samples = [_run(arguments, environment) - bare for _ in range(_REPEATS)]
            goal = 0.3 if name == "import telegrad" else None
            figures.append(figure(name, "s", samples, at_most=goal, baseline=f"torch {torch - bare:.2g} s"))
        return figures


def _with_bytecode(folder: str) -> dict[str, str]:
    """The environment, in which Python keeps compiled modules, as an installation of both libraries does."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder}


def _run(arguments: list[str], environment: dict[str, str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, env=environment)
    return time.perf_counter() - begin


def _install_size() -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "site"
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", str(target)]
        subprocess.run([*command, str(ROOT / "client")], check=True, capture_output=True)
        size = sum(f.stat().st_size for f in target.rglob("*") if f.is_file()) / 1e6
    return figure("size of a fresh client install", "MB", [size], at_most=100, baseline="torch: gigabytes with CUDA")
