"""Calls that come again are executed as one under a profile too, which tells of each of them what it always told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import telegrad
from server.engine.device.launch_queue import LaunchQueue
from server.engine.profiling import recorder, stretch_notes
from server.engine.profiling.descriptions import Description
from server.engine.profiling.stretch_notes import Shares, Watch
from server.engine.profiling.traced_launches import LaunchLog, traced, untraced
from server.session.programs.noted_executions import NotedExecution
from telegrad_protocol.meta import CPU
from telegrad_protocol.tracing import recording

from ..support.captures import Again, simulate_captures
from .node_tracer import trace_devices, tracing_nodes
from .queued import queued_host

pytestmark = pytest.mark.usefixtures("gains_by_stretches")

ROUNDS = 7
STRETCH = "telegrad::stretch"


def _steps(tg: Any, x: Any) -> Any:
    """Calls of one result and of several, views, casts, and an operation that consists of others."""
    for _ in range(4):
        a, b = (x * 1.5).split(3, dim=1)
        x = tg.cat([a.sin(), b.double().to(x.dtype)], 1).transpose(0, 1).contiguous()
        x = tg.nn.functional.mse_loss(x, x.cos(), reduction="none")
    return x


def _rounds(tg: Any, x: Any, count: int = ROUNDS) -> list[np.ndarray[Any, Any]]:
    return [_steps(tg, x).numpy() for _ in range(count)]


def _batches(tg: Any) -> Any:
    return tg.ones(1)._session.transport._session._batches


def _told(profile: Any) -> list[Any]:
    """What a profile says of operations, but for times and numbers of tensors."""
    return [
        (
            event.name, event.input_shapes, event.concrete_inputs, tuple(event.stack[:3]),
            event.cpu_parent.name if event.cpu_parent is not None and event.cpu_parent.name != STRETCH else "",
        )
        for event in profile.events()
        if event.name.startswith("aten::")
    ]  # fmt: skip


def _profile(tg: Any, x: Any, count: int = ROUNDS, **options: Any) -> Any:
    with tg.profiler.profile(record_shapes=True, with_stack=True, **options) as profile:
        for found in _rounds(tg, x, count):
            np.testing.assert_array_equal(found, _expected[0])
    return profile


_expected: list[np.ndarray[Any, Any]] = []


@pytest.fixture
def x(tg: Any, rng: np.random.Generator) -> Any:
    x = tg.tensor(rng.standard_normal((6, 6)), dtype=tg.float32)
    _expected[:] = _rounds(tg, x, 1)
    return x


def test_each_call_is_told_as_it_is_where_none_comes_again(tg: Any, x: Any) -> None:
    batches = _batches(tg)
    before, batches.policy.cooldown = batches.policy.cooldown, 1 << 30
    expected = _told(_profile(tg, x))
    batches.policy.cooldown = before
    _profile(tg, x, 2 * ROUNDS)
    profile = _profile(tg, x)
    stretches = [event for event in profile.events() if event.name == STRETCH]
    assert ROUNDS - 2 < len(stretches) <= ROUNDS, "the first batch also frees what was left by the profile before"
    assert _told(profile) == expected
    inner = [event for event in profile.events() if event.name == "aten::sin"]
    assert [sum([event.cpu_parent is one for event in inner]) for one in stretches] == [4] * len(stretches)
    for stretch in stretches:
        parts = sorted(stretch.cpu_children, key=lambda event: event.time_range.start)
        assert stretch.time_range.start <= parts[0].time_range.start
        assert parts[-1].time_range.end <= stretch.time_range.end
        assert all(a.time_range.end <= b.time_range.start for a, b in pairwise(parts))


def test_kernels_of_a_stretch_that_is_launched_as_one_belong_to_its_operations(
    tg: Any, x: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Each has one step and so one node. Copies before and after the launch are operations of their own."""
    tracer = tracing_nodes(monkeypatch)
    trace_devices(monkeypatch, tracer)
    _profile(tg, x, 2 * ROUNDS)
    profile = _profile(tg, x)
    spans = profile.profiler.captured.timeline.spans
    stretches = [span for span in spans if span.name == STRETCH]
    launched = [stretch for stretch in stretches if any(_leaf(part).kernels for part in stretch.children)]
    assert len(launched) >= ROUNDS // 2
    for stretch in launched:
        parts = [_leaf(part) for part in stretch.children if "_foreach_copy_" not in part.name]
        assert [kernel.name for part in parts for kernel in part.kernels] == [f"node {n}" for n in range(len(parts))]
        assert {len(part.kernels) for part in parts} == {1}
        assert len(parts) == 40


def _leaf(span: Any) -> Any:
    """The operation that an operation consists of, or itself."""
    return _leaf(span.children[0]) if span.children else span


def test_calls_of_the_client_lead_to_those_of_a_stretch(tg: Any, x: Any) -> None:
    """The numbers of their results are the client's in each round."""
    _profile(tg, x, 2 * ROUNDS)
    profile = _profile(tg, x)
    captured = profile.profiler.captured
    noted = {call.out for call in captured.log.calls if call.name == "sin"}
    spans = [span.out for span in captured.timeline.spans if span.name == "aten::sin"]
    assert len(spans) == 4 * ROUNDS and set(spans) == noted


