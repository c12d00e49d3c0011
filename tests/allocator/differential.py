"""Replay random traces through PyTorch's own CUDA allocator and through ours: the same statistics after every step.

``python -m tests.allocator.differential SEED TRACES STEPS [LIMIT_MIB]`` prints one JSON line; with a file of
``benchmarks/traces`` as its only argument it replays that. PyTorch reads its options from PYTORCH_CUDA_ALLOC_CONF when
the process starts, hence one process per choice of options; ours are parsed from the same text. Segments get the
addresses that the driver gave PyTorch, because addresses break ties. What waited for events is taken back in the order
in which PyTorch did, as its history tells: it asks waiting streams in the order of a hash table.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pathlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

from server.allocator import Block, CachingAllocator, Segment
from server.allocator.core.events import EventQueue
from server.allocator.core.options import parse_options
from server.allocator.core.sizes import MIB
from telegrad_protocol.errors import OutOfMemoryError

Step = tuple[str, int, int]
Stats = dict[str, int]


class ScriptedUpstream:
    """Gives out the segments that PyTorch obtained, in the same order; events are done at once."""

    is_zeroed = True

    def __init__(self, script: list[tuple[int, int]], total: int) -> None:
        self.script = script
        self.total = total

    def reserve(self, nbytes: int, page: int, stream: int) -> Segment | None:
        if not self.script:
            raise AssertionError("PyTorch reserved no further addresses")
        return Segment(self.script[0][0], nbytes, page=page)

    def map(self, segment: Segment, offset: int, nbytes: int) -> bool:
        pointer, size = self.script.pop(0) if self.script else (0, 0)
        ours = (segment.pointer + offset, nbytes)
        assert (pointer, size) == ours, (
            f"PyTorch mapped {size} bytes at {pointer:#x}, we want {ours[1]} at {ours[0]:#x}"
        )
        return True

    def unmap(self, segment: Segment, offset: int, nbytes: int) -> None:
        pass

    def obtain(self, nbytes: int, stream: int) -> Segment | None:
        if not self.script:
            raise AssertionError(f"PyTorch obtained no further segment, we want {nbytes} bytes")
        pointer, size = self.script.pop(0)
        assert size == nbytes, f"PyTorch obtained {size} bytes, we want {nbytes}"
        return Segment(pointer, nbytes)

    def give_back(self, segment: Segment) -> None:
        pass

    def zero(self, segment: Segment, offset: int, nbytes: int, stream: int) -> None:
        pass

    def free_and_total(self) -> tuple[int, int]:
        return 0, self.total

    def record_event(self, stream: int) -> None:
        pass

    def is_done(self, event: None) -> bool:
        return True

    def wait_for(self, event: None) -> None:
        pass


class InPytorchsOrder(EventQueue):
    """Gives back what has waited in the order that PyTorch took it back in."""

    order: list[int]

    def completed(self) -> Iterator[Block]:
        return self._ordered(super().completed())

    def awaited(self) -> Iterator[Block]:
        return self._ordered(super().awaited())

    def _ordered(self, blocks: Iterator[Block]) -> Iterator[Block]:
        return iter(sorted(blocks, key=lambda block: self.order.index(block.pointer)))


SMALL = [1, 700, 4096, 60_000, 300_000, MIB - 5, MIB]
LARGE = [MIB + 5, 3 * MIB, 9 * MIB, 10 * MIB, 24 * MIB, 50 * MIB]
# Which sizes come again and again, beyond which there are no others, and the share of any large ones.
STYLES = {"small": (SMALL, MIB, 0.0), "large": (LARGE, 12 * MIB, 0.2), "mixed": (SMALL + LARGE[:5], 2 * MIB, 0.08)}
STREAMS = 5


def make_trace(draw: random.Random, steps: int) -> list[Step]:
    """Steps of (what, which or how many bytes, stream)."""
    sizes, limit, large = STYLES[draw.choice(["small", "large", "mixed", "mixed"])]
    favourites = [draw.choice(sizes) for _ in range(6)]
    trace: list[Step] = []
    for _ in range(steps):
        choice = draw.random()
        if choice < 0.50:
            nbytes = draw.choice([*favourites, draw.randrange(1, 5000), draw.randrange(1, limit)])
            if draw.random() < large:
                nbytes = draw.randrange(MIB, 70 * MIB)
            trace.append(("allocate", nbytes, draw.choice([0, 0, 0, 1, 2, 3])))
        elif choice < 0.90:
            trace.append(("free", draw.randrange(1 << 30), 0))
        elif choice < 0.99:
            trace.append(("record_stream", draw.randrange(1 << 30), draw.randrange(STREAMS)))
        else:
            trace.append(("empty_cache", 0, 0))
    return trace


def flatten(nested: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    for key, value in nested.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def replay_torch(trace: list[Step], streams: list[Any]) -> tuple[list[Stats], list[tuple[int, int]], list[int]]:
    """PyTorch's statistics after every step, the segments that it obtained, and the blocks that it took back."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=10 * len(trace))
    live: list[torch.Tensor] = []
    stats = []
    for what, number, stream in trace:
        _step_torch(what, number, streams[stream], live)
        stats.append(dict(flatten(torch._C._cuda_memoryStats(0))))
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    live.clear()
    obtained = [entry for entry in entries if entry["action"] in ("segment_alloc", "segment_map")]
    taken_back = [entry["addr"] for entry in entries if entry["action"] == "free_completed"]
    return stats, [(entry["addr"], entry["size"]) for entry in obtained], taken_back


