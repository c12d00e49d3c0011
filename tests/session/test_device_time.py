"""How long devices work for a session, as its marks show: what fairness charges it with."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from server.engine.context import Context
from server.session import launch_scope
from server.session.launch_scope import LaunchedAhead
from tests.session.driver import Talk, call

from .test_launched_ahead import Clock, Gpu


def look(sessions: list[LaunchedAhead], clock: Clock, seconds: float) -> list[float]:
    """Let time pass, looking at the sessions as the worker's loop does; what each is charged with."""
    charged = [0.0 for _ in sessions]
    end = clock.now + seconds
    while clock.now < end:
        clock.now += 1e-4
        for place, session in enumerate(sessions):
            charged[place] += session.take_device_seconds()
    return charged


def launch(gpu: Gpu, session: LaunchedAhead, count: int) -> None:
    gpu.launch(count)
    session.launched += count
    session.mark(True)


def test_two_sessions_are_charged_with_what_each_keeps_a_device_busy(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    clock = Clock()
    monkeypatch.setattr(launch_scope, "time", clock)
    gpu = Gpu(clock)
    sessions = [LaunchedAhead([gpu], Context({})) for _ in range(2)]  # type: ignore[list-item]
    expected = [0.0, 0.0]
    charged = [0.0, 0.0]
    for _ in range(20):
        for place in rng.permutation(2):
            gpu.seconds = float(rng.uniform(1e-4, 1e-3))
            launch(gpu, sessions[place], 64)
            expected[place] += 64 * gpu.seconds
        charged = [sum(pair) for pair in zip(charged, look(sessions, clock, 0.2), strict=True)]
    assert charged == pytest.approx(expected, rel=0.05)


def test_time_in_which_nobody_looked_is_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(launch_scope, "time", clock)
    gpu = Gpu(clock)
    session = LaunchedAhead([gpu], Context({}))  # type: ignore[list-item]
    launch(gpu, session, 64)
    clock.now += 100.0
    assert session.take_device_seconds() <= 64 * gpu.seconds


@pytest.mark.gpu
def test_a_gpu_at_work_is_charged_to_whose_work_it_is(cuda_host: Any) -> None:
    busy, idle = Talk(cuda_host), Talk(cuda_host)
    try:
        assert busy.send(call("ones", 1, [4096, 4096], device="cuda:0")) == []
        assert idle.send(call("ones", 1, [4], device="cuda:0")) == []
        begin, charged = time.perf_counter(), 0.0
        for _ in range(10):
            busy.send(*[call("mm", 2, 1, 1) for _ in range(100)])
            while busy.session.is_ahead:
                busy.session.poll()
                charged += busy.session.take_device_seconds()
            idle.send(call("neg", 2, 1))
        assert busy.read(2)[0, 0] == 4096
        taken = time.perf_counter() - begin
        charged += busy.session.take_device_seconds()
        assert 0.3 * taken < charged <= taken
        assert idle.session.take_device_seconds() < 0.2 * taken
    finally:
        busy.session.close()
        idle.session.close()
