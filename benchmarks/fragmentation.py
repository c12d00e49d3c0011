"""What the allocator reserves for recorded training: ``python -m benchmarks.fragmentation [--save] [--plot]``.

Replays ``benchmarks/traces`` on a simulated device of 140 GiB under several options and prints, for each, the peak of
what the program holds, of what is reserved, and the share of it that is lost to fragmentation at that time. ``--plot``
draws what is reserved step by step into docs/images. Addresses are simulated; the order of events is that of one
stream; PyTorch on a GPU replays the same traces in tests/allocator/test_gpu.py.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pathlib
import time
from typing import Any

from server.allocator import CachingAllocator, SimulatedUpstream
from server.allocator.core.options import parse_options

from .chart import Line, chart
from .measure import Figure, save

TRACES = pathlib.Path(__file__).parent / "traces"
IMAGES = pathlib.Path(__file__).parent.parent / "docs" / "images"
GIB = 1 << 30
DEVICE_BYTES = 140 * GIB
OPTIONS = {
    "default": "",
    "max_split_size_mb:128": "max_split_size_mb:128",
    "roundup_power2_divisions:8": "roundup_power2_divisions:8",
    "garbage_collection_threshold:0.6": "garbage_collection_threshold:0.6,per_process_memory_fraction:0.5",
    "expandable_segments:True": "expandable_segments:True",
}


def load(name: str) -> dict[str, Any]:
    """A recorded trace: ``events``, of which a positive one allocates so many bytes and -n frees the n-th."""
    trace: dict[str, Any] = json.loads(gzip.decompress((TRACES / f"{name}.json.gz").read_bytes()))
    return trace


class Replay:
    """One trace under one choice of options."""

    def __init__(self, name: str, options: str) -> None:
        trace = load(name)
        self.allocator = CachingAllocator(SimulatedUpstream(DEVICE_BYTES), parse_options(options))
        self.held: list[int] = []
        self.reserved: list[int] = []
        begin = time.perf_counter()
        self._run(trace["events"], trace["step_ends"])
        self.microseconds = (time.perf_counter() - begin) / len(trace["events"]) * 1e6
        self.stats = self.allocator.memory_stats()

    def _run(self, events: list[int], ends: list[int]) -> None:
        allocate, free = self.allocator.allocate, self.allocator.free
        blocks: list[Any] = [None]
        begin = 0
        for end in ends:
            self.allocator.reset_peak()
            for event in events[begin:end]:
                if event > 0:
                    blocks.append(allocate(event, 0, 1))
                else:
                    free(blocks[-event])
                    blocks[-event] = None
            begin = end
            stats = self.allocator.memory_stats()
            self.held.append(stats["allocated_bytes.all.peak"])
            self.reserved.append(stats["reserved_bytes.all.peak"])

    def row(self) -> list[str]:
        """What the table says of it."""
        held, reserved = max(self.held), max(self.reserved)
        sizes = [f"{held / GIB:.3f}", f"{reserved / GIB:.3f}", f"{1 - held / reserved:.1%}", f"{self.microseconds:.2f}"]
        return [*sizes, str(self.stats["num_device_alloc"]), str(self.stats["num_device_free"])]

    def figures(self, label: str) -> list[Figure]:
        """Peaks over all steps, in GiB, and what a call cost."""
        held, reserved = max(self.held), max(self.reserved)
        lost = 1 - held / reserved
        rare = {key: self.stats[key] for key in ("num_device_alloc", "num_device_free", "num_alloc_retries")}
        value = reserved / GIB
        return [
            Figure(f"{label}: reserved", "GiB", value, value, value, extra={"lost": round(lost, 4), **rare}),
            Figure(f"{label}: a call", "us", self.microseconds, self.microseconds, self.microseconds),
        ]


def run(names: tuple[str, ...] = ("gpt2-small", "gpt2-rising", "gpt2-mixed")) -> dict[str, dict[str, Replay]]:
    """Every trace under every choice of options."""
    return {name: {label: Replay(name, options) for label, options in OPTIONS.items()} for name in names}


def plot(replays: dict[str, dict[str, Replay]]) -> None:
    """What is reserved and what is held, by step."""
    IMAGES.mkdir(exist_ok=True)
    for name in ("gpt2-rising", "gpt2-mixed"):
        runs = replays[name]
        lines = [Line(label, [nbytes / GIB for nbytes in each.reserved]) for label, each in runs.items()]
        lines.append(Line("held by the program", [nbytes / GIB for nbytes in runs["default"].held], is_filled=True))
        picture = chart(f"{load(name)['about']}: peak of each step", "training step", "GiB", lines)
        (IMAGES / f"{name}.svg").write_text(picture)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fragmentation", description=__doc__)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/fragmentation.json")
    parser.add_argument("--plot", action="store_true", help="draw docs/images")
    options = parser.parse_args()
    replays = run()
    columns = ("held", "reserved", "lost", "us/call", "obtained", "given back")
    print(f"{'GiB at the peak; trace, options':<48}", *(f"{column:>10}" for column in columns))
    for name, runs in replays.items():
        for label, each in runs.items():
            print(f"{name + ', ' + label:<48}", *(f"{cell:>10}" for cell in each.row()))
    if options.save:
        figures = [
            f for name, runs in replays.items() for label, r in runs.items() for f in r.figures(f"{name}, {label}")
        ]
        save("fragmentation", figures, device="simulated, 140 GiB")
    if options.plot:
        plot(replays)


if __name__ == "__main__":
    main()