def _step_torch(what: str, number: int, stream: Any, live: list[torch.Tensor]) -> None:
    if what == "allocate":
        torch.cuda.synchronize()
        with contextlib.suppress(torch.OutOfMemoryError), torch.cuda.stream(stream):
            live.append(torch.empty(number, dtype=torch.uint8, device="cuda"))
    elif what == "free" and live:
        live.pop(number % len(live))
    elif what == "record_stream" and live:
        live[number % len(live)].record_stream(stream)
    elif what == "empty_cache":
        torch.cuda.empty_cache()


def step_ours(allocator: CachingAllocator, what: str, number: int, stream: int, live: list[Any]) -> None:
    if what == "allocate":
        with contextlib.suppress(OutOfMemoryError):
            live.append(allocator.allocate(number, stream))
    elif what == "free" and live:
        allocator.free(live.pop(number % len(live)))
    elif what == "record_stream" and live:
        allocator.record_stream(live[number % len(live)], stream)
    elif what == "empty_cache":
        allocator.empty_cache()


def compare(trace: list[Step], streams: list[Any], fraction: float | None) -> dict[str, Any]:
    """The first step whose statistics differ, or how much happened."""
    expected, script, taken_back = replay_torch(trace, streams)
    upstream = ScriptedUpstream(script, torch.cuda.mem_get_info()[1])
    events = InPytorchsOrder(upstream)
    allocator = CachingAllocator(
        upstream,
        parse_options(os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")),
        events=events,
    )
    if fraction is not None:
        allocator.set_memory_fraction(fraction)
    live: list[Any] = []
    done = 0
    for at, (step, theirs) in enumerate(zip(trace, expected)):
        done, begin = theirs["active.all.freed"], done
        events.order = taken_back[begin:done]
        step_ours(allocator, *step, live)
        ours = allocator.memory_stats()
        missing = sorted(set(theirs) - set(ours))
        wrong = {key: (ours[key], theirs[key]) for key in theirs if key in ours and ours[key] != theirs[key]}
        if wrong or missing:
            return {"step": at, "what": step, "ours, theirs": wrong, "missing": missing}
    last = expected[-1]
    return {key: last[key] for key in ("num_ooms", "num_alloc_retries", "num_device_free", "allocation.all.allocated")}


def recorded(path: str) -> list[Step]:
    """A trace of the fragmentation study, in steps: the n-th thing that it allocated is the n-th that lives."""
    steps: list[Step] = []
    live: list[int] = []
    count = 0
    for event in json.loads(gzip.decompress(pathlib.Path(path).read_bytes()))["events"]:
        if event > 0:
            count += 1
            live.append(count)
            steps.append(("allocate", event, 0))
        else:
            at = live.index(-event)
            del live[at]
            steps.append(("free", at, 0))
    return steps


def main() -> None:
    streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(STREAMS - 1))]
    if sys.argv[1].endswith(".gz"):
        steps = recorded(sys.argv[1])
        result = compare(steps, streams, None)
        peak = torch.cuda.max_memory_reserved()
        print(json.dumps({"steps": len(steps), "peak_reserved_bytes": peak, **result}))
        sys.exit("step" in result)
    random_traces(streams)


def random_traces(streams: list[Any]) -> None:
    """Compare on random traces, as the command line says."""
    seed, traces, steps = map(int, sys.argv[1:4])
    fraction = None
    if len(sys.argv) > 4:
        fraction = int(sys.argv[4]) * MIB / torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(fraction)
    results = []
    for number in range(traces):
        results.append(compare(make_trace(random.Random(seed + number), steps), streams, fraction))
        if "step" in results[-1]:
            print(json.dumps({"seed": seed + number, "difference": results[-1]}))
            sys.exit(1)
    totals = {key: sum(result[key] for result in results) for key in results[0]}
    print(json.dumps({"traces": traces, "steps": traces * steps, **totals}))


if __name__ == "__main__":
    main()
