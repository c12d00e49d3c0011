"""What recorded training makes an allocator reserve of a GPU: ``python -m benchmarks.replay [--save NAME]``.

Replays ``benchmarks/traces`` on the card, through this allocator and through PyTorch's raw calls, each in a process of
its own because PyTorch reads its options at start. Up to 105 GiB are obtained, so nothing else should run there.
The time of a call counts those that wait for the driver, which are most of it where segments come and go.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from .fragmentation import GIB, load
from .measure import Figure, about, save

TRACES = ("gpt2-small", "gpt2-rising", "gpt2-mixed")
OPTIONS = {"default": "", "expandable": "expandable_segments:True"}
PARTS = ("allocated", "reserved")


def replay(events: list[int], allocate: Callable[[int], Any], free: Callable[[Any], None]) -> float:
    """Microseconds that a call took; a positive event allocates so many bytes and -n frees the n-th."""
    held: list[Any] = [None]
    begin = time.perf_counter()
    for event in events:
        if event > 0:
            held.append(allocate(event))
        else:
            free(held[-event])
    return (time.perf_counter() - begin) / len(events) * 1e6


def replay_ours(events: list[int], options: str) -> dict[str, float]:
    """Through this allocator."""
    from server.allocator import CachingAllocator, CudaUpstream
    from server.allocator.core.options import parse_options

    allocator = CachingAllocator(CudaUpstream(0), parse_options(options), device="cuda:0")
    allocator.mem_get_info()  # creates the context
    microseconds = replay(events, lambda nbytes: allocator.allocate(nbytes, 0, 1), allocator.free)
    stats = allocator.memory_stats()
    return {"us": microseconds} | {part: stats[f"{part}_bytes.all.peak"] for part in PARTS}


def replay_torch(events: list[int], options: str) -> dict[str, float]:
    """Through PyTorch's, whose options are in the environment."""
    import torch

    torch.cuda.mem_get_info()
    stream = torch.cuda.current_stream().cuda_stream
    allocate, delete = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
    microseconds = replay(events, lambda nbytes: allocate(nbytes, 0, stream), delete)
    stats = torch.cuda.memory_stats()
    return {"us": microseconds} | {part: stats[f"{part}_bytes.all.peak"] for part in PARTS}


SIDES = {"ours": replay_ours, "torch": replay_torch}


def in_a_process(side: str, name: str, options: str) -> dict[str, float]:
    """One replay, alone on the card."""
    command = [sys.executable, "-m", "benchmarks.replay", "--side", side, "--trace", name, "--options", options]
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": options}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def figures(name: str, label: str) -> list[Figure]:
    """Both sides of one trace under one choice of options."""
    ours, theirs = (in_a_process(side, name, OPTIONS[label]) for side in ("ours", "torch"))
    value, limit = ours["reserved"] / GIB, theirs["reserved"] / GIB
    held = {"held_gib": round(ours["allocated"] / GIB, 3)}
    beside = f"PyTorch {limit:.4g} GiB", f"PyTorch {theirs['us']:.3g} us"
    goal, met = f"<= {limit:.4g}", value <= limit
    return [
        Figure(f"{name}, {label}: peak reserved", "GiB", value, value, value, goal, met, beside[0], held),
        Figure(f"{name}, {label}: a call", "us", ours["us"], ours["us"], ours["us"], baseline=beside[1]),
    ]


def run() -> list[Figure]:
    """All traces under all options."""
    return [each for name in TRACES for label in OPTIONS for each in figures(name, label)]


def main() -> None:
    """Print the table, or with ``--side`` one replay as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    parser.add_argument("--side", choices=tuple(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--trace", choices=TRACES, help=argparse.SUPPRESS)
    parser.add_argument("--options", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.side:
        print(json.dumps(SIDES[chosen.side](load(chosen.trace)["events"], chosen.options)))
        return
    found = run()
    for each in found:
        print(each.row())
    if chosen.save:
        save(chosen.save, found, **about("cuda"))


if __name__ == "__main__":
    main()
