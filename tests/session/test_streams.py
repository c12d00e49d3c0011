"""Streams and events: what runs where, what waits for what, and that nobody blocks; on a device that writes it down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import telegrad
from telegrad_protocol.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceError,
    NotSupportedError,
    ProtocolError,
    TelegradError,
)
from telegrad_protocol.messages import Mode, RecordEvent

from .queued import GPU, QueuedBackend, queued_host


@pytest.fixture
def queues() -> Iterator[QueuedBackend]:
    """The device of the current session."""
    host, backend = queued_host()
    backend.forget()
    with telegrad.connect(in_process=host):
        yield backend
    assert not backend.allocator.allocated_bytes(0)
    assert sorted(backend.pool.returned) == sorted(backend.pool.priorities), "a session gives its streams back"


def _session() -> Any:
    session = telegrad._session.current.current_session()
    session.flush()
    return session


def _engine() -> Any:
    return _session().transport._session


def _stream_of(tensor: Any) -> int:
    """The stream that a tensor's memory was allocated for."""
    return int(_engine().state.value(tensor._id).storage.block.stream)


def _raw(stream: Any) -> int:
    return int(_engine().state.context.own_streams.opened[GPU][stream.stream_id])


def test_operations_uploads_and_reads_run_on_the_current_stream(queues: QueuedBackend) -> None:
    s = telegrad.cuda.Stream()
    before = telegrad.ones(3)
    with telegrad.cuda.stream(s):
        assert telegrad.cuda.current_stream() == s
        made, sent = telegrad.ones(3), telegrad.tensor([1.0, 2.0])
        large = telegrad.tensor(np.zeros(1 << 17, np.float32))
        assert _engine().state.context.streams[GPU] == _raw(s)
        np.testing.assert_array_equal((sent * 2).numpy(), [2, 4])
        assert _engine().state.context.streams[GPU] == _raw(s)
    after = before + 1
    assert {_stream_of(made), _stream_of(sent), _stream_of(large)} == {_raw(s)}
    assert _stream_of(before) == _stream_of(after) == _raw(telegrad.cuda.default_stream()) != _raw(s)
    assert telegrad.cuda.current_stream() == telegrad.cuda.default_stream()


def test_a_read_under_a_stream_runs_on_it_though_nothing_else_did(queues: QueuedBackend) -> None:
    s, x = telegrad.cuda.Stream(), telegrad.ones(3)
    _session()
    with telegrad.cuda.stream(s):
        x.numpy()
        assert _engine().state.context.streams[GPU] == _raw(s)


def test_blocks_nest_and_end_with_exceptions(queues: QueuedBackend) -> None:
    first, second = telegrad.cuda.Stream(), telegrad.cuda.Stream()
    with first:
        with pytest.raises(ZeroDivisionError), telegrad.cuda.stream(second):
            _ = 1 / 0
        with telegrad.cuda.stream(None), second:
            assert telegrad.cuda.current_stream() == second
        assert telegrad.cuda.current_stream() == first
    assert telegrad.cuda.current_stream().stream_id == 0
    telegrad.cuda.set_stream(first)
    assert telegrad.cuda.current_stream() == first
    telegrad.cuda.set_stream(telegrad.cuda.default_stream())
    telegrad.cuda.set_stream(None)
    assert telegrad.cuda.current_stream() == telegrad.cuda.default_stream("cuda:7")


def test_there_are_a_few_streams_per_priority_in_turn(queues: QueuedBackend) -> None:
    streams = [telegrad.cuda.Stream(priority=p) for p in (0, -1, -2, -3) for _ in range(40)]
    assert len(set(streams)) == 128
    assert [s.priority for s in streams[::40]] == [0, -1, -2, -3]
    assert telegrad.cuda.Stream(priority=-9).priority == -3
    assert telegrad.cuda.Stream(priority=2).priority == 0
    assert telegrad.cuda.Stream.priority_range() == (0, -3)
    assert repr(streams[0]) == "<telegrad.cuda.Stream device=cuda:7 stream_id=1>"
    with streams[45]:
        telegrad.ones(1)
    assert queues.pool.priorities[_raw(streams[45])] == -1
    assert len(queues.pool.priorities) <= 3, "streams are opened when they are used"


def test_streams_wait_for_streams_and_events(queues: QueuedBackend) -> None:
    first, second = telegrad.cuda.Stream(), telegrad.cuda.Stream()
    event = telegrad.cuda.Event()
    event.wait(first)  # never recorded: no reason to wait
    second.wait_stream(first)
    with first:
        event.record()
    event.wait(second)
    telegrad.cuda.default_stream().wait_event(event)
    _session()
    waited, shared = queues.events
    assert (waited.recorded, waited.held) == ([_raw(first)], [_raw(second)])
    assert (shared.recorded, shared.held) == ([_raw(first)], [_raw(second), _raw(telegrad.cuda.default_stream())])
    assert event.device == GPU