def test_a_second_profile_executes_as_one_what_the_first_has_recorded(tg: Any, x: Any) -> None:
    _profile(tg, x, 2 * ROUNDS)
    _rounds(tg, x)
    second = [event for event in _profile(tg, x, 2).events() if event.name == STRETCH]
    assert second and second[-1].cpu_children


def test_calls_are_executed_as_one_on_a_gpu_of_which_nothing_is_told() -> None:
    """Where the CPU alone is profiled there is no work of the GPU that could belong to the wrong operation."""
    with telegrad.connect(in_process=queued_host()[0]):
        x = telegrad.ones(6, 6)
        expected = _rounds(telegrad, x, 3 * ROUNDS)[0]
        activities = [telegrad.profiler.ProfilerActivity.CPU]
        with telegrad.profiler.profile(activities=activities) as profile:
            for found in _rounds(telegrad, x, 2 * ROUNDS):
                np.testing.assert_array_equal(found, expected)
        events = profile.events()
    assert sum([event.name == STRETCH for event in events]) > ROUNDS
    assert sum([event.name == "aten::sin" for event in events]) == 4 * 2 * ROUNDS
    assert not [event for event in events if event.device_type.name == "CUDA"]


def test_notes_count_as_no_nodes_of_the_backward_graph(tg: Any) -> None:
    """Of nodes the session is charged for each, and a batch that makes many is no stretch."""
    weight = tg.ones(2, requires_grad=True)
    account = weight._session.transport._session.state.host_memory

    def made() -> int:
        tg.cuda.synchronize()
        before = account.nodes
        (weight * 2 + 1).sum().detach().sin()
        tg.cuda.synchronize()
        return int(account.nodes - before)

    made()
    expected = made()
    with tg.profiler.profile():
        assert made() == made() == expected
    with tg.profiler.profile(profile_memory=True):
        assert made() == expected
    assert made() == expected


