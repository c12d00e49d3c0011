"""When leases end: by a clock and an event loop that the test sets."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from server.gateway import stream
from server.gateway.stream import SessionRelay
from telegrad_protocol.messages import Hello

LEASE = 60.0
HELLO = Hello(
    session="a", key="key", protocol=1, server_version="", table_hash="", dtypes=[], devices=["cpu"],
    default_device="cpu", limits={}, lease_seconds=LEASE,
)  # fmt: skip


class Clock:
    """The time in ``server.gateway.stream``, and an event loop whose timers fire when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sock: socket.socket) -> None:
        self.now = 1000.0
        self.ended: list[Any] = []
        monkeypatch.setattr(stream, "time", SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now))
        loop: Any = self
        self.session = SessionRelay(1, HELLO, sock, loop, _ignore, _ignore, self.ended.append, _ignore)

    def add_reader(self, *_: Any) -> None: ...
    def remove_reader(self, *_: Any) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        self.pause, self._callback = seconds, callback
        return SimpleNamespace(cancel=lambda: None)

    def turn(self, late: float = 0.0) -> None:
        """The gateway wakes up, so many seconds later than it wanted."""
        self.now += self.pause + late
        self._callback()


def _ignore(*_: Any) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """A clock, and one session."""
    ours, theirs = socket.socketpair()
    clock = Clock(monkeypatch, ours)
    yield clock
    clock.session.close()
    theirs.close()


def _silence(clock: Clock, seconds: float) -> None:
    until = clock.now + seconds
    while clock.now + clock.pause < until:
        clock.turn()


def test_silence_ends_a_lease(clock: Clock) -> None:
    _silence(clock, LEASE - 1)
    assert not clock.ended
    _silence(clock, 2)
    assert clock.ended[0] is clock.session


@pytest.mark.parametrize("late", [2 * LEASE, 3 * LEASE / 4])
def test_a_gateway_that_was_held_up_ends_no_lease(clock: Clock, late: float) -> None:
    """It has heard nobody, and what came meanwhile is still to be read."""
    _silence(clock, LEASE / 2)
    clock.turn(late)
    assert not clock.ended
    _silence(clock, LEASE / 2 - 2)
    assert not clock.ended
    _silence(clock, 4)
    assert clock.ended


def test_a_sign_that_was_read_after_all_is_not_later_than_now(clock: Clock) -> None:
    clock.session.last_sign = clock.now + clock.pause + LEASE
    clock.turn(LEASE)
    assert clock.session.last_sign == clock.now
