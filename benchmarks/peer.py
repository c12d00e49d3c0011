"""Copies between two GPUs beside PyTorch's: ``python -m benchmarks.peer [--save NAME]``.

A sample queues a number of copies and waits for both GPUs. A figure is telegrad's bandwidth over PyTorch's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from server.engine import context
from server.engine import functional as F
from server.engine.context import Context
from server.engine.devices import open_device
from telegrad_protocol.meta import CPU, Device

from .measure import Figure, about, figure, save
from .on_gpu import loops, seconds

NODE = [Device("cuda:0"), Device("cuda:1")]
SIZES = [1 << 12, 1 << 20, 1 << 24, 1 << 28, 1 << 30]
"""The sizes of the copies that are measured, in bytes."""
_LEAST = 0.9
_SAMPLES = 9


def run() -> list[Figure]:
    """One figure for each direction, size and layout."""
    backends = {device: open_device(device) for device in (*NODE, CPU)}
    context.activate(Context(backends))
    for device in NODE:
        backends[device].enter(context.current)
        backends[device].allow_waiting()
    return [_compare(*case) for case in _cases()]


def _cases() -> Iterator[tuple[int, int, str]]:
    for origin in (0, 1):
        yield from ((origin, nbytes, "row-major") for nbytes in SIZES)
    yield 0, 1 << 26, "transposed"
    yield 0, 1 << 26, "every second column"


def _compare(origin: int, nbytes: int, layout: str) -> Figure:
    target = 1 - origin
    side = int((nbytes / 4) ** 0.5)
    theirs = torch.zeros(side, 2 * side if layout == "every second column" else side, device=f"cuda:{origin}")
    ours = F.zeros(tuple(theirs.shape), device=NODE[origin])
    if layout == "transposed":
        ours, theirs = F.transpose(ours, 0, 1), theirs.t()
    if layout == "every second column":
        ours, theirs = F.slice(ours, 1, 0, 2 * side, 2), theirs[:, ::2]
    pairs: list[tuple[Callable[[], Any], Callable[[], None]]] = [
        (lambda: F._to_copy(ours, device=NODE[target]), _wait), (lambda: theirs.to(f"cuda:{target}"), _wait_for_torch),
    ]  # fmt: skip
    samples = _in_turns(pairs)
    moved = theirs.numel() * 4 / 1e9
    rates = [moved / min(side_samples) for side_samples in samples]
    ratios = [reference / mine for mine, reference in zip(*samples, strict=True)]
    note = f"telegrad {rates[0]:.1f} GB/s, PyTorch {rates[1]:.1f} GB/s"
    name = f"cuda:{origin} to cuda:{target}, {moved * 1e9 / 2**20:.4g} MiB, {layout}"
    return figure(name, "x torch", ratios, at_least=_LEAST, baseline=note)


def _in_turns(pairs: list[tuple[Callable[[], Any], Callable[[], None]]]) -> tuple[list[float], list[float]]:
    for action, wait in pairs:
        action()
        wait()
    counts = [loops(action, wait) for action, wait in pairs]
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(_SAMPLES):
        for (action, wait), count, into in zip(pairs, counts, samples, strict=True):
            into.append(seconds(action, wait, count))
    return samples


def _wait() -> None:
    for device in NODE:
        open_device(device).synchronize()


def _wait_for_torch() -> None:
    for index in range(len(NODE)):
        torch.cuda.synchronize(index)


def main() -> int:
    """Print the table; returns 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer", description=__doc__)
    parser.add_argument("--save", default="", help="name of a file under benchmarks/results")
    options = parser.parse_args()
    figures = run()
    for measured in figures:
        print(measured.row())
    if options.save:
        save(options.save, figures, **about("cuda:0"))
    return int(any(measured.met is False for measured in figures))


if __name__ == "__main__":
    sys.exit(main())
