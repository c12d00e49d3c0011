"""Runs of programs are sent together where nobody notices: far from any wait, while the server has work."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from telegrad._session.parts.mark import Part
from telegrad._transport import ahead as ahead_module
from telegrad._transport.ahead import GATHERED_SECONDS, UNNOTICED, Ahead

STEPS = 20 * UNNOTICED


class Loop:
    """A program that calls a compiled function again and again, on a clock that stands unless it is told to go on."""

    def __init__(self, tg: Any) -> None:
        self.now = 100.0
        self.x = tg.ones(3)
        self.session = self.x._session
        self.session.ahead = Ahead(1e12)  # what is measured goes by another clock
        self._function = tg.compile(_many_sines)
        self._batches = 0
        send = self.session.transport.send_batch

        def counting(body: bytes) -> None:
            self._batches += 1
            send(body)

        self.session.transport.send_batch = counting

    def settle(self) -> None:
        """Call until calls are left out, and until it is known how long they take."""
        for _ in range(12):
            self.step()
            self.session.synchronize()

    def step(self) -> int:
        """Call once, and return how many batches that has sent."""
        before = self._batches
        self.result = self._function(self.x)
        return self._batches - before


def _many_sines(x: Any) -> Any:
    for _ in range(100):
        x = x.sin() * 1.01
    return x


@pytest.fixture
def loop(tg: Any, monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop(tg)
    monkeypatch.setattr(ahead_module, "time", SimpleNamespace(monotonic=lambda: loop.now))
    loop.settle()
    return loop


def _sent_in(loop: Loop, turn: Callable[[], object] = lambda: None) -> int:
    count = 0
    for _ in range(STEPS):
        count += loop.step()
        turn()
    return count


def test_runs_that_follow_each_other_are_sent_together(loop: Loop) -> None:
    assert [loop.step() for _ in range(UNNOTICED)] == [1] * UNNOTICED, "the program may be about to wait"
    assert STEPS / 50 < _sent_in(loop) < STEPS / 4
    assert loop.session._is_armed, "what is left is sent by the timer"
    expected = _many_sines(loop.x)
    assert loop.result.tolist() == expected.tolist()


def test_runs_are_sent_at_once_when_the_server_may_be_idle(loop: Loop) -> None:
    _sent_in(loop)

    def pause() -> None:
        loop.now += 1.01 * GATHERED_SECONDS

    pause()
    assert _sent_in(loop, pause) == STEPS


def test_runs_are_sent_at_once_for_a_program_that_waits(loop: Loop) -> None:
    assert _sent_in(loop, lambda: loop.x.tolist()) == STEPS


def test_what_is_gathered_is_sent_before_a_call_that_runs_in_python(loop: Loop, tg: Any) -> None:
    _sent_in(loop)
    while loop.step():
        pass
    sent: list[bool] = []

    def looking(x: Any) -> Any:
        sent.append(not any([type(entry) is not Part for entry in loop.session._pending]))
        return x.sin()

    tg.compile(looking)(loop.x)
    assert sent == [True]


def test_no_more_is_gathered_than_the_server_is_to_have_at_once() -> None:
    ahead = Ahead(1.0)
    ahead.begin_batch(0.0)
    ahead.pace.limit = 100
    assert ahead.gathers(ahead.pace.portion, 1 << 20)
    assert not ahead.gathers(ahead.pace.portion + 1, 1 << 20)
    ahead.submit(100 - ahead.pace.portion + 1)
    assert not ahead.gathers(ahead.pace.portion, 1 << 20)
