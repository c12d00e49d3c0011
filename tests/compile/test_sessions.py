"""Compiled functions of several threads and sessions, over bad networks, under interrupts, and very many of them."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

import telegrad
from telegrad._session.current import current_session
from telegrad._session.parts.table import MOST_PROGRAMS
from telegrad.compiler import dynamo

from ..end_to_end.server_process import ServerProcess
from ..transport.fault_proxy import FaultProxy

CALLS = 6


def _training(tg: Any) -> Any:
    """Return a compiled step on an array, and its parameters."""
    tg.manual_seed(3)
    model = tg.nn.Sequential(tg.nn.Linear(6, 8), tg.nn.GELU(), tg.nn.Dropout(0.2), tg.nn.Linear(8, 1))
    optimizer = tg.optim.AdamW(model.parameters(), lr=1e-2)

    def step(array: Any) -> Any:
        optimizer.zero_grad()
        loss = model(tg.tensor(array)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, list(model.parameters())


def _run(tg: Any, compiled: bool, seed: int, steps: int) -> list[Any]:
    step, parameters = _training(tg)
    step = tg.compile(step) if compiled else step
    rng = np.random.default_rng(seed)
    losses = [step(rng.standard_normal((4, 6), np.float32)) for _ in range(steps)]
    return [[loss.item() for loss in losses], *[parameter.tolist() for parameter in parameters]]


def test_the_timer_sends_no_half_of_a_part(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = current_session()
    sends, end_part = session.flush_quietly, session.end_part

    def end_part_later(*args: Any) -> None:
        timer = threading.Thread(target=sends)
        timer.start()
        timer.join()
        end_part(*args)

    def function(x: Any) -> Any:
        y = x.abs() + 1
        return y * 2 if y.sum() > 0 else y

    x = tg.ones(3)
    x.tolist()
    monkeypatch.setattr(session, "end_part", end_part_later)
    explained = dynamo.explain(function)(x)
    assert [len(names) for names in explained.ops_per_graph] == [4, 1]


def test_threads_call_the_same_function(tg: Any, rng: np.random.Generator) -> None:
    @tg.compile
    def function(x: Any, weight: Any) -> Any:
        y = (x @ weight).relu() * 2
        return (y + x.sum()).tanh()

    array, weight = rng.standard_normal((3, 3)), tg.tensor(rng.standard_normal((3, 3)))
    expected = {n: function._torchdynamo_orig_callable(tg.tensor(array * n), weight).tolist() for n in range(4)}
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(2 * CALLS):
            if function(tg.tensor(array * number), weight).tolist() != expected[number]:
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_two_sessions_have_programs_of_their_own(host: Any, seed: int) -> None:
    with telegrad.connect(in_process=host) as first:
        expected = _run(telegrad, False, seed, CALLS)
        step, parameters = _training(telegrad)
        step = telegrad.compile(step)
        rng = np.random.default_rng(seed)
        losses = []
        for _ in range(CALLS):
            losses.append(step(rng.standard_normal((4, 6), np.float32)).item())
            with telegrad.connect(in_process=host) as second:
                other = telegrad.compile(lambda x: (x.sin() + 1).exp() * 2)
                assert [other(telegrad.ones(2) * n).numel() for n in range(4)] == [2] * 4
                assert second.session.programs.programs == 1
        assert [losses, *[parameter.tolist() for parameter in parameters]] == expected
        assert first.session.programs.programs == 1


def test_more_programs_than_a_session_may_have(tg: Any) -> None:
    session = tg.ones(1)._session
    number = [0]

    @tg.compile
    def function(x: Any) -> Any:
        for bit in range(9):
            x = x + 1 if number[0] >> bit & 1 else x * 2
        return x

    def called(of: int) -> float:
        number[0] = of
        return function(tg.ones(1)).item()

    def expected(of: int) -> float:
        x = 1.0
        for bit in range(9):
            x = x + 1 if of >> bit & 1 else x * 2
        return x

    for of in range(MOST_PROGRAMS + 4):
        for _ in range(2):  # with the second call a program is defined
            assert called(of) == expected(of)
    for of in (0, 1, MOST_PROGRAMS):
        for _ in range(CALLS):
            assert called(of) == expected(of)
    assert session.programs.programs > MOST_PROGRAMS


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A server in a process of its own."""
    with ServerProcess(TELEGRAD_LEASE_SECONDS="10") as process:
        yield process


def test_results_are_the_same_through_cut_connections(server: ServerProcess, seed: int) -> None:
    steps, cuts = 40, 8
    draw = random.Random(seed)
    with telegrad.connect(server.url):
        expected = _run(telegrad, False, seed, steps)
    with (
        FaultProxy(server.port, delay=0.002) as proxy,
        telegrad.connect(f"http://127.0.0.1:{proxy.port}") as connection,
    ):
        proxy.cut_after([draw.randrange(200, 1200) for _ in range(cuts)])
        assert _run(telegrad, True, seed, steps) == expected
        # What a step frees is queued with it or after it, as batches are sent: each way is a program, met twice before.
        assert connection.session.programs.runs >= steps - 5
        assert connection.session.transport.stats.reconnects > 0 and proxy.cuts > 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_lose_and_repeat_nothing(server: ServerProcess, seed: int) -> None:
    draw = random.Random(seed)
    before = signal.signal(signal.SIGALRM, _interrupt)
    try:
        with telegrad.connect(server.url):
            total, ones = telegrad.zeros(3), telegrad.ones(3)

            @telegrad.compile
            def add(x: Any) -> None:
                total.add_(x)
                total.mul_(1)
                total.sub_(x * 0).add_(0)

            interrupted = whole = 0
            while interrupted < 12 or whole < 40:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 2e-3))
                try:
                    _interruptible(add, ones)
                    whole += 1
                except KeyboardInterrupt:
                    interrupted += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            added = total.tolist()
            assert len(set(added)) == 1 and whole - interrupted <= added[0] <= whole + interrupted
            add(ones)
            assert total.tolist() == [value + 1 for value in added]
    finally:
        signal.signal(signal.SIGALRM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt what ``_interruptible`` calls, and nothing else."""
    while frame is not None and frame.f_code is not _interruptible.__code__:
        frame = frame.f_back
    if frame is not None:
        raise KeyboardInterrupt


def _interruptible(function: Any, argument: Any) -> None:
    function(argument)


def test_an_interrupt_at_the_end_of_a_call_leaves_the_next_ones_compiled(
    tg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt may come before the first line of what ends a call, which then does nothing."""
    from telegrad.compiler.regions import Region

    function = tg.compile(lambda x: (x * 2).exp() + 1 - x)
    programs = tg.ones(1)._session.programs
    with monkeypatch.context() as patch:
        patch.setattr(Region, "__exit__", _raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            function(tg.ones(2))
    before = programs.runs
    for _ in range(CALLS):
        assert function(tg.zeros(2)).tolist() == [2.0, 2.0]
    assert programs.runs > before


def _raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt
