"""Waiting awake for what usually comes soon: only where that pays, and never where others want the processor."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from server.ipc.heartbeat import Heartbeat
from server.worker.connection import BUSY, IDLE, WAITING
from server.worker.loop import Worker
from server.worker.measures import Measures
from telegrad._transport.direct_channel import DirectChannel
from telegrad._transport.readiness import DIRECT_SHIFT, wait_for_either
from telegrad_protocol.channels.awake import (
    AWAKE_SECONDS,
    DISTURBED_SECONDS,
    FEWEST_REST,
    LONG_SECONDS,
    MOST_REST,
    AwakeWaiting,
    Found,
)

LOOK_SECONDS = 2e-6


class OtherEnd:
    """What is waited for, at times of a clock that looks, sleeping and giving way move on."""

    def __init__(self, processors: int = 2) -> None:
        self.now = self.due = 0.0
        self.stolen = 0.0
        """For how long others use the processor when they get it."""
        self.looks = self.sleeps = 0
        self.waiting = AwakeWaiting(lambda: self.now, self._give_way, processors)

    def _give_way(self) -> None:
        self.now += self.stolen

    def _look(self, timeout: float | None) -> str:
        self.now += LOOK_SECONDS
        if timeout == 0:
            self.looks += 1
        else:
            self.sleeps += 1
            self.now = max(self.now, self.due)
        return "answer" if self.now >= self.due else ""

    def answer(self, after: float) -> tuple[int, int]:
        """Wait for something that comes after so many seconds; returns how often was looked and slept."""
        before = self.looks, self.sleeps
        self.due = self.now + after
        assert self.waiting.wait(self._look, None) == "answer"
        return self.looks - before[0], self.sleeps - before[1]


def usually_soon(end: OtherEnd) -> None:
    """Have answers come soon until they are waited for awake."""
    for _ in range(100):
        end.answer(AWAKE_SECONDS / 8)


def test_what_usually_comes_soon_is_waited_for_awake(seed: int) -> None:
    end = OtherEnd()
    assert end.answer(AWAKE_SECONDS / 8) == (0, 1)  # nothing is known of it yet
    usually_soon(end)
    looks, sleeps = end.answer(random.Random(seed).uniform(10 * LOOK_SECONDS, AWAKE_SECONDS / 2))
    assert looks >= 5 and not sleeps


def test_what_does_not_come_for_once_is_slept_for_after_a_short_time() -> None:
    end = OtherEnd()
    usually_soon(end)
    looks, sleeps = end.answer(1.0)
    assert sleeps == 1 and looks <= AWAKE_SECONDS / LOOK_SECONDS + 2


def test_what_usually_takes_long_is_slept_for() -> None:
    end = OtherEnd()
    usually_soon(end)
    for _ in range(10):
        end.answer(LONG_SECONDS)
    assert end.answer(0.0) == (0, 1)


def test_with_one_processor_everything_is_slept_for() -> None:
    end = OtherEnd(processors=1)
    usually_soon(end)
    assert not end.looks


def test_whoever_was_disturbed_sleeps_for_a_while_and_longer_each_time() -> None:
    end = OtherEnd()
    usually_soon(end)
    rests = []
    for _ in range(12):
        end.stolen = 2 * DISTURBED_SECONDS
        assert end.answer(AWAKE_SECONDS / 8) == (1, 1)
        end.stolen = 0.0
        rest = 0
        while end.answer(AWAKE_SECONDS / 8)[1]:
            rest += 1
        rests.append(rest)
    assert rests[0] == FEWEST_REST and rests[-1] == MOST_REST - 1
    assert all(later == min(2 * rest - 1, MOST_REST - 1) for rest, later in pairwise(rests))


def test_rests_are_as_short_as_at_first_after_many_answers_without_a_disturbance() -> None:
    end = OtherEnd()
    usually_soon(end)
    for _ in range(3):
        end.stolen = 2 * DISTURBED_SECONDS
        while not end.answer(AWAKE_SECONDS / 8)[0]:
            pass
        end.stolen = 0.0
    for _ in range(20 * FEWEST_REST):
        end.answer(AWAKE_SECONDS / 8)
    end.stolen = 2 * DISTURBED_SECONDS
    assert end.answer(AWAKE_SECONDS / 8) == (1, 1)
    end.stolen = 0.0
    slept = [end.answer(AWAKE_SECONDS / 8)[1] for _ in range(2 * FEWEST_REST)]
    assert sum(slept) < FEWEST_REST + 1


class Noting(AwakeWaiting):
    """Notes what is waited for through it."""

    def __init__(self) -> None:
        super().__init__()
        self.timeouts: list[float | None] = []

    def wait(self, look: Callable[[float | None], Found], timeout: float | None) -> Found:
        self.timeouts.append(timeout)
        return super().wait(look, timeout)


def test_a_client_waits_so_for_a_worker() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        direct = DirectChannel.__new__(DirectChannel)
        direct._socket, direct.is_open = ours, False
        theirs.send(b"answer")
        waiting = Noting()
        assert wait_for_either(None, direct, 30.0, waiting) >> DIRECT_SHIFT
        assert waiting.timeouts == [30_000.0]


def test_a_worker_waits_so_for_a_client_and_not_while_it_has_work() -> None:
    control, gateway = socket.socketpair()
    heartbeat = Heartbeat()
    host: Any = SimpleNamespace(request_pause=None)
    with control, gateway:
        worker = Worker(control, host, heartbeat, Measures(1.0))
        worker._awake = waiting = Noting()
        gateway.send(b"request")
        assert worker._select(IDLE) and waiting.timeouts == [None]
        assert worker._select(BUSY) and worker._select(WAITING) and waiting.timeouts == [None]
        worker._close_all()
    heartbeat.close()
