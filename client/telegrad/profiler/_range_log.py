"""Labelled ranges: what ``record_function`` marks in the worker's instructions, and notes on the client's side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import wraps
from typing import Any, NamedTuple, Protocol

from telegrad._session.current import session_if_any
from telegrad._session.labelling import close_range, open_range
from telegrad._session.sending.watching import watched
from telegrad._session.session import ClientSession

from ._log import now


class RangeNote(NamedTuple):
    """A range on the client's side, in nanoseconds."""

    name: str
    begin: int
    end: int
    thread: int


class Marked(Protocol):
    """A capture, an emission, or a session that is watched: what wants to be told of ranges."""

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
    """Begin a range; None where nothing is profiled, and nobody watches the session."""
    capture = current[0] if current else watched.get(session_if_any()) if watched else None
    if capture is None:
        return None
    return OpenRange(capture, open_range(capture.session, name), name, now())


def end_range(opened: OpenRange | None) -> None:
    """End a range, unless its profile has ended, or nobody watches any more."""
    if opened is None:
        return
    session = opened.capture.session
    if current and current[0] is opened.capture:
        current[1].append(RangeNote(opened.name, opened.begin, now(), threading.get_ident()))
    elif watched.get(session) is not opened.capture:
        return
    close_range(session, opened.number)


class record_function(ContextDecorator):
    """Labels a block, or as a decorator a function, for a profiler and for who watches the session.

    Where neither is, it does nothing. The label is a row of the profile: it lasts from the block's first operation to
    its last where these are executed.
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
