"""Threads: each has its grad mode and its current session, and they may share a session."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import telegrad
from telegrad import Tensor
from telegrad.errors import IndexOutOfRangeError

from .server_process import ServerProcess


def run_together(*tasks: Callable[[], object]) -> None:
    """Run tasks in a thread each; raise what one of them raised."""
    errors: list[BaseException] = []

    def guarded(task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
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
        described = weight._session.describe(tuple(tensor._id for tensor, _ in results), weight.device)
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


def test_a_thread_that_waits_keeps_nobody_from_working(tg: Any) -> None:
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


def test_a_failure_is_raised_in_one_thread_and_both_go_on(tg: Any) -> None:
    raised: list[str] = []

    def work() -> None:
        for _ in range(30):
            try:
                if (tg.ones(2) + 1).tolist() != [2.0, 2.0]:
                    raised.append("wrong")
                tg.zeros(3).index_select(0, tg.tensor([9])).tolist()
            except IndexOutOfRangeError:
                raised.append("failed")
            except telegrad.errors.NotComputedError:
                pass  # it stood behind the other thread's failure

    run_together(work, work)
    assert "wrong" not in raised and "failed" in raised
    assert tg.ones(1).item() == 1.0


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
