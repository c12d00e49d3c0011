"""Whole training steps on the GPU through a real client and server, beside local PyTorch eager in the same run.

``python -m benchmarks.steps [--save FILE] [--only WORD]``. Loss curves of both are compared. More PyTorch runs show the
noise between two runs: sums in other orders, other libraries' kernels, sums of halves' products in float32 alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from . import models
from .measure import Figure, about, figure, save_at
from .models import GPT_2, GPT_MIDDLE, GPT_SMALL, Step

ROUNDS = 7
ORDERS = (1, 2, 3)
Make = Callable[[Any, str, int], Step]


def _gpt(setting: models.Setting, lib: Any, device: str, order: int) -> Step:
    return models.gpt(lib, setting, device, order)


WORK: list[tuple[str, Make, float, int]] = [
    ("MLP 784-256-256-10, batch 128, AdamW, fp32", models.mlp, 0.8, 40),
    (GPT_SMALL.name, partial(_gpt, GPT_SMALL), 0.8, 20),
    (GPT_MIDDLE.name, partial(_gpt, GPT_MIDDLE), 1.0, 8),
    (GPT_2.name, partial(_gpt, GPT_2), 1.0, 8),
]
"""Name, step, the goal as a share of PyTorch's time, steps per round."""


def run(tg: Any, torch: Any, device: str, only: str = "") -> list[Figure]:
    """The figures of all work whose name has ``only`` in it."""
    return [_compare(tg, torch, device, *each) for each in WORK if only in each[0]]


def _compare(tg: Any, torch: Any, device: str, name: str, make: Make, goal: float, steps: int) -> Figure:
    ours, theirs = make(tg, device, 0), make(torch, device, 0)
    mine, reference = _losses(ours, steps), _losses(theirs, steps)
    noise = _noise(torch, partial(make, torch, device), steps, reference)
    times = [
        (_time(ours, tg.cuda.synchronize, steps), _time(theirs, torch.cuda.synchronize, steps)) for _ in range(ROUNDS)
    ]
    ratios = [a / b for a, b in times]
    telegrad_ms, pytorch_ms = (float(np.median(column)) * 1e3 for column in zip(*times, strict=True))
    apart = _apart(mine, reference)
    note = f"telegrad {telegrad_ms:.3f} ms, PyTorch {pytorch_ms:.3f} ms, losses apart {apart:.1e}, noise {noise:.1e}"
    return figure(
        name, "x torch", ratios, at_most=goal, baseline=note, telegrad_ms=telegrad_ms, pytorch_ms=pytorch_ms,
        losses=mine, pytorch_losses=reference, losses_apart=apart, noise=noise,
    )  # fmt: skip


def _noise(torch: Any, make: Callable[[int], Step], steps: int, reference: list[float]) -> float:
    """The most that two PyTorch runs of the same training are apart."""
    curves = [reference, *[_losses(make(order), steps) for order in ORDERS]]
    for change in (_other_kernels, _float32_sums):
        with change(torch.backends.cuda):
            curves.append(_losses(make(0), steps))
    return max(_apart(a, b) for a, b in combinations(curves, 2))


@contextmanager
def _other_kernels(switches: Any) -> Iterator[None]:
    """PyTorch's second choice for attention and products."""
    library, uses_cudnn = switches.preferred_blas_library(), switches.cudnn_sdp_enabled()
    switches.enable_cudnn_sdp(False)
    switches.preferred_blas_library("cublaslt")
    try:
        yield
    finally:
        switches.enable_cudnn_sdp(uses_cudnn)
        switches.preferred_blas_library(library)


@contextmanager
def _float32_sums(switches: Any) -> Iterator[None]:
    """Parts of products of bfloat16 are added up in float32; PyTorch rounds them first unless it is told not to."""
    before = switches.matmul.allow_bf16_reduced_precision_reduction
    switches.matmul.allow_bf16_reduced_precision_reduction = False
    try:
        yield
    finally:
        switches.matmul.allow_bf16_reduced_precision_reduction = before


def _losses(step: Step, steps: int) -> list[float]:
    return [float(step().item()) for _ in range(steps)]


def _apart(losses: list[float], reference: list[float]) -> float:
    """The largest relative difference of two curves."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True))


def _time(step: Step, finish: Callable[[], Any], steps: int) -> float:
    step()
    finish()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    finish()
    return (time.perf_counter() - begin) / steps


def main() -> None:
    """Measure on cuda:0 and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__)
    parser.add_argument("--save", help="file to write the figures to, as JSON")
    parser.add_argument("--only", default="", help="a part of the name of what to run")
    options = parser.parse_args()
    import torch

    import telegrad as tg

    with tg.connect(devices="cuda:0"):
        figures = run(tg, torch, "cuda", options.only)
    for each in figures:
        print(each.row())
    if options.save:
        save_at(options.save, figures, **about("cuda"), cuda=torch.version.cuda)


if __name__ == "__main__":
    main()
