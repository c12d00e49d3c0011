"""What a session notes while it is profiled, asked for by messages: rows, bounds, and what hostile clients can do."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from server.engine import context
from server.engine.autograd.node import OpNode
from server.engine.profiling import recorder
from server.engine.profiling.descriptions import Description
from server.engine.profiling.kernel import noting
from server.engine.profiling.traced_launches import LaunchLog
from telegrad_protocol.messages import Answer, Call, Detach, Failure, Free, Mode, Query, Resume, Site
from telegrad_protocol.meta import CPU, Device
from telegrad_protocol.ops import TABLE
from telegrad_protocol.tracing import recording

from .driver import ONES, Talk, call

MOST = 64 << 20


def _start(talk: Talk, limit: int = MOST, memory: bool = False) -> Any:
    return talk.send(Query(1, "start_profile", [memory, True, limit]))[0]


def _stop(talk: Talk) -> recording.Recording:
    (answer,) = talk.send(Query(2, "stop_profile", []))
    assert isinstance(answer, Answer), answer
    value = talk.session.state.values.pop(answer.value)
    return recording.decode(value.array.tobytes())


def _names(recorded: recording.Recording) -> list[str]:
    return [recorded.descriptors[row.descriptor].name for row in recorded.rows()]


def test_rows_say_what_was_executed_when_and_for_which_line(talk: Talk) -> None:
    talk.upload(1, ONES)
    talk.send(Site(5, "program.py", 12, "step"))
    clock = _start(talk).value
    talk.send(Mode("range", [9, "part"]), Call(TABLE["mul"].index, 5, (2,), [1, 1]), Mode("range", [9]))
    recorded = _stop(talk)
    rows = {recorded.descriptors[row.descriptor].name: row for row in recorded.rows()}
    mul, part = rows["mul"], rows["part"]
    assert clock <= part.begin <= mul.begin <= mul.end <= part.end <= recorded.ended
    assert (mul.site, mul.out) == (5, 2) and recorded.sites == [recording.SiteName(5, "program.py", 12, "step")]
    assert recorded.descriptors[mul.descriptor].shapes == [[2, 3], [2, 3]]
    assert recorded.descriptors[mul.descriptor].dtypes == ["float32", "float32"]
    assert not recorded.dropped and not recorded.message
    assert OpNode.apply.__name__ == "apply", "passes note nothing once no session is profiled"
    assert not talk.session.state.plain_handlers


def test_rows_name_the_first_result_or_what_is_written_into(talk: Talk) -> None:
    talk.upload(1, ONES)
    talk.upload(2, ONES)
    _start(talk)
    talk.send(
        Call(TABLE["mul"].index, 5, (3,), [1, 2]), Call(TABLE["add_"].index, 6, (), [2, 1, 1]),
        Call(TABLE["unbind"].index, 7, (4, 5), [1, 0]), Call(TABLE["_foreach_zero_"].index, 8, (), [[2, 1]]),
    )  # fmt: skip
    recorded = _stop(talk)
    outs = {recorded.descriptors[row.descriptor].name: (row.site, row.out) for row in recorded.rows() if row.site}
    assert (outs["mul"], outs["add_"], outs["unbind"]) == ((5, 3), (6, -2), (7, 4))
    assert outs["_foreach_zero_"] == (8, -2)


def test_operations_on_a_gpu_that_nothing_traces_are_noted_without_launches(talk: Talk) -> None:
    """This is a profile of the host alone, where a session has a GPU."""
    talk.upload(1, ONES)
    _start(talk)
    described = Description(recording.OPERATION, "exp", device=1)
    state = talk.session.state
    context.activate(state.context)
    assert noting(described, lambda args: args[0], Device("cuda:1"))((7,)) == 7
    (row,) = [row for row in recorded_rows(talk) if row[0].name == "exp"]
    assert row[0].device == 1 and (row[1].first, row[1].launches) == (0, 0)


def test_operations_have_the_numbers_of_the_launches_that_they_have_asked_for(talk: Talk) -> None:
    """Some wait already, some are made meanwhile, and some wait at the end."""
    _start(talk)
    log = LaunchLog([_launch, _launch])
    talk.session.state.context.profiler.logs[0] = log
    context.activate(talk.session.state.context)

    def work(args: Any) -> None:
        log.waiting.clear()
        log.note(0, 2)
        log.waiting.extend([_launch] * 3)

    noting(Description(recording.OPERATION, "exp"), work, Device("cuda:0"))(())
    (row,) = [row for descriptor, row in recorded_rows(talk) if descriptor.name == "exp"]
    assert (row.first, row.launches, log.made) == (2, 3, 2)


def test_operations_between_events_have_the_numbers_of_their_pairs_and_memory(talk: Talk) -> None:
    """The second one fails, and the third is captured, for which no events are recorded."""
    _start(talk)
    profiler, looks = talk.session.state.context.profiler, list[int]()
    tracer = _Pairs([0, 1, -1])
    profiler.tracers[Device("cuda:0")] = tracer
    profiler.with_memory, profiler.due, profiler.note_memory = True, 0, lambda: looks.append(1)
    context.activate(talk.session.state.context)
    run = noting(Description(recording.OPERATION, "exp"), lambda args: 1 // args[0], Device("cuda:0"))
    assert run((1,)) == 1
    with pytest.raises(ZeroDivisionError):
        run((0,))
    assert run((1,)) == 1
    rows = [row for descriptor, row in recorded_rows(talk) if descriptor.name == "exp"]
    assert [(row.first, row.launches) for row in rows] == [(0, 1), (1, 1), (-1, 0)]
    assert len(looks) == 3 and not tracer.numbers


class _Pairs:
    """A tracer that numbers pairs of events as it is told."""

    log = None

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers

    def begin(self) -> int:
        return self.numbers.pop(0)

    def end(self, first: int) -> int:
        return int(first >= 0)

    def result(self, began: int, ended: int, is_final: bool = True) -> recording.DeviceWork:
        return recording.DeviceWork(0, recording.EVENT_TIMES, "", [], b"", b"", b"", {})

    def stop(self) -> None:
        """There is nothing to stop."""

    def release(self) -> None:
        """There is nothing to release."""


_launch: Any = (print, 0)


def recorded_rows(talk: Talk) -> list[tuple[recording.Descriptor, recording.EventRow]]:
    recorded = _stop(talk)
    return [(recorded.descriptors[row.descriptor], row) for row in recorded.rows()]


def test_questions_out_of_place_are_refused(talk: Talk) -> None:
    (refused,) = talk.send(Query(1, "stop_profile", []))
    assert isinstance(refused, Failure) and "not profiled" in refused.message
    talk.send(_resume(refused))
    for limit in (0, 1 << 40, -5):
        refused = _start(talk, limit)
        assert isinstance(refused, Failure) and "expected a limit" in refused.message
        talk.send(_resume(refused))
    assert isinstance(_start(talk), Answer)
    again = _start(talk)
    assert isinstance(again, Failure) and "profiled already" in again.message
    talk.send(_resume(again))
    for mark in ([], ["one", "two"], [1, 2], 7, None):
        (failure,) = talk.send(Mode("range", mark))
        assert isinstance(failure, Failure) and "unknown mode 'range'" in failure.message
        talk.send(_resume(failure))
    assert _stop(talk)


def _resume(failure: Any) -> Any:
    return Resume(failure.number)


def test_the_trace_is_charged_to_the_session_and_bounded(open_talk: Callable[..., Talk]) -> None:
    talk = open_talk(quota_bytes=3 << 20)
    talk.upload(1, ONES)
    assert isinstance(_start(talk), Answer)
    allocator = talk.session.state.backends[CPU].allocator
    before = allocator.allocated_bytes(talk.number)
    calls = [Call(TABLE["mul"].index, 0, (2,), [1, 1])] * 2000
    for _ in range(30):
        talk.send(*calls)
    taken = allocator.allocated_bytes(talk.number) - before
    assert 1 << 20 < taken <= 3 << 20
    recorded = _stop(talk)
    assert "quota has no room for its trace" in recorded.message and recorded.dropped > 1000
    assert isinstance(talk.send(Query(3, "tensor_count", []))[0], Answer), "the session goes on"
    talk.send(*calls)
    assert allocator.allocated_bytes(talk.number) <= before + 4096, "and nothing of the trace is left"


def test_a_session_without_room_for_a_trace_is_told(open_talk: Callable[..., Talk]) -> None:
    talk = open_talk(quota_bytes=600)
    talk.upload(1, ONES)
    _start(talk)
    talk.send(*[Call(TABLE["add_"].index, 0, (), [1, 1, 1])] * 5)
    (answer,) = talk.send(Query(2, "stop_profile", []))
    assert isinstance(answer, Answer) and answer.value is None
    np.testing.assert_array_equal(talk.read(1), np.full((2, 3), 2.0**5, np.float32))


def test_names_numbers_and_depths_of_clients_take_a_bounded_memory(talk: Talk) -> None:
    talk.upload(1, ONES)
    _start(talk)
    largest = (1 << 64) - 1
    talk.send(Call(TABLE["mul"].index, largest, (largest,), [1, 1]))
    tracemalloc.start()
    try:
        for round in range(20):
            marks = [Mode("range", [round * 1000 + n, f"{round}-{n}" + "x" * 5000]) for n in range(500)]
            talk.send(*marks, *[Mode("range", [round * 1000 + n]) for n in range(500)])
        talk.send(*[Mode("range", [n, "deep"]) for n in range(5000)])
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 16 << 20
    recorded = _stop(talk)
    assert max(map(len, _names(recorded))) <= recorder.LONGEST_NAME
    assert len(recorded.descriptors) <= recorder.MOST_NAMES + 50
    assert "(other names)" in _names(recorded)
    assert _names(recorded).count("deep") <= recorder.MOST_OPEN_RANGES


def test_large_instructions_are_not_kept(talk: Talk) -> None:
    _start(talk)
    tracemalloc.start()
    try:
        for id in range(1, 400):
            talk.upload(id, np.ones((1 << 13,), np.float32))
            talk.send(Free([id]))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 4 << 20
    assert "telegrad::upload" in _names(_stop(talk))


def test_a_failed_operation_and_its_followers_are_noted_no_further(talk: Talk) -> None:
    talk.upload(1, ONES)
    _start(talk)
    failure, *_ = talk.send(call("mul", 2, 99, 1), call("add", 3, 1, 1, 1))
    assert isinstance(failure, Failure)
    talk.send(_resume(failure))
    names = _names(_stop(talk))
    assert "add" not in names


@pytest.mark.parametrize("ends", ["close", "detach"])
def test_a_profile_ends_with_its_client(open_talk: Callable[..., Talk], ends: str) -> None:
    talk = open_talk()
    talk.upload(1, ONES)
    _start(talk)
    talk.send(Call(TABLE["mul"].index, 0, (2,), [1, 1]))
    if ends == "close":
        talk.session.close()
    else:
        talk.send(Detach())
        assert talk.session.state.context.profiler is None
    assert OpNode.apply.__name__ == "apply"
