"""A session that has launched as much as it may goes on once the device has come along, however slow it has become."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from server.engine.context import Context
from server.session import launch_scope
from server.session.launch_scope import LaunchedAhead
from telegrad_protocol import wire

from .driver import Talk, call
from .queued import queued_host


class Clock:
    """The time, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Mark:
    def __init__(self, clock: Clock, reached: float) -> None:
        self._clock, self._reached = clock, reached

    def is_ready(self) -> bool:
        return self._clock.now >= self._reached


class Gpu:
    """A device that executes what is launched in order, an instruction in ``seconds``."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._idle_from, self.seconds = clock, 0.0, 1e-5
        self.last_completion = 0.0

    def launch(self, count: int) -> None:
        self._idle_from = max(self._idle_from, self._clock.now) + count * self.seconds

    def marks(self, ctx: Any) -> list[Mark]:
        return [Mark(self._clock, self._idle_from)]


def test_a_session_that_is_ahead_goes_on_when_the_device_has_come_along(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """The device's speed changes by factors of up to 1,000, also between two marks."""
    clock = Clock()
    monkeypatch.setattr(launch_scope, "time", clock)
    gpu = Gpu(clock)
    ahead = LaunchedAhead([gpu], Context({}))  # type: ignore[list-item]
    for _ in range(3000):
        if rng.random() < 0.2:
            gpu.seconds = float(10 ** rng.uniform(-6, -3))
        count = int(rng.integers(1, 64))
        gpu.launch(count)
        clock.now += count * 3e-6
        ahead.launched += count
        if ahead.launched >= ahead.due:
            ahead.mark(bool(rng.random() < 0.3))
        waited = 0
        while ahead.is_full:
            clock.now += 1e-3
            ahead.look()
            waited += 1
            assert waited < 10_000, f"{ahead.launched - ahead.pace.completed} launched, nothing is waited for"


class Gate:
    """A mark that the device comes to once it is opened."""

    def __init__(self, marks: list[Gate]) -> None:
        self.is_open = False
        marks.append(self)

    def is_ready(self) -> bool:
        return self.is_open


@pytest.mark.parametrize("most", [1, 5, 64, 100])
def test_no_more_operations_are_ahead_than_the_tenant_may_have(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, most: int
) -> None:
    host, gpu = queued_host()
    marks: list[Gate] = []
    monkeypatch.setattr(gpu, "marks", lambda ctx: [Gate(marks)])
    talk = Talk(host, operations_ahead=most)
    session, count = talk.session, 3 * most + 10
    try:
        session.receive(wire.BATCH, memoryview(wire.encode_batch([call("ones", 1, [2])] * count)))
        done = 0
        while session.has_work:
            while session.has_work and not session.is_ahead:
                session.run(int(rng.integers(1, 65)))
                assert session.state.operations - done <= most, "more are ahead than the tenant may have"
            if session.has_work:
                done = session.state.operations
                assert marks and not all(mark.is_open for mark in marks), "nothing is waited for"
            for mark in marks:
                mark.is_open = True
            session.poll()
        assert session.state.operations == count
    finally:
        session.close()
