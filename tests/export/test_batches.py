"""The queue of a program: who runs together, in which order, and what happens where a batch fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from server.gateway.http.programs.batches import Batcher, Elements, Inputs, ReplacedError, batch_symbol
from telegrad_protocol.errors import ShapeError
from telegrad_protocol.exported.description import VERSION, Input, Output, ProgramDescription
from telegrad_protocol.exported.sizes import Formula, Size, symbol


class _Worker:
    """Adds one to every byte, when it is let go on; refuses rows that begin with 255."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.may_run = asyncio.Event()

    async def run(self, inputs: Inputs) -> list[Elements]:
        (given,) = inputs
        self.batches.append(given.shape[0])
        await self.may_run.wait()
        if 255 in bytes(given.data):
            raise ShapeError("a row is wrong")
        return [Elements(given.shape, bytes([byte + 1 for byte in given.data]))]


def _rows(*rows: bytes) -> list[Elements]:
    return [Elements((len(rows), len(rows[0])), b"".join(rows))]


def _in_loop(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


async def _submitted(batcher: Batcher, *requests: list[Elements], who: str = "") -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(batcher.submit(request, who)) for request in requests]
    await asyncio.sleep(0)
    return tasks


def test_an_idle_program_runs_at_once_and_others_gather_meanwhile() -> None:
    async def test() -> None:
        worker, sizes = _Worker(), list[int]()
        batcher = Batcher(worker.run, 8, 10.0, sizes.append)
        first = await _submitted(batcher, _rows(b"\x01\x02"))
        await asyncio.sleep(0)
        rest = await _submitted(batcher, _rows(b"\x03\x04"), _rows(b"\x05\x06\x07"), _rows(b"\x08\x09", b"\x0a\x0b"))
        worker.may_run.set()
        answers = await asyncio.gather(*first, *rest)
        assert worker.batches == [1, 3, 1] and sizes == [1, 2, 1]
        assert [bytes(one.data) for (one,) in answers] == [
            b"\x02\x03", b"\x04\x05", b"\x06\x07\x08", b"\x09\x0a\x0b\x0c",
        ]  # fmt: skip
        assert [one.shape for (one,) in answers] == [(1, 2), (1, 2), (1, 3), (2, 2)]
        assert batcher.is_idle

    _in_loop(test)


def test_a_wrong_request_fails_alone() -> None:
    async def test() -> None:
        worker = _Worker()
        worker.may_run.set()
        batcher = Batcher(worker.run, 8, 0.0)
        tasks = await _submitted(batcher, *[_rows(bytes([n])) for n in (1, 255, 3)])
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers[1], ShapeError)
        assert [bytes(answers[n][0].data) for n in (0, 2)] == [b"\x02", b"\x04"]  # type: ignore[index]

    _in_loop(test)


def test_callers_take_turns_and_batches_have_room() -> None:
    async def test() -> None:
        worker = _Worker()
        batcher = Batcher(worker.run, 4, 0.0)
        blocked = await _submitted(batcher, _rows(b"\x00"))
        await asyncio.sleep(0)
        many = await _submitted(batcher, *[_rows(bytes([n])) for n in range(1, 7)], who="a")
        few = await _submitted(batcher, _rows(b"\x20"), who="b")
        large = await _submitted(batcher, _rows(*[b"\x30"] * 6), who="c")
        finished: list[str] = []
        for name, tasks in (("a", many), ("b", few), ("c", large)):
            for task in tasks:
                task.add_done_callback(lambda _, name=name: finished.append(name))
        worker.may_run.set()
        await asyncio.gather(*blocked, *many, *few, *large)
        assert worker.batches == [1, 4, 6, 3]  # what is larger than a batch runs alone
        assert sorted(finished[:4]) == ["a", "a", "a", "b"]

    _in_loop(test)


def test_who_has_left_is_forgotten_and_the_end_is_told() -> None:
    async def test() -> None:
        worker = _Worker()
        batcher = Batcher(worker.run, 4, 0.0)
        blocked = await _submitted(batcher, _rows(b"\x00"))
        await asyncio.sleep(0)
        gone, waiting = await _submitted(batcher, _rows(b"\x01"), _rows(b"\x02"))
        gone.cancel()
        await asyncio.sleep(0)
        stopping = asyncio.create_task(batcher.stop())
        worker.may_run.set()
        await stopping
        assert bytes((await blocked[0])[0].data) == b"\x01"
        with pytest.raises(ReplacedError):
            await waiting
        with pytest.raises(ReplacedError):
            await batcher.submit(_rows(b"\x03"))
        assert worker.batches == [1] and batcher.is_idle

    _in_loop(test)


@pytest.mark.parametrize(
    ("inputs", "outputs", "wanted"),
    [
        ([("b", 3)], [("b", 5)], "b"),
        ([("b", "t"), ("b",)], [("b", "t"), ("b", "t")], "b"),
        ([("b", 3)], [("b",), (2, "b")], None),
        ([("b", "b")], [("b", 1)], None),
        ([("b", 3), ("c", 3)], [("b", 1)], None),
        ([(4, 3)], [(4, 3)], None),
        ([("b", 3)], [()], None),
    ],
)
def test_only_what_has_rows_everywhere_is_batched(inputs: Any, outputs: Any, wanted: str | None) -> None:
    def shape(sizes: tuple[int | str, ...]) -> tuple[Size, ...]:
        made: list[int | Formula] = [symbol(size) if isinstance(size, str) else size for size in sizes]
        return tuple(made)

    given = [
        Input(dtype="uint8", shape=shape(s), name=f"x{n}", value=n, place=n) for n, s in enumerate(inputs)
    ]  # fmt: skip
    made = [Output(dtype="uint8", shape=shape(s), name=f"y{n}", value=n) for n, s in enumerate(outputs)]
    assert batch_symbol(ProgramDescription(VERSION, (), tuple(given), (), (), tuple(made))) == wanted
