"""The CPU backend beside PyTorch's with the same number of threads: ``python -m benchmarks.cpu [--threads 2]``.

Operations, with their gradients where the name says so, are called on engine values in this process; steps of training
go through a real client and server. Samples of both take turns, and a figure is telegrad's time over PyTorch's. With
one thread it is time of the process, otherwise time on the clock, for which the machine has to be idle.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TELEGRAD_COMPILED_KERNELS", "wait")

import torch

from server.engine.blas_threads import share_cores

from .cpu_cases import cases
from .cpu_steps import STEPS
from .kernels import ASLEEP_SECONDS, compare_all
from .measure import Figure, about, figure, save, step_seconds

ROUNDS = 7
_ROUND_SECONDS = 0.4


def _operations(threads: int, only: str) -> list[Figure]:
    figures: list[Figure] = []
    for case, goal in cases():
        if only in case.name:
            figures += compare_all([case], [threads], goal)
            print(figures[-1].row(), flush=True)
    return figures


def _steps(threads: int, only: str) -> list[Figure]:
    chosen = {name: work for name, work in STEPS.items() if only in name}
    if not chosen:
        return []
    import telegrad as tg

    figures = []
    torch.set_num_threads(threads)
    with tg.connect(devices="cpu"):
        for name, (make, goal) in chosen.items():
            figures.append(_compare(f"{name}, {threads} threads", make(tg), make(torch), goal))
            print(figures[-1].row(), flush=True)
    return figures


def _compare(name: str, ours: Callable[[], Any], theirs: Callable[[], Any], goal: float) -> Figure:
    steps = max(2, round(_ROUND_SECONDS / max(step_seconds(theirs, 2), 1e-4)))
    step_seconds(ours, steps)
    step_seconds(theirs, steps)
    times = [(_seconds(ours, steps), _seconds(theirs, steps)) for _ in range(ROUNDS)]
    mine, reference = (sorted(column)[ROUNDS // 2] * 1e3 for column in zip(*times, strict=True))
    note = f"telegrad {mine:.3g} ms, PyTorch {reference:.3g} ms"
    ratios = [a / b for a, b in times]
    return figure(name, "x torch", ratios, at_most=goal, baseline=note, telegrad=mine, pytorch=reference, per="ms")


def _seconds(step: Callable[[], Any], count: int) -> float:
    """Seconds of a step, once the other side's threads sleep and this side's are awake."""
    time.sleep(ASLEEP_SECONDS)
    step_seconds(step, 2)
    return step_seconds(step, count)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=__doc__)
    parser.add_argument("--threads", type=int, default=2, help="threads of both")
    parser.add_argument("--only", default="", help="operations and steps whose names hold this text")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    wanted = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(options.threads))
    if wanted.items() - os.environ.items():  # libraries read them when they are loaded
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.cpu", *sys.argv[1:]], {**os.environ, **wanted})
    share_cores()
    figures = _operations(options.threads, options.only) + _steps(options.threads, options.only)
    if options.save:
        save(options.save, figures, **about("cpu"), threads=options.threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