def test_where_memory_is_noted_each_operation_of_calls_that_come_again_has_its_own(
    tg: Any, x: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """They are executed as one, but not launched as one, since memory is known between two of them alone."""
    simulate_captures(monkeypatch)
    batches = _batches(tg)
    before, batches.policy.cooldown = batches.policy.cooldown, 1 << 30
    alone = _profile(tg, x, profile_memory=True)
    batches.policy.cooldown = before
    _profile(tg, x, 2 * ROUNDS, profile_memory=True)
    monkeypatch.setattr(Again, "launch", lambda self: pytest.fail("a step that is launched with others has no memory"))
    profile = _profile(tg, x, profile_memory=True)
    assert [event.name for event in profile.events()].count(STRETCH) > ROUNDS - 2
    told, expected = (_memory(one) for one in (profile, alone))
    assert told.keys() == expected.keys()
    assert told["aten::_to_copy"] == expected["aten::_to_copy"] and 0 not in told["aten::_to_copy"]
    assert sum(map(sum, told.values())) == sum(map(sum, expected.values()))


def _memory(profile: Any) -> dict[str, list[int]]:
    """By the names of operations: what each has allocated, less what was freed since the one before."""
    found: dict[str, list[int]] = {"": [0]}
    for event in profile.events():
        name = event.name if event.name.startswith("aten::") else ""
        found.setdefault(name, []).append(event.self_cpu_memory_usage)
    return {name: found[name] for name in found if name} | {"": [sum(found[""])]}


def test_calls_on_sizes_that_grow_are_told_with_the_sizes_of_each(tg: Any, rng: np.random.Generator) -> None:
    """Without a profile they are executed as one by then."""
    x = tg.tensor(rng.standard_normal((2, 3)), dtype=tg.float32)

    def grown(first: int, last: int) -> None:
        cache = x[:1].expand(first, 3).contiguous()
        for _ in range(first, last):
            y = cache
            for _ in range(5):
                y = y.sin() * 1.5
            cache = tg.cat([cache, y[:1]])
            cache.sum().item()

    grown(1, 12)
    with tg.profiler.profile(record_shapes=True) as profile:
        grown(12, 24)
    shapes = [event.input_shapes[0] for event in profile.events() if event.name == "aten::sin"]
    assert shapes == [[rows, 3] for rows in range(12, 24) for _ in range(5)]


def test_no_event_is_lost_where_notes_are_packed_in_the_middle(
    tg: Any, x: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Then the calls are recorded another time."""
    full = int(rng.integers(10, 60)) * recorder.COLUMNS
    for module in (recorder, stretch_notes):
        monkeypatch.setattr(module, "FULL", full)
    profile = _profile(tg, x, 8 * ROUNDS)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["aten::sin"] == counts["aten::cat"] == 4 * 8 * ROUNDS


def test_a_profile_that_is_full_leaves_calls_as_they_are(
    tg: Any, x: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(recorder, "MOST_BYTES", recorder.CHUNK_ROWS * recorder.COLUMNS * 8)
    rounds = recorder.CHUNK_ROWS // 20
    with pytest.warns(UserWarning, match="limit"):
        _profile(tg, x, rounds)
    for found in _rounds(tg, x):
        np.testing.assert_array_equal(found, _expected[0])


def _watched(rows: list[tuple[str, int, int, int]], times: list[int]) -> tuple[Any, Watch]:
    """A recorder's stand-in and what has watched events of these names, times and results."""
    notes = SimpleNamespace(pending=[], undrawn=0, with_memory=False, spill=lambda: None)
    watch = Watch(notes)  # type: ignore[arg-type]
    for name, begin, end, out in rows:
        notes.pending += [Description(recording.OPERATION, name), begin, end, 5, out, 0, 0, 1]
    notes.pending += [Description(recording.FRAME, "frame"), 17, 17, 0, 0, 99, 0, 1]
    watch.times += times
    return notes, watch


def _events(notes: Any) -> list[tuple[Any, ...]]:
    rows = [recording.EventRow(*notes.pending[at : at + 8]) for at in range(0, len(notes.pending), 8)]
    return [(row.descriptor.name, row.begin, row.end, row.out, row.first, row.launches) for row in rows]


def test_calls_are_looked_at_with_room_for_their_events(rng: np.random.Generator) -> None:
    """A loop may note as many events in each round as are packed at once, in the midst of the same calls."""
    notes = SimpleNamespace(
        pending=[0] * (recorder.FULL - int(rng.integers(1, 20)) * recorder.COLUMNS), with_memory=False
    )
    notes.spill = lambda: setattr(notes, "pending", [])
    watch = Watch(notes)  # type: ignore[arg-type]
    notes.pending += [0] * 20 * recorder.COLUMNS
    if len(notes.pending) >= recorder.FULL:
        notes.spill()
    assert watch.is_whole


def test_operations_have_the_times_and_launches_of_their_steps() -> None:
    """The second consists of two others, and the last is executed in no time."""
    notes, watch = _watched(
        [("a", 10, 20, 70), ("b", 31, 40, 71), ("c", 41, 50, 71), ("whole", 30, 51, 71), ("none", 60, 61, 0)],
        [15, 35, 45],
    )
    told = watch.notes([3, 70, 71])
    notes.pending.clear()
    told.note(notes, [3, 80, 81], SimpleNamespace(starts=[100, 110, 135], ends=[110, 130, 140], counts=[7, 8, 8, 11]))
    assert _events(notes) == [
        ("a", 100, 110, 80, 7, 1), ("b", 110, 130, 81, 8, 0), ("c", 135, 140, 81, 8, 3),
        ("whole", 110, 140, 81, 8, 3), ("none", 140, 140, 0, 11, 0),
    ]  # fmt: skip


def test_steps_of_one_launch_have_equal_shares_and_the_nodes_of_the_graph() -> None:
    shares = Shares.of(3, 1000, 1300, 40, [5, 6, 6, 8])
    assert shares == Shares([1000, 1100, 1200], [1100, 1200, 1300], [40, 41, 41, 43])
    assert Shares.of(2, 10, 20, 3, []).counts == [3, 3, 3]


class _Launched:
    """An execution that is launched as one graph, between copies that are launched as others."""

    def __init__(self, log: LaunchLog, queue: LaunchQueue, work: Callable[[], None]) -> None:
        self._log, self._queue, self._work = log, queue, work

    def advance(self, stop: Any) -> bool:
        self._work()
        self._queue.flush()
        self._log.note_graph(recorder.now(), (2, 3, 3, 6))
        self._work()
        self._queue.flush()
        return True


def test_the_launches_of_a_graph_are_numbered_after_those_before_it() -> None:
    """Those that wait while it is launched are made first, by a graph that is somebody else's."""
    queue = LaunchQueue(lambda stream, work: None, lambda stream: True)
    log = traced(queue, waits=True)
    try:
        queue.allow()
        submit = queue.deferring(lambda args, outs: queue.launch(lambda stream: log.note_graph(0, (0, 4)), 0))
        executable = SimpleNamespace(device=CPU, notes=SimpleNamespace(steps=3))  # what notes them is known
        notes = SimpleNamespace(logs={0: log}, executed=None)
        execution: Any = _Launched(log, queue, lambda: submit(None, None))
        assert NotedExecution(notes, executable, execution).advance()  # type: ignore[arg-type]
        _, shares, _ = notes.executed
        assert shares.counts == [1, 2, 2, 5] and log.made == 6
        rows = [tuple(log.rows[place + 2 : place + 4]) for place in range(0, len(log.rows), 4)]
        assert rows == [(0, 1), (1, 4), (5, 1)]
        assert (shares.starts[0], shares.ends[-1]) == tuple(log.rows[4:6])
        log.note_graph(0, (0, 4))
        assert log.made == 6, "of a graph that nobody expects it is not known what it launches"
    finally:
        untraced(queue)
