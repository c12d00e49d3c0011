"""Streams and events of a session: instructions about the order in which a device works, and questions about it.

What has to wait for a device is answered when the device has come that far; nothing here blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from telegrad_protocol import messages
from telegrad_protocol.errors import ArgumentError, NotSupportedError
from telegrad_protocol.meta import Device

from .memory_queries import Question

if TYPE_CHECKING:
    from server.engine.device.interface import Event, Mark

    from .session import Session

MAX_EVENTS = 1 << 16
Later: TypeAlias = tuple[list["Mark"], Callable[[], Any]]
"""Marks that devices have to come to, and what makes the answer then."""


def set_stream(session: Session, value: Any) -> None:
    """The mode ``stream``: a device, which may be one of another session's server, and the number of its stream."""
    name, number = value
    backend = session.context.backends.get(Device(name))
    if type(number) is not int:
        raise ValueError("no number of a stream")
    if backend is not None:
        backend.use_stream(session.context, number)


def record_event(session: Session, message: messages.RecordEvent) -> None:
    """Move an event, or make it."""
    backend = session.host.backend(message.device)
    event = session.events.get(message.event)
    stream = backend.stream_of(session.context, message.stream)
    if event is None:
        if len(session.events) >= MAX_EVENTS:
            raise ArgumentError(f"record: a session has at most {MAX_EVENTS} events")
        event = session.events[message.event] = backend.new_event(message.is_timed)
    event.record(stream)


def wait_event(session: Session, message: messages.WaitEvent) -> None:
    """Let a stream wait for an event; one that was never recorded is no reason to wait."""
    stream = session.host.backend(message.device).stream_of(session.context, message.stream)
    event = session.events.get(message.event)
    if event is not None:
        event.hold(stream)


def record_stream(session: Session, message: messages.RecordStream) -> None:
    """Note that a stream uses a tensor's memory."""
    value = session.value(message.id)
    stream = value.backend.stream_of(session.context, message.stream)
    value.backend.allocator.record_stream(value.storage.block, stream)


def _stream_mark(session: Session, device: str, number: int) -> Event:
    backend = session.host.backend(device)
    event = backend.new_event(False)
    event.record(backend.stream_of(session.context, number))
    return event


def _query_stream(session: Session, device: str, number: int) -> bool:
    return _stream_mark(session, device, number).is_ready()


def _query_event(session: Session, number: int) -> bool:
    event = session.events.get(number)
    return event is None or event.is_ready()


QUESTIONS = {
    "stream_query": Question(_query_stream, (str, int), 2),
    "event_query": Question(_query_event, (int,), 1),
}


def _synchronize(session: Session, device: str = "") -> Later:
    host = session.host
    backends = [host.backend(device)] if device else list(host.backends.values())
    return [mark for backend in backends for mark in backend.marks(session.context)], _nothing


def _synchronize_stream(session: Session, device: str, number: int) -> Later:
    return [_stream_mark(session, device, number)], _nothing


def _synchronize_event(session: Session, number: int) -> Later:
    event = session.events.get(number)
    return ([] if event is None else [event]), _nothing


def _elapsed_time(session: Session, first: int, last: int) -> Later:
    start, end = (session.events.get(number) for number in (first, last))
    if start is None or end is None:
        raise ArgumentError("elapsed_time: both events must be recorded before the time between them can be told")
    if not (start.is_timed and end.is_timed):
        raise NotSupportedError("elapsed_time: both events must be made with enable_timing=True")
    return [start, end], lambda: start.milliseconds_to(end)


def _nothing() -> None:
    """The answer to whoever only waits."""


LATER = {
    "synchronize": Question(_synchronize, (str,)),
    "stream_synchronize": Question(_synchronize_stream, (str, int), 2),
    "event_synchronize": Question(_synchronize_event, (int,), 1),
    "elapsed_time": Question(_elapsed_time, (int, int), 2),
}


def later(session: Session, what: str, args: list[Any]) -> Later | None:
    """For a question that waits for a device: for what, and the answer; None for any other."""
    question = LATER.get(what)
    if question is None:
        return None
    question.check(what, args)
    found: Later = question.answer(session, *args)
    return found
