"""What an allocation and its free cost: ``python -m benchmarks.allocator [--device cuda]``.

Each figure is the time of one allocate and one free together, in microseconds, without the work on the memory. The
baselines run in the same process: NumPy's own ``np.empty`` on the host; on a GPU PyTorch's raw calls and CuPy's pool.
A loop over one size does not show what a search among many free sizes costs; the trace does. What never comes again is
measured while the allocator tries to learn it, and while it has given that up, with the time that drawing sizes takes.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from server.allocator import AllocatorConfig, CachingAllocator, HostUpstream

from .fragmentation import load
from .measure import Figure, about, figure, repeat, save

LOOPS = 2000
REPEATS = 25
LIVE = (1000, 1000, 1000, 70_000, 70_000, 3_000_000)


def run(device: str = "cpu") -> list[Figure]:
    """All figures of one device."""
    allocator = _allocator(device)
    held = [allocator.allocate(nbytes, 0, 1) for nbytes in LIVE]
    allocator.free(held.pop(1))
    figures = [
        _per_pair("one cached block of 1000 bytes", _one_size(allocator, 1000), at_most=3.0),
        _per_pair("one block that is split off and merged", _one_size(allocator, 5000)),
        _per_pair("one block of 50 MB, a segment of its own", _one_size(allocator, 50_000_000)),
        _per_pair("a chain: each result replaces the one before", _chain(allocator, 40_000)),
        _per_pair("a trace of waves of 64 activations", _waves(allocator)),
    ]
    figures += _recorded(allocator, "telegrad-layers")
    for learns, name in (
        (True, "an order that never comes again, while it learns"),
        (False, "the same, having given up"),
    ):
        figures.append(_per_pair(name, _wandering(_allocator(device), learns)))
    growing = _allocator(device, AllocatorConfig(expandable_segments=True))
    figures.append(_per_pair("expandable segments: one cached block", _one_size(growing, 1000), at_most=3.0))
    return figures + [_per_pair(name, action) for name, action in _baselines(device)]


def _per_pair(name: str, action: Callable[[], Any], at_most: float | None = None) -> Figure:
    samples = [seconds / LOOPS * 1e6 for seconds in repeat(action, REPEATS, warmup=3)]
    return figure(name, "us", samples, at_most=at_most)


def _allocator(device: str, config: AllocatorConfig | None = None) -> CachingAllocator:
    if device == "cpu":
        return CachingAllocator(HostUpstream(), config)
    from server.allocator import CudaUpstream

    return CachingAllocator(CudaUpstream(0), config, device="cuda:0")


def _one_size(allocator: CachingAllocator, nbytes: int) -> Callable[[], None]:
    def action() -> None:
        allocate, free = allocator.allocate, allocator.free
        for _ in range(LOOPS):
            free(allocate(nbytes, 0, 1))

    return action


def _chain(allocator: CachingAllocator, nbytes: int) -> Callable[[], None]:
    def action() -> None:
        allocate, free = allocator.allocate, allocator.free
        last = allocate(nbytes, 0, 1)
        for _ in range(LOOPS):
            result = allocate(nbytes, 0, 1)
            free(last)
            last = result
        free(last)

    return action


def _waves(allocator: CachingAllocator) -> Callable[[], None]:
    draw = random.Random(1)
    wave = [draw.choice((4, 512, 40_000, 65_536, 131_072, 1_500_000)) for _ in range(64)]

    def action() -> None:
        allocate, free = allocator.allocate, allocator.free
        for _ in range(LOOPS // len(wave)):
            live = [allocate(nbytes, 0, 1) for nbytes in wave]
            while live:
                free(live.pop())

    return action


def _wandering(allocator: CachingAllocator, learns: bool) -> Callable[[], None]:
    """Calls of which none is remembered: sixty blocks of few sizes are in use, and any may be the next to go."""
    draw, live = random.Random(2), [allocator.allocate(4, 0, 1) for _ in range(60)]
    sizes = (4, 700, 5000, 40_000, 65_536, 300_000, 1_500_000)

    def action() -> None:
        allocate, free = allocator.allocate, allocator.free
        if learns:
            allocator.end_cooldown()
        for at, nbytes in zip(draw.choices(range(60), k=LOOPS), draw.choices(sizes, k=LOOPS), strict=True):
            free(live[at])
            live[at] = allocate(nbytes, 0, 1)

    if not learns:
        while not allocator.recall.replay_policy.cooldown:
            action()
    return action


def _recorded(allocator: CachingAllocator, name: str) -> list[Figure]:
    """A recorded training run, replayed from its first step to its last."""
    events = load(name)["events"]
    pairs = sum(event > 0 for event in events)

    def action() -> None:
        allocate, free = allocator.allocate, allocator.free
        blocks: list[Any] = [None]
        for event in events:
            if event > 0:
                blocks.append(allocate(event, 0, 1))
            else:
                free(blocks[-event])
                blocks[-event] = None
        for block in blocks:
            if block is not None:
                free(block)

    samples = [seconds / pairs * 1e6 for seconds in repeat(action, REPEATS, warmup=3)]
    return [figure("recorded training steps of six layers", "us", samples)]


def _baselines(device: str) -> list[tuple[str, Callable[[], None]]]:
    if device == "cpu":
        return [("baseline: np.empty(1000, np.uint8)", _loop(lambda: np.empty(1000, np.uint8)))]
    import cupy
    import torch

    stream = torch.cuda.current_stream().cuda_stream
    pool = cupy.cuda.MemoryPool()

    def torch_pair() -> None:
        torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(1000, 0, stream))

    return [
        ("baseline: PyTorch's raw alloc and delete", _loop(torch_pair)),
        ("baseline: CuPy's pool", _loop(lambda: pool.malloc(1000))),
    ]


def _loop(pair: Callable[[], Any]) -> Callable[[], None]:
    def action() -> None:
        for _ in range(LOOPS):
            pair()

    return action


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allocator", description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    figures = run(options.device)
    for each in figures:
        print(each.row())
    if options.save:
        save(options.save, figures, **about(options.device))


if __name__ == "__main__":
    main()
