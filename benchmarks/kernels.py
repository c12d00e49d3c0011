"""CPU kernels beside PyTorch's: ``python -m benchmarks.kernels [--threads 1 2] [--only NAME] [--save NAME]``.

Each figure is telegrad's time over PyTorch's for the same operation on the same numbers, samples of both taking turns.
Operations are called on engine values in this process, so that what is measured is dispatch, allocation and kernel; the
wire is not in it. Both get one thread, then two.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("TELEGRAD_COMPILED_KERNELS", "wait")

import ml_dtypes
import numpy as np
import torch

from server.engine import context, ops
from server.engine import functional as F
from server.engine.autograd.graph import make_leaf
from server.engine.context import Context
from server.engine.device import threads as cpu_threads
from server.engine.devices import open_device
from telegrad_protocol.meta import CPU, Meta

from .kernel_cases import CASES, Case
from .measure import Figure, about, figure, save
from .on_gpu import TYPES

_ = ops  # files every kernel
_ENOUGH_SECONDS = 0.25
ASLEEP_SECONDS = 0.05
"""After so long threads of PyTorch, and of BLAS, do not look for work any more, and sleep."""


def to_value(tensor: torch.Tensor) -> Any:
    """The tensor's elements as an engine value; a leaf where the tensor is one that requires grad."""
    host = open_device(CPU)
    source = tensor.detach().contiguous()
    array = source.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if source.dtype is torch.bfloat16 else source
    value = host.empty(Meta.of(tuple(source.shape), TYPES[source.dtype], CPU))
    host.fill_from_host(value, np.asarray(array))
    if tensor.requires_grad:
        make_leaf(value, True)
    return value


def run(threads: list[int], only: str = "") -> list[Figure]:
    """One figure per case and number of threads."""
    return compare_all([case for case in CASES if only in case.name], threads)


def compare_all(cases: list[Case], threads: list[int], at_most: float | None = None) -> list[Figure]:
    """One figure per case and number of threads, held against a goal if there is one."""
    context.activate(Context({CPU: open_device(CPU)}))
    return [each for count in threads for each in _at(count, cases, at_most)]


def _at(threads: int, cases: list[Case], at_most: float | None) -> list[Figure]:
    torch.set_num_threads(threads)
    cpu_threads.most = threads
    return [_compare(case, threads, at_most) for case in cases]


def _compare(case: Case, threads: int, at_most: float | None) -> Figure:
    torch.manual_seed(1)
    tensors = case.inputs()
    values = [to_value(t) if isinstance(t, torch.Tensor) else t for t in tensors]
    context.current.grad_enabled = case.records
    with torch.set_grad_enabled(case.records):
        ours, theirs = turns(lambda: case.ours(F, *values), lambda: case.theirs(*tensors), threads)
    scale, unit = (1e3, "ms") if statistics.median(theirs) > 1e-3 else (1e6, "us")
    mine, reference = (statistics.median(s) * scale for s in (ours, theirs))
    note = f"telegrad {mine:.3g} {unit}, PyTorch {reference:.3g} {unit}"
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    label = f"{case.name}, {threads} thread{'s' * (threads > 1)}"
    return figure(label, "x torch", ratios, at_most=at_most, baseline=note, telegrad=mine, pytorch=reference, per=unit)


def turns(ours: Callable[[], Any], theirs: Callable[[], Any], threads: int) -> tuple[list[float], list[float]]:
    """Seconds per call of both, in turns; of one core's own time where one core does it.

    With several threads, those of the other side's turn, which look for work for a while, go to sleep first; then this
    side's are woken by calls that are not measured.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    loops = _loops(theirs, clock) * (1 if threads == 1 else 4)
    for function in (ours, theirs):
        function()
    samples: tuple[list[float], list[float]] = ([], [])
    begin = time.perf_counter()
    while len(samples[0]) < 5 or (time.perf_counter() - begin < _ENOUGH_SECONDS and len(samples[0]) < 40):
        for function, into in zip((ours, theirs), samples, strict=True):
            if threads > 1:
                time.sleep(ASLEEP_SECONDS)
                for _ in range(loops):
                    function()
            start = clock()
            for _ in range(loops):
                function()
            into.append((clock() - start) / loops)
    return samples


def _loops(function: Callable[[], Any], clock: Callable[[], float]) -> int:
    function()
    start = clock()
    function()
    return max(1, round(2e-3 / max(clock() - start, 1e-6)))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="threads of PyTorch")
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    figures = run(options.threads, options.only)
    for each in figures:
        print(each.row())
    if options.save:
        save(options.save, figures, **about("cpu"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
