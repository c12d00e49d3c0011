"""Threads: each has its grad mode and its current session, and they may share a session."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import telegrad
from telegrad import Tensor
from telegrad._session.thread_modes import Modes
from telegrad.errors import IndexOutOfRangeError

from .server_process import ServerProcess


def run_together(*tasks: Callable[[], object]) -> None:
    """Run tasks in a thread each; raise what one of them raised.

    No clause is around a task, since a call waits for its error where one would catch it.
    """
    errors: list[BaseException | None] = []
    hook, threading.excepthook = threading.excepthook, lambda raised: errors.append(raised.exc_value)
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    threading.excepthook = hook
    if errors and errors[0] is not None:
        raise errors[0]


def test_grad_mode_belongs_to_a_thread(tg: Any) -> None:
    seen: dict[str, bool] = {}
    with tg.no_grad():
        run_together(lambda: seen.update(other=tg.is_grad_enabled()))
        seen["here"] = tg.is_grad_enabled()
    assert seen == {"other": True, "here": False}
    run_together(lambda: tg.set_grad_enabled(False))
    assert tg.is_grad_enabled()


def test_threads_of_different_modes_share_a_session(tg: Any, seed: int) -> None:
    weight = tg.ones(2, requires_grad=True)
    made: dict[str, list[tuple[Tensor, bool]]] = {"grad": [], "no_grad": [], "inference": []}

    def work(kind: str) -> None:
        draw = random.Random(f"{seed} {kind}")
        for number in range(300):
            outside = kind != "grad" and draw.random() < 0.3
            if kind == "grad" or outside:
                made[kind].append((weight * number, True))
            else:
                with tg.no_grad() if kind == "no_grad" else tg.inference_mode():
                    made[kind].append((weight * number, False))

    run_together(*(lambda kind=kind: work(kind) for kind in made))
    for kind, results in made.items():
        described = weight._session.describe(
            tuple(tensor._id for tensor, _ in results), (weight.device,) * len(results)
        )
        for (tensor, recorded), (_, server_says) in zip(results, described, strict=True):
            assert (tensor.requires_grad, server_says) == (recorded, recorded), kind


def test_threads_read_their_own_values(tg: Any) -> None:
    def work(mine: int) -> None:
        for number in range(100):
            small, large = tg.full((3,), float(mine)) + number, tg.full((30_000,), float(mine))
            assert small.tolist() == [mine + number] * 3
            if number % 20 == 0:
                assert set(large.numpy()) == {mine}
                uploaded = tg.from_numpy(large.numpy() * 2)
                assert set(uploaded.numpy()) == {mine * 2}

    run_together(*(lambda mine=mine: work(mine) for mine in range(1, 5)))


def test_a_thread_that_waits_keeps_nobody_from_working(unbounded_tg: Any) -> None:
    tg = unbounded_tg
    matrix = tg.randn(1500, 1500)
    matrix.sum().item()
    is_waiting, was_read = threading.Event(), threading.Event()
    submitted_first: list[bool] = []

    def wait() -> None:
        result = matrix
        for _ in range(8):
            result = (result @ matrix).clamp(-1, 1)
        result = result.sum()
        is_waiting.set()
        result.item()
        was_read.set()

    def submit() -> None:
        is_waiting.wait()
        for _ in range(500):
            tg.zeros(2)
        submitted_first.append(not was_read.is_set())

    run_together(wait, submit)
    assert submitted_first == [True]


def test_each_thread_has_its_current_session(server: ServerProcess) -> None:
    with telegrad.connect(server.url) as shared:
        assert telegrad.zeros(1)._session is shared.session
        sessions: list[Any] = []
        barrier = threading.Barrier(3)

        def own() -> None:
            with telegrad.connect(server.url) as connection:
                barrier.wait()
                sessions.append(telegrad.zeros(1)._session is connection.session)
                assert telegrad.ones(2).tolist() == [1.0, 1.0]
                barrier.wait()

        def without() -> None:
            barrier.wait()
            sessions.append(telegrad.zeros(1)._session is shared.session)
            barrier.wait()

        run_together(own, own, without)
        assert sessions == [True] * 3
        assert telegrad.zeros(1)._session is shared.session


def test_sessions_are_chosen_by_block_and_by_use(server: ServerProcess) -> None:
    first, second = telegrad.connect(server.url), telegrad.connect(server.url)
    assert telegrad.zeros(1)._session is second.session
    first.use()
    assert telegrad.zeros(1)._session is first.session
    with telegrad.connect(server.url) as inner:
        assert telegrad.zeros(1)._session is inner.session
        seen: list[Any] = []
        run_together(lambda: seen.append(telegrad.zeros(1)._session))
        assert seen == [first.session]
    assert telegrad.zeros(1)._session is first.session
    telegrad.disconnect()
    assert telegrad.zeros(1)._session is second.session
    telegrad.disconnect()
    assert not first.session.is_open and not second.session.is_open


def _failing(tg: Any, index: int = 9) -> Tensor:
    result: Tensor = tg.zeros(3).index_select(0, tg.tensor([index]))
    return result


def test_every_failure_is_raised_in_its_own_thread(tg: Any) -> None:
    raised: dict[int, list[int]] = {}

    def work(mine: int) -> None:
        raised[mine] = []
        for number in range(30):
            assert (tg.ones(2) + mine).tolist() == [1.0 + mine] * 2
            try:
                _failing(tg, 1000 * mine + number).tolist()
            except IndexOutOfRangeError as error:
                raised[mine].append(int(error.message.split("index ")[1].split()[0]))

    run_together(*(lambda mine=mine: work(mine) for mine in range(1, 5)))
    assert raised == {mine: [1000 * mine + number for number in range(30)] for mine in range(1, 5)}
    assert tg.ones(1).item() == 1.0


def test_a_failure_stops_its_own_thread_and_no_other(tg: Any) -> None:
    counters = {"failing": tg.zeros(1), "other": tg.zeros(1)}
    failed, was_seen = threading.Event(), threading.Event()

    def fail() -> None:
        with pytest.raises(IndexOutOfRangeError, match="index 9"):
            try:
                counters["failing"].add_(1)
                _failing(tg)
                counters["failing"].add_(10)  # the timer may have sent what failed: it may be heard of here already
            finally:
                failed.set()
            was_seen.wait()
            tg.cuda.synchronize()
        was_seen.wait()
        counters["failing"].add_(100)

    def other() -> None:
        failed.wait()
        try:
            for _ in range(100):  # more than a batch, so that the failure is heard of here
                counters["other"].add_(1)
            tg.cuda.synchronize()
            assert counters["other"].item() == 100.0
            assert counters["failing"].item() == 1.0
        finally:
            was_seen.set()

    run_together(fail, other)
    assert {name: counter.item() for name, counter in counters.items()} == {"failing": 101.0, "other": 100.0}


def test_who_uses_what_another_thread_failed_to_compute_is_told_where(tg: Any) -> None:
    results: list[Tensor] = []
    was_made, was_used = threading.Event(), threading.Event()

    def make() -> None:
        results.append(_failing(tg))
        was_made.set()
        was_used.wait()
        with pytest.raises(IndexOutOfRangeError):
            results[0].tolist()

    def use() -> None:
        was_made.wait()
        with pytest.raises(
            telegrad.errors.NotComputedError, match=rf"index_select failed at {__file__}:\d+ in _failing"
        ):
            (results[0] + 1).tolist()
        assert (tg.ones(1) + 1).item() == 2.0
        was_used.set()

    run_together(make, use)


def test_the_failure_of_a_thread_that_has_ended_is_raised_in_another(tg: Any) -> None:
    run_together(lambda: _failing(tg))
    with pytest.raises(IndexOutOfRangeError) as raised:
        tg.cuda.synchronize()
    assert raised.value.__notes__ == ["It failed in a thread that has ended."]
    tg.cuda.synchronize()


def test_modes_of_a_thread_that_has_ended_are_forgotten(tg: Any) -> None:
    tg.zeros(1)
    gc.collect()
    before = sum(isinstance(known, Modes) for known in gc.get_objects())
    for _ in range(20):
        run_together(lambda: tg.no_grad()(tg.zeros)(1).item())
    gc.collect()
    assert sum(isinstance(known, Modes) for known in gc.get_objects()) <= before + 2


def test_a_running_event_loop_is_no_obstacle(tg: Any) -> None:
    async def cell() -> list[float]:
        with tg.no_grad():
            result: list[float] = (tg.ones(2) * 3).tolist()
        return result

    assert asyncio.run(cell()) == [3.0, 3.0]


def test_a_closed_session_is_nobodys_current_one(server: ServerProcess) -> None:
    outer = telegrad.connect(server.url)
    leaving, left = threading.Event(), threading.Event()
    seen: list[Any] = []
    inner = telegrad.connect(server.url)

    def work() -> None:
        inner.use()
        leaving.set()
        left.wait()
        seen.append(telegrad.zeros(1)._session)

    def end() -> None:
        leaving.wait()
        inner.disconnect()
        left.set()

    run_together(work, end)
    assert seen == [outer.session]
    outer.disconnect()


@pytest.mark.parametrize("threads", [1, 3])
def test_waiting_threads_are_told_when_the_session_ends(server: ServerProcess, threads: int) -> None:
    connection = telegrad.connect(server.url)
    matrix = telegrad.randn(1500, 1500)
    matrix.sum().item()
    waiting = threading.Barrier(threads + 1)
    ended: list[type] = []

    def wait() -> None:
        waiting.wait()
        try:
            while True:
                (matrix @ matrix).sum().item()
        except telegrad.errors.SessionLostError as error:
            ended.append(type(error))

    def end() -> None:
        waiting.wait()
        connection.disconnect()

    run_together(end, *[wait] * threads)
    assert len(ended) == threads