def test_waiting_and_asking_is_answered_when_the_device_has_come_that_far(queues: QueuedBackend) -> None:
    queues.delay = 5
    s = telegrad.cuda.Stream()
    start, end = (telegrad.cuda.Event(enable_timing=True) for _ in range(2))
    trips = _session().round_trips
    start.record(s)
    end.record(s)
    assert not end.query()
    assert start.elapsed_time(end) == 2.5
    assert end.query()
    end.synchronize()
    assert not s.query()
    s.synchronize()
    telegrad.cuda.synchronize()
    assert _session().round_trips == trips + 7


def test_the_worker_goes_on_while_somebody_waits(queues: QueuedBackend) -> None:
    from telegrad_protocol.messages import Query

    queues.delay = 1 << 30
    event = telegrad.cuda.Event()
    event.record()
    session, engine = _session(), _engine()
    session.submit(Query(10**6, "event_synchronize", [event._id]))
    after = telegrad.ones(2) + 1
    _session()
    assert engine.waits
    assert engine.state.value(after._id).array.tolist() == [2, 2]
    queues.delay = queues.events[0]._left = 0  # the end of the session waits for the device, too
    engine.poll()
    assert not engine.waits


def test_synchronize_waits_for_all_streams_of_the_device(queues: QueuedBackend) -> None:
    s = telegrad.cuda.Stream()
    with s:
        telegrad.ones(1)
    telegrad.ones(1)
    telegrad.cuda.synchronize("cuda:7")
    waited = {event.recorded[0] for event in queues.events}
    assert {_raw(s), _raw(telegrad.cuda.default_stream())} <= waited


def test_an_event_is_gone_with_its_object(queues: QueuedBackend) -> None:
    event = telegrad.cuda.Event()
    event.record()
    _session()
    assert len(_engine().state.events) == 1
    del event
    assert telegrad.ones(1).item() == 1
    assert not _engine().state.events


def test_memory_is_held_back_for_streams_that_use_it(queues: QueuedBackend) -> None:
    s, x = telegrad.cuda.Stream(), telegrad.ones(3)
    x.record_stream(s)
    _session()
    assert queues.held_back == [(_raw(telegrad.cuda.default_stream()), _raw(s))]


def _passes() -> dict[str, Any]:
    """A forward pass on two streams, and the gradients by name."""
    w = telegrad.full((3,), 2.0, requires_grad=True)
    s = telegrad.cuda.Stream()
    a = w * 3
    s.wait_stream(telegrad.cuda.current_stream())
    with s:
        b = a * a
    telegrad.cuda.current_stream().wait_stream(s)
    return {"w": w, "s": s, "a": a, "b": b, "loss": (a + b).sum()}


def test_backward_runs_on_the_streams_of_the_forward_pass(queues: QueuedBackend) -> None:
    found = _passes()
    home, side = _raw(telegrad.cuda.default_stream()), _raw(found["s"])
    queues.pool.used.clear()
    queues.pool.joins.clear()
    queues.held_back.clear()
    found["loss"].backward()
    _session()
    assert side in queues.pool.used
    assert queues.pool.joins[0] == (home, side), "the square's gradient waits for what it comes from"
    assert queues.pool.joins[-1] == (side, home), "what follows waits, and so does the caller in the end"
    assert (side, home) in queues.held_back
    assert _engine().state.context.streams[GPU] == home
    np.testing.assert_array_equal(found["w"].grad.numpy(), np.full(3, 3 + 2 * 9 * 2, np.float32))


def test_gradients_on_request_come_to_the_callers_stream(queues: QueuedBackend) -> None:
    found = _passes()
    other = telegrad.cuda.Stream()
    with other:
        gradient, at_b = telegrad.autograd.grad(found["loss"], [found["w"], found["b"]])
        _session()
        assert {consumer for _, consumer in queues.pool.joins[-2:]} == {_raw(other)}
        np.testing.assert_array_equal(gradient.numpy(), np.full(3, 39, np.float32))
        np.testing.assert_array_equal(at_b.numpy(), np.ones(3, np.float32))


def test_a_pass_that_fails_returns_to_the_callers_stream(queues: QueuedBackend) -> None:
    found = _passes()
    found["loss"].backward()
    with pytest.raises(TelegradError):
        found["loss"].backward()
        telegrad.cuda.synchronize()
    assert _engine().state.context.streams[GPU] == _raw(telegrad.cuda.default_stream())


def test_passes_on_one_stream_join_nothing(queues: QueuedBackend) -> None:
    w = telegrad.ones(3, requires_grad=True)
    (w * w).sum().backward()
    _session()
    assert not queues.pool.joins


