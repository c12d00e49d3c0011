"""Training steps of small models against local PyTorch in the same run, steps of both taking turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .measure import Figure, figure

STEPS = 100
QUIET_SECONDS = 0.1
"""Threads of BLAS spin for about 30 ms after their last product: neither side is to take the other's cores."""
WARM_STEPS = 100
"""Steps after that pause that are not measured, on either side: cores that have slept for so long take some 40 ms until
they wake as quickly as in a loop that goes on."""
ROUNDS = 9


def run(tg: Any, device: str) -> list[Figure]:
    """The MLP 784-128-10 with SGD, with and without reading the loss."""
    import torch

    torch.set_num_threads(max(torch.get_num_threads(), 1))
    figures = []
    for reads, goal in ((False, 1.2), (True, 1.4)):
        ours, theirs = _mlp(tg, tg, device, reads), _mlp(torch, torch, device, reads)
        ratios, mine, reference = [], [], []
        for _ in range(ROUNDS):
            a = _time(ours, tg.cuda.synchronize)
            b = _time(theirs, torch.cuda.synchronize if device == "cuda" else lambda: None)
            ratios.append(a / b)
            mine.append(a * 1e3)
            reference.append(b * 1e3)
        label = "MLP 784-128-10, batch 128, SGD" + (", item() each step" if reads else "")
        extra = {"telegrad_ms": float(np.median(mine)), "pytorch_ms": float(np.median(reference))}
        note = f"telegrad {extra['telegrad_ms']:.3f} ms, PyTorch {extra['pytorch_ms']:.3f} ms"
        figures.append(figure(label, "x torch", ratios[1:], at_most=goal, baseline=note, **extra))
    return figures


def _time(step: Callable[[], Any], finish: Callable[[], Any]) -> float:
    time.sleep(QUIET_SECONDS)
    for _ in range(WARM_STEPS):
        step()
    finish()
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    finish()
    return (time.perf_counter() - begin) / STEPS


def _mlp(lib: Any, _: Any, device: str, reads: bool) -> Callable[[], Any]:
    nn = lib.nn
    rng = np.random.default_rng(0)
    x = lib.tensor(rng.standard_normal((128, 784)).astype(np.float32), device=device)
    y = lib.tensor(rng.integers(0, 10, 128), device=device)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01)
    loss_of = nn.CrossEntropyLoss()

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item() if reads else loss

    return step
