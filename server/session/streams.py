"""Streams and events of a session: instructions about the order in which a device works, and answers about it.

What has to wait for a device is answered when the device has come that far; nothing here blocks.
"""

from __future__ import annotations

from typing import Any

from server.engine.device.interface import Event, Mark
from telegrad_protocol import messages, queries
from telegrad_protocol.errors import ArgumentError, NotSupportedError
from telegrad_protocol.meta import Device

from .requests import Deferred, answers
from .state import SessionState

MAX_EVENTS = 1 << 16
"""A session may have this many events at a time: each holds an object of the driver."""


def set_stream(state: SessionState, value: Any) -> None:
    """Set the mode ``stream``: a device, which another session's server may have, and the number of its stream."""
    name, number = value
    if type(name) is not str or type(number) is not int:
        raise ValueError("no name of a device and number of a stream")
    backend = state.context.backends.get(Device(name))
    if backend is not None:
        backend.use_stream(state.context, number)


def record_event(state: SessionState, message: messages.RecordEvent) -> None:
    """Let an event be the point that a stream reaches with what it was given; make the event the first time."""
    backend = state.backend(message.device)
    event = state.events.get(message.event)
    stream = backend.stream_of(state.context, message.stream)
    if event is None:
        if len(state.events) >= MAX_EVENTS:
            raise ArgumentError(f"record: a session has at most {MAX_EVENTS} events")
        event = state.events[message.event] = backend.new_event(message.is_timed)
    event.record(stream)


def wait_event(state: SessionState, message: messages.WaitEvent) -> None:
    """Let a stream wait for an event; one that was never recorded is no reason to wait."""
    stream = state.backend(message.device).stream_of(state.context, message.stream)
    event = state.events.get(message.event)
    if event is not None:
        event.hold(stream)


def record_stream(state: SessionState, message: messages.RecordStream) -> None:
    """Note that a stream uses a tensor's memory."""
    value = state.value(message.id)
    stream = value.backend.stream_of(state.context, message.stream)
    value.backend.allocator.record_stream(value.storage.block, stream)


def _new_mark(state: SessionState, device: str, number: int) -> Event:
    """Return a mark behind what a stream has been given."""
    backend = state.backend(device)
    event = backend.new_event(False)
    event.record(backend.stream_of(state.context, number))
    return event


def _none() -> None:
    """Answer a query that only waits."""


@answers(queries.StreamQuery)
def _query_stream(state: SessionState, query: queries.StreamQuery) -> bool:
    return _new_mark(state, query.device, query.stream).is_ready()


@answers(queries.EventQuery)
def _query_event(state: SessionState, query: queries.EventQuery) -> bool:
    event = state.events.get(query.event)
    return event is None or event.is_ready()


@answers(queries.Synchronize)
def _synchronize(state: SessionState, query: queries.Synchronize) -> Deferred:
    backends = [state.backend(query.device)] if query.device else list(state.backends.values())
    return Deferred([mark for backend in backends for mark in backend.marks(state.context)], _none)


@answers(queries.StreamSynchronize)
def _synchronize_stream(state: SessionState, query: queries.StreamSynchronize) -> Deferred:
    return Deferred([_new_mark(state, query.device, query.stream)], _none)


@answers(queries.EventSynchronize)
def _synchronize_event(state: SessionState, query: queries.EventSynchronize) -> Deferred:
    event = state.events.get(query.event)
    return Deferred([] if event is None else [event], _none)


@answers(queries.ElapsedTime)
def _elapsed_time(state: SessionState, query: queries.ElapsedTime) -> Deferred:
    start, end = _timed(state, query.start), _timed(state, query.end)
    return Deferred([start, end], lambda: start.milliseconds_to(end))


@answers(queries.ElapsedTimes)
def _elapsed_times(state: SessionState, query: queries.ElapsedTimes) -> Deferred:
    if len(query.starts) != len(query.ends):
        raise ArgumentError("elapsed_time: as many first events as last ones are needed")
    pairs = [(_timed(state, start), _timed(state, end)) for start, end in zip(query.starts, query.ends, strict=True)]
    marks: list[Mark] = [event for pair in pairs for event in pair]
    return Deferred(marks, lambda: [start.milliseconds_to(end) for start, end in pairs])


def _timed(state: SessionState, number: int) -> Event:
    """Return an event that was recorded and measures time."""
    event = state.events.get(number)
    if event is None:
        raise ArgumentError("elapsed_time: both events must be recorded before the time between them can be told")
    if not event.is_timed:
        raise NotSupportedError("elapsed_time: both events must be made with enable_timing=True")
    return event
