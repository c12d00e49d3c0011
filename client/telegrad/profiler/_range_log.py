"""Labelled ranges: what ``record_function`` marks in the worker's instructions, and notes on the client's side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import wraps
from typing import Any, NamedTuple, Protocol

from telegrad._session.labelling import close_range, open_range
from telegrad._session.session import ClientSession

from ._log import now


class RangeNote(NamedTuple):
    """A range on the client's side, in nanoseconds."""

    name: str
    begin: int
    end: int
    thread: int


class Marked(Protocol):
    """A capture, or an emission: what wants to be told of ranges."""

    session: ClientSession


class OpenRange(NamedTuple):
    """A range that has begun."""

    capture: Marked
    number: int
    name: str
    begin: int


current: list[Any] = []
"""The capture or emission that is going on and the notes of its ranges; empty while nothing is profiled."""


def begin_range(name: str) -> OpenRange | None:
    """Begin a range; None where nothing is profiled."""
    if not current:
        return None
    capture, _ = current
    return OpenRange(capture, open_range(capture.session, name), name, now())


def end_range(opened: OpenRange | None) -> None:
    """End a range, unless its profile has ended."""
    if opened is None or not current or current[0] is not opened.capture:
        return
    current[1].append(RangeNote(opened.name, opened.begin, now(), threading.get_ident()))
    close_range(opened.capture.session, opened.number)


class record_function(ContextDecorator):
    """Labels a block, or as a decorator a function, for a profiler; without one it does nothing.

    The label is a row of the profile: it lasts from the block's first operation to its last where these are executed.
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._opened: list[OpenRange | None] = []

    def __enter__(self) -> record_function:
        self._opened.append(begin_range(self.name))
        return self

    def __exit__(self, *details: object) -> None:
        end_range(self._opened.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:  # type: ignore[override]
        @wraps(function)
        def labelled(*args: Any, **kwargs: Any) -> Any:
            opened = begin_range(self.name)
            try:
                return function(*args, **kwargs)
            finally:
                end_range(opened)

        return labelled
