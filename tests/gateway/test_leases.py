"""When leases end: by a clock that the test sets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from server.gateway import sessions as registry
from server.gateway.sessions import Registry

LEASE = 60.0


class Clock:
    """The time in ``server.gateway.sessions``, and the gateway's turns in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.ended: list[Any] = []
        self.session = SimpleNamespace(last_sign=self.now, tick=lambda now, heartbeat: None)
        monkeypatch.setattr(registry, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(registry, "asyncio", SimpleNamespace(sleep=self._sleep))
        found = Registry(SimpleNamespace(), LEASE)  # type: ignore[arg-type]
        monkeypatch.setattr(found, "_sessions", {"a": self.session})
        monkeypatch.setattr(found, "_reclaim", self.ended.append)
        monkeypatch.setattr(found, "_spawn", lambda work: None)
        self._ticks = found._tick()
        self._ticks.send(None)

    def _sleep(self, seconds: float) -> Any:
        self.pause = seconds
        return _Pause()

    def turn(self, late: float = 0.0) -> None:
        """The gateway wakes up, so many seconds later than it wanted."""
        self.now += self.pause + late
        self._ticks.send(None)


class _Pause:
    def __await__(self) -> Any:
        yield


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock, and one session."""
    return Clock(monkeypatch)


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
