"""What the client costs before it does anything: import time, and the size of a fresh install."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
import time

from .measure import Figure, figure

ROOT = pathlib.Path(__file__).parent.parent


def run(with_install: bool) -> list[Figure]:
    """Import time in fresh processes; and, where a package index is at hand, the size of a fresh install."""
    figures = [_import_time()]
    if with_install:
        figures.append(_install_size())
    return figures


def _import_time() -> Figure:
    bare = [_run("pass") for _ in range(7)]
    whole = [_run("import telegrad") for _ in range(7)]
    samples = [w - min(bare) for w in whole]
    return figure("import telegrad", "s", samples, at_most=0.3, baseline="torch 1.3 s")


def _run(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begin


def _install_size() -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "site"
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", str(target)]
        subprocess.run([*command, str(ROOT / "client")], check=True, capture_output=True)
        size = sum(f.stat().st_size for f in target.rglob("*") if f.is_file()) / 1e6
    return figure("size of a fresh client install", "MB", [size], at_most=100, baseline="torch: gigabytes with CUDA")
