"""Who wants to be told of the waits of a session: its requests, and where the program waits for the server to follow.

A session's own methods are replaced while somebody listens, and only then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NamedTuple

from telegrad._session.own_code import is_own, shown_name
from telegrad._session.session import ClientSession
from telegrad_protocol import messages

now: Final = time.monotonic_ns


class Wait(NamedTuple):
    """One wait for the server, in nanoseconds of the monotonic clock, and the line of the program that forced it."""

    begin: int
    end: int
    reason: str
    file: str
    line: int
    function: str
    nbytes: int


Listener = Callable[[Wait], None]
_listeners: dict[ClientSession, list[Listener]] = {}
_quiet: list[None] = []


@contextmanager
def untold() -> Iterator[None]:
    """Tell nobody of the waits within the block: those of the profiler itself."""
    _quiet.append(None)
    try:
        yield
    finally:
        _quiet.pop()


def listen(session: ClientSession, listener: Listener) -> None:
    """Tell ``listener`` of every wait of a session from here on."""
    present = _listeners.setdefault(session, [])
    present.append(listener)
    if len(present) == 1:
        session.request = _told_requests(session)  # type: ignore[method-assign, assignment]
        session._wait_for_room = _told_delays(session)  # type: ignore[method-assign]


def stop_listening(session: ClientSession, listener: Listener) -> None:
    """End ``listen``."""
    present = _listeners.get(session, [])
    if listener in present:
        present.remove(listener)
    if not present and session in _listeners:
        del _listeners[session], session.request, session._wait_for_room


def _told_requests(session: ClientSession) -> Callable[[Callable[[int], Any]], Any]:
    plain = session.request

    def request(make: Callable[[int], Any]) -> Any:
        made: list[Any] = []

        def remember(number: int) -> Any:
            made.append(make(number))
            return made[0]

        received = session.transport.stats.bytes_received
        begin = now()
        try:
            return plain(remember)
        finally:
            _tell(session, begin, reason_of(made[0]) if made else "a request", received)

    return request


def _told_delays(session: ClientSession) -> Callable[[], None]:
    plain = session._wait_for_room

    def wait_for_room() -> None:
        received = session.transport.stats.bytes_received
        begin = now()
        try:
            plain()
        finally:
            _tell(session, begin, "the program is as far ahead of the server as it may be", received)

    return wait_for_room


def _tell(session: ClientSession, begin: int, reason: str, received: int) -> None:
    if _quiet:
        return
    end = now()
    frame = program_frame()
    code = frame.f_code
    nbytes = session.transport.stats.bytes_received - received
    wait = Wait(begin, end, reason, shown_name(code.co_filename), frame.f_lineno or 0, code.co_name, nbytes)
    for listener in list(_listeners.get(session, ())):
        listener(wait)


def program_frame() -> FrameType:
    """Return the innermost frame that is not telegrad's, or the outermost one where all are."""
    frame = sys._getframe(1)
    while is_own(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame


_REASONS: Final[dict[type, str]] = {
    messages.Read: "the elements of a tensor are read",
    messages.Describe: "the shape of a result depends on data",
}


def reason_of(request: Any) -> str:
    """Say why a request waits for the server."""
    if isinstance(request, messages.Query):
        return "synchronize" if request.what == "synchronize" else f"the server is asked for {request.what}"
    return _REASONS.get(type(request), "a backward pass stops where the program computes")
