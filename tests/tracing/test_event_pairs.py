"""Times between events, on a fake of CUDA's runtime: what cannot be read spoils nothing else; captures have none."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from server.engine.device import cuda_graphs
from server.engine.device.cuda_graphs import CudaGraph
from server.engine.device.launch_queue import LaunchQueue
from server.engine.profiling import cuda_work, event_pairs
from server.engine.profiling.cuda_work import EventTracer
from server.engine.profiling.event_pairs import EventPairs
from telegrad_protocol.meta import Device

STREAM, OTHER = 7, 8
ROW = 12
"""The numbers of a row of ``DeviceWork.kernels``."""


class RefusedError(Exception):
    """What CUDA finds wrong."""


class FakeRuntime:
    """Streams that reach an event at once, a millisecond after the one before; those being captured reach none."""

    streamCaptureModeThreadLocal = 2
    CUDARuntimeError = RefusedError

    def __init__(self) -> None:
        self.device, self.made, self.clock = 0, 0, 0.0
        self.reached: dict[int, float | None] = {}
        """When events were reached that exist, in milliseconds; None for what cannot be read."""
        self.recorded_on: list[tuple[int, int]] = []
        """The current GPU and the stream of each record."""
        self.capturing: set[int] = set()
        self.refuses = False
        self._handles = count(1)

    def getDevice(self) -> int:
        return self.device

    def setDevice(self, index: int) -> None:
        self.device = index

    def eventCreateWithFlags(self, flags: int) -> int:
        assert not flags, "an event without timing tells none"
        self.made += 1
        handle = next(self._handles)
        self.reached[handle] = None
        return handle

    def eventDestroy(self, event: int) -> None:
        del self.reached[event]

    def eventRecord(self, event: int, stream: int) -> None:
        if self.refuses:
            raise RefusedError("cudaErrorInvalidValue")
        self.clock += 1
        self.recorded_on.append((self.device, stream))
        self.reached[event] = None if stream in self.capturing else self.clock

    def eventQuery(self, event: int) -> int:
        return 600 if self.reached[event] is None else 0

    def eventSynchronize(self, event: int) -> None:
        if self.reached[event] is None:
            raise RefusedError("cudaErrorInvalidValue")

    def eventElapsedTime(self, first: int, last: int) -> float:
        begin, end = self.reached[first], self.reached[last]
        if begin is None or end is None:
            raise RefusedError("cudaErrorInvalidValue")
        return end - begin

    def streamBeginCapture(self, stream: int, mode: int) -> None:
        self.capturing.add(stream)

    def streamEndCapture(self, stream: int) -> int:
        self.capturing.remove(stream)
        return 99

    def graphInstantiate(self, graph: int) -> int:
        return graph + 1

    def graphDestroy(self, graph: int) -> None:
        """There is nothing to destroy."""

    def graphExecDestroy(self, graph: int) -> None:
        """There is nothing to destroy."""

    def graphLaunch(self, graph: int, stream: int) -> None:
        self.clock += 10

    def getDeviceCount(self) -> int:
        return 1

    def getDeviceProperties(self, index: int) -> dict[str, Any]:
        return {"name": b"GPU"}


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRuntime]:
    """A runtime that the modules concerned have for CUDA's, and no events of earlier tests."""
    made = FakeRuntime()
    monkeypatch.setattr(event_pairs, "_free", {})
    monkeypatch.setattr(cuda_work, "runtime", made)
    monkeypatch.setattr(cuda_graphs, "runtime", made)
    monkeypatch.setattr(cuda_graphs, "_nodes_of", lambda graph: 1)
    yield made
    assert not made.capturing and not CudaGraph.is_capturing


@pytest.fixture
def tracer(runtime: FakeRuntime) -> Iterator[EventTracer]:
    queue = LaunchQueue(CudaGraph.of, lambda stream: True)
    backend: Any = SimpleNamespace(index=0, device=Device("cuda:0"), launches=queue, stream=STREAM)
    made = EventTracer(backend, SimpleNamespace(own_streams=None), "there is no CUPTI here")  # type: ignore[arg-type]
    yield made
    made.release()
    assert type(queue) is LaunchQueue


