"""What a program reports, and the functions of its own that hear of it. No server is involved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

from telegrad_protocol.errors import ArgumentTypeError

Value: TypeAlias = str | int | float
"""What the data of an event may be made of: texts and numbers."""


class Event:
    """Something that has happened: its name, when it was, and values by their names.

    Values are texts, integers and floating-point numbers; ArgumentTypeError for others. True and False are kept as 1.0
    and 0.0.
    """

    def __init__(self, name: str, timestamp: datetime, data: Mapping[str, Value]) -> None:
        if not isinstance(name, str) or not isinstance(timestamp, datetime):
            raise ArgumentTypeError(
                f"Event: expected a text and a datetime, not {type(name).__name__} and {type(timestamp).__name__}"
            )
        self.name, self.timestamp = name, timestamp
        self.data: dict[str, Value] = {key: _checked(key, value) for key, value in data.items()}


def _checked(key: str, value: Value) -> Value:
    if not isinstance(key, str) or not isinstance(value, (str, int, float)):
        raise ArgumentTypeError(
            f"Event: data must have texts and numbers by texts, not {type(value).__name__} by {type(key).__name__}"
        )
    return float(value) if isinstance(value, bool) else value


class EventHandlerHandle:
    """What stands for a registered handler."""

    def __init__(self, callback: Callable[[Event], Any]) -> None:
        self._callback = callback


_handlers: list[EventHandlerHandle] = []


def register_event_handler(callback: Callable[[Event], Any]) -> EventHandlerHandle:
    """Have a function called with each event from here on, after those that are registered already."""
    handle = EventHandlerHandle(callback)
    _handlers.append(handle)
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """Have a function called no more; nothing happens for one that is not registered."""
    _handlers[:] = [other for other in _handlers if other is not handler]


def log_event(event: Event) -> None:
    """Call all handlers with an event, in their order, in this thread. What one of them raises ends it."""
    if not isinstance(event, Event):
        raise ArgumentTypeError(f"log_event: expected an Event, not {type(event).__name__}")
    for handler in tuple(_handlers):
        handler._callback(event)
