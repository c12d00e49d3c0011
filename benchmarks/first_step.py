"""A process' first training step, beside PyTorch's: ``python -m benchmarks.first_step [--device cpu] [--save NAME]``.

Each sample is a process of its own: it opens the device, makes a GPT of width 128 with its optimizer, and then the
clock runs for one step and the reading of its loss. telegrad starts a private server, once with an empty cache of
kernels, and once with a full one, which a process before them fills; PyTorch's kernels come compiled.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from typing import Any

from .measure import Figure, about, figure, save, shown, without_goal
from .models import GPT_SMALL, gpt

ROUNDS = 3
_CACHE = "TELEGRAD_KERNEL_CACHE"


def _first_step(name: str, device: str) -> float:
    """Return the seconds of the first step in this process, over a library of this name."""
    lib: Any = import_module(name)
    connection = lib.connect(devices=device) if name == "telegrad" else None
    step = gpt(lib, GPT_SMALL, device)
    lib.zeros(1, device=device).item()
    begin = time.perf_counter()
    step().item()
    seconds = time.perf_counter() - begin
    if connection is not None:
        connection.disconnect()
    return seconds


def _in_process(name: str, device: str, cache: str = "") -> float:
    """Return what a fresh process finds, with the cache of kernels in this folder."""
    chosen = {_CACHE: cache} if cache else {}
    command = [sys.executable, "-m", "benchmarks.first_step", "--device", device, "--only", name]
    done = subprocess.run(command, env={**os.environ, **chosen}, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1])


def _cold(device: str) -> float:
    with tempfile.TemporaryDirectory() as empty:
        return _in_process("telegrad", device, empty)


def _measure(device: str) -> list[Figure]:
    """Measure all in turn: PyTorch, an empty cache, a full one."""
    if device != "cpu":
        subprocess.run([sys.executable, "-m", "server.engine.cuda.warm"], check=True, stdout=subprocess.DEVNULL)
    _in_process("telegrad", device)
    rounds = [(_in_process("torch", device), _cold(device), _in_process("telegrad", device)) for _ in range(ROUNDS)]
    theirs, cold, warm = (list(samples) for samples in zip(*rounds, strict=True))
    note = f"PyTorch {sorted(theirs)[len(theirs) // 2]:.2g} s"
    figures = [
        figure("first step, GPT d128, an empty kernel cache", "s", cold, at_most=1.5, baseline=note),
        figure("first step, GPT d128, a full kernel cache", "s", warm, at_most=0.2, baseline=note),
    ]
    return [without_goal(each) for each in figures] if device == "cpu" else figures


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_step", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument(
        "--only", choices=("torch", "telegrad"), help="print the seconds of one library in this process"
    )
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    if options.only:
        print(_first_step(options.only, options.device))
        return 0
    figures = shown(_measure(options.device))
    if options.save:
        save(options.save, figures, **about(options.device))
    return int(any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