def times(pairs: EventPairs, base: int, waits: bool = True) -> dict[int, tuple[int, int, int]]:
    """The stream, begin and end of pairs, in milliseconds after the base."""
    found = pairs.times(base, waits)
    return {number: (stream, begin // 10**6, end // 10**6) for number, stream, begin, end in found}


def rows(work: Any) -> list[tuple[int, ...]]:
    """The rows of what a device did."""
    numbers = array("q", work.kernels)
    return [tuple(numbers[place : place + ROW]) for place in range(0, len(numbers), ROW)]


def test_pairs_have_the_times_at_which_their_streams_came_to_them(runtime: FakeRuntime) -> None:
    pairs = EventPairs(runtime, 0)
    base = pairs.base(STREAM)
    outer = pairs.begin(STREAM)
    inner = pairs.begin(OTHER)
    assert pairs.end(inner, OTHER) and pairs.end(outer, STREAM)
    pairs.begin(STREAM)  # it is still open
    assert times(pairs, base) == {outer: (STREAM, 1, 4), inner: (OTHER, 2, 3)}
    assert pairs.dropped == 0


def test_one_event_that_cannot_be_read_loses_no_other_pair(runtime: FakeRuntime, seed: int) -> None:
    pairs = EventPairs(runtime, 0)
    base = pairs.base(STREAM)
    draw = random.Random(seed)
    captured = {number for number in range(40) if draw.random() < 0.3} | {11}
    for number in range(40):
        if number in captured:
            runtime.capturing.add(STREAM)
        pairs.end(pairs.begin(STREAM), STREAM)
        runtime.capturing.clear()
    assert set(times(pairs, base, waits=False)) == set(range(40)) - captured
    assert pairs.dropped == 0, "they may be told later"
    assert set(times(pairs, base)) == set(range(40)) - captured
    assert pairs.dropped == len(captured)


def test_an_event_that_cannot_be_recorded_fails_no_operation(runtime: FakeRuntime) -> None:
    pairs = EventPairs(runtime, 0)
    base = pairs.base(STREAM)
    first = pairs.begin(STREAM)
    runtime.refuses = True
    assert pairs.begin(STREAM) == -1
    assert not pairs.end(first, STREAM)
    runtime.refuses = False
    whole = pairs.begin(STREAM)
    assert pairs.end(whole, STREAM)
    assert list(times(pairs, base)) == [whole] and pairs.dropped == 2


def test_events_are_used_again_and_those_of_a_failure_are_not(runtime: FakeRuntime) -> None:
    for _ in range(5):
        pairs = EventPairs(runtime, 0)
        base = pairs.base(STREAM)
        for _ in range(1000):
            pairs.end(pairs.begin(STREAM), STREAM)
        assert len(times(pairs, base)) == 1000
        pairs.release(base)
    once = runtime.made
    assert once < 2001 + 2 * event_pairs._MADE_AT_ONCE
    pairs = EventPairs(runtime, 0)
    base = pairs.base(STREAM)
    runtime.capturing.add(STREAM)
    pairs.end(pairs.begin(STREAM), STREAM)
    runtime.capturing.clear()
    assert not times(pairs, base)
    pairs.release(base)
    assert len(runtime.reached) == runtime.made - 2
    assert sorted(event_pairs._free[0]) == sorted(runtime.reached), "each event is kept once"


def test_only_so_many_pairs_are_taken_and_events_kept(runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_pairs, "MOST_PAIRS", 600)
    monkeypatch.setattr(event_pairs, "MOST_FREE", 300)
    pairs = EventPairs(runtime, 0)
    base = pairs.base(STREAM)
    begun = [pairs.begin(STREAM) for _ in range(700)]
    assert begun == [*range(600), *[-1] * 100] and pairs.dropped == 100
    pairs.release(base)
    assert len(event_pairs._free[0]) == len(runtime.reached) == 300


def test_events_belong_to_their_gpu_and_default_streams_are_those_of_it(runtime: FakeRuntime) -> None:
    """A raw stream says itself on which GPU it is, so no other one is made current for it."""
    pairs = EventPairs(runtime, 3)
    for stream in (0, 2, STREAM):
        pairs.end(pairs.begin(stream), stream)
    assert runtime.recorded_on == [(3, 0), (3, 0), (3, 2), (3, 2), (0, STREAM), (0, STREAM)]
    assert runtime.device == 0 and list(event_pairs._free) == [3]


def test_operations_that_are_captured_get_no_events(runtime: FakeRuntime, tracer: EventTracer) -> None:
    around = tracer.begin()

    def work() -> bool:
        first = tracer.begin()
        assert (first, tracer.end(first)) == (-1, 0)
        return True

    assert CudaGraph.of(STREAM, work) is not None
    assert tracer.end(around) == 1
    after = tracer.begin()
    assert tracer.end(after) == 1
    work_done = tracer.result(0, 1)
    assert [row[4] for row in rows(work_done)] == [around, after]
    assert work_done.dropped == 0, "what was not executed is not missing"


def test_an_operation_that_ends_within_a_capture_is_counted_as_dropped(
    runtime: FakeRuntime, tracer: EventTracer
) -> None:
    first = tracer.begin()
    CudaGraph.of(STREAM, lambda: not tracer.end(first))
    work_done = tracer.result(0, 1)
    assert not rows(work_done) and work_done.dropped == 1


def test_a_capture_that_fails_leaves_events_to_later_operations(runtime: FakeRuntime, tracer: EventTracer) -> None:
    def work() -> bool:
        raise RefusedError("cudaErrorStreamCaptureUnsupported")

    assert CudaGraph.of(STREAM, work) is None
    assert tracer.end(tracer.begin()) == 1
    assert len(rows(tracer.result(0, 1))) == 1


def test_a_result_in_between_leaves_all_pairs_for_the_last_one(runtime: FakeRuntime, tracer: EventTracer) -> None:
    for _ in range(3):
        tracer.end(tracer.begin())
    first = rows(tracer.result(0, 1, is_final=False))
    tracer.end(tracer.begin())
    assert rows(tracer.result(0, 1))[:3] == first and len(first) == 3