def test_nodes_from_long_ago_wait_for_all_streams(queues: QueuedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    from server.engine.device import streams

    monkeypatch.setattr(streams, "_KEPT_CHANGES", 4)
    found = _passes()
    for _ in range(20):
        with found["s"]:
            telegrad.ones(1, requires_grad=True).mul(2)
        telegrad.ones(1, requires_grad=True).mul(2)
    _session()
    queues.pool.joins.clear()
    found["loss"].backward()
    _session()
    assert (_raw(found["s"]), _raw(telegrad.cuda.default_stream())) in queues.pool.joins
    np.testing.assert_array_equal(found["w"].grad.numpy(), np.full(3, 39, np.float32))


def test_casts_are_kept_by_stream(queues: QueuedBackend) -> None:
    w, s = telegrad.ones(2, 2, requires_grad=True), telegrad.cuda.Stream()
    with telegrad.autocast("cuda"):
        _ = w @ w
        with s:
            _ = w @ w
        _session()
        assert len(_engine().state.context.casts) == 2


def test_einsum_is_cast_as_one(queues: QueuedBackend) -> None:
    full, half = telegrad.ones(2, 2), telegrad.ones(2, 2).half()
    with telegrad.autocast("cuda"):
        assert telegrad.einsum("ij,ij->ij", full, full).dtype is telegrad.float16
        assert telegrad.einsum("ij->i", full).dtype is telegrad.float16
        assert telegrad.tensordot(full, half).dtype is telegrad.float32
        assert (2 / half).dtype is telegrad.float32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            telegrad.nn.functional.binary_cross_entropy(full, full)


def test_what_does_not_fit_is_refused(queues: QueuedBackend) -> None:
    s, x = telegrad.cuda.Stream(), telegrad.ones(2)
    plain, timed = telegrad.cuda.Event(), telegrad.cuda.Event(enable_timing=True)
    with pytest.raises(DeviceError, match="expected a GPU, not cpu"):
        telegrad.cuda.Stream("cpu")
    with pytest.raises(ArgumentTypeError, match="unknown arguments colour"):
        telegrad.cuda.Stream(colour=1)
    with pytest.raises(NotSupportedError, match="no streams"):
        x.cpu().record_stream(s)
    for takes_a_stream in (
        x.record_stream, s.wait_stream, plain.record, plain.wait, telegrad.cuda.stream, telegrad.cuda.set_stream,
    ):  # fmt: skip
        with pytest.raises(ArgumentTypeError, match="expected a Stream, not int"):
            takes_a_stream(3)
    with pytest.raises(NotSupportedError, match="other processes"):
        telegrad.cuda.Event(interprocess=True)
    with pytest.raises(ArgumentError, match="enable_timing"):
        plain.elapsed_time(timed)
    with pytest.raises(ArgumentError, match="must be recorded"):
        timed.elapsed_time(timed)
    assert plain.query()
    plain.synchronize()


@pytest.mark.parametrize(
    "instruction",
    [
        Mode("stream", ["cuda:7", 129]), Mode("stream", ["cuda:7", -1]), Mode("stream", ["cuda:7", "1"]),
        Mode("stream", [3, 1]), Mode("stream", 5), RecordEvent(7, "cuda:7", 999, False),
        RecordEvent(7, "cpu", 0, False), RecordEvent(7, "cuda:6", 0, False),
    ],
    ids=str,
)  # fmt: skip
def test_malformed_instructions_are_refused(queues: QueuedBackend, instruction: Any) -> None:
    _session().submit(instruction)
    with pytest.raises(TelegradError):
        telegrad.cuda.synchronize()
    assert telegrad.ones(1).item() == 1


@pytest.mark.parametrize(
    ("what", "args"),
    [("stream_query", []), ("event_query", ["1"]), ("elapsed_time", [1]), ("stream_synchronize", ["cuda:7", 1, 2])],
)
def test_malformed_questions_are_refused(queues: QueuedBackend, what: str, args: list[Any]) -> None:
    with pytest.raises(ProtocolError, match=what):
        _session().query(what, *args)


def test_a_session_has_a_limited_number_of_events(queues: QueuedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    from server.session import streams as ordering

    monkeypatch.setattr(ordering, "MAX_EVENTS", 2)
    events = [telegrad.cuda.Event() for _ in range(3)]
    with pytest.raises(ArgumentError, match="at most 2 events"):
        for event in events:
            event.record()
        telegrad.cuda.synchronize()


def test_without_a_gpu_there_are_no_streams_and_events(tg: Any) -> None:
    for make in (tg.cuda.Stream, tg.cuda.Event, tg.cuda.current_stream, tg.cuda.default_stream):
        with pytest.raises(DeviceError, match="no GPU"):
            make()
    with tg.cuda.stream(None):
        assert tg.ones(1).item() == 1
    tg.cuda.synchronize()


def test_a_stream_of_another_session_does_not_disturb_one_without_a_gpu(queues: QueuedBackend, host: Any) -> None:
    s = telegrad.cuda.Stream()
    with s, telegrad.connect(in_process=host):
        assert telegrad.ones(1).item() == 1
