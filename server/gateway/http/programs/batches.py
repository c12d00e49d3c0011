"""Requests for one program that wait together run together: they are concatenated along their first dimension.

Knows neither HTTP nor workers: ``run`` computes one list of inputs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from telegrad_protocol.exported.description import ProgramDescription
from telegrad_protocol.exported.sizes import Formula, Size, is_symbol


class ReplacedError(Exception):
    """The program was replaced or removed before the request's turn had come: nothing of it was computed."""


class Elements(NamedTuple):
    """A tensor as row-major bytes. Its type is that of the program's input or output."""

    shape: tuple[int, ...]
    data: bytes | memoryview


ROWS: Final = tuple([rows for power in range(17) for rows in (1 << power, 3 << power >> 1) if rows])
"""The rows that batches have: powers of two, and one and a half times such."""
Inputs = Sequence[Elements]
Run = Callable[[Inputs], Awaitable[list[Elements]]]


@dataclass(eq=False)
class _Request:
    inputs: Inputs
    rows: int
    answer: asyncio.Future[list[Elements]]
    form: tuple[tuple[int, ...], ...] = field(init=False)
    """What must be equal for requests to run together: the shapes but for the first dimension."""

    def __post_init__(self) -> None:
        self.form = tuple([tensor.shape[1:] for tensor in self.inputs])


def batch_symbol(program: ProgramDescription) -> str | None:
    """Return the size that requests of a program may add up to: the first one of all inputs and outputs, and no other.

    None where there is no such size: then each request runs alone.
    """
    shapes = [tensor.shape for tensor in (*program.inputs, *program.outputs)]
    firsts = {shape[0] if shape else None for shape in shapes}
    if not program.inputs or len(firsts) != 1:
        return None
    (first,) = firsts
    if first is None or not is_symbol(first):
        return None
    name = str(first)
    return None if any([_names(size, name) for shape in shapes for size in shape[1:]]) else name


def _names(size: Size, name: str) -> bool:
    return isinstance(size, Formula) and name in size.names()


class Batcher:
    """The requests that wait for one program, by who has sent them: callers take turns in a batch.

    ``most`` is how many rows run together, 1 where requests cannot. Where the last batch held several requests, the
    next waits for up to ``wait`` seconds for half as many; a request to an idle program runs at once. ``observe`` is
    told of every batch how many requests it has.
    """

    def __init__(
        self, run: Run, most: int, wait: float, observe: Callable[[int], None] = lambda requests: None
    ) -> None:  # fmt: skip
        self._run_one, self._most, self._wait, self._observe = run, most, wait, observe
        self._queues: dict[str, deque[_Request]] = {}
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last = 1
        self._is_stopped = False

    def waiting(self, who: str) -> int:
        """Return how many requests of a caller wait."""
        return len(self._queues.get(who, ()))

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or runs."""
        return self._task is None

    async def submit(self, inputs: Inputs, who: str = "") -> list[Elements]:
        """Return the outputs for these inputs; raises what running them raises, or ReplacedError after ``stop``."""
        if self._is_stopped:
            raise ReplacedError
        request = _Request(inputs, _rows(inputs), asyncio.get_running_loop().create_future())
        self._queues.setdefault(who, deque()).append(request)
        self._arrived.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())
        return await request.answer

    async def stop(self) -> None:
        """Answer what waits and what comes with ReplacedError, and wait for what runs."""
        self._is_stopped = True
        for queue in self._queues.values():
            for request in queue:
                _refuse(request, ReplacedError())
        self._queues.clear()
        if self._task is not None:
            await self._task

    async def _work(self) -> None:
        try:
            while self._queues:
                await self._gather()
                batch = self._take()
                if batch:
                    self._last = len(batch)
                    self._observe(len(batch))
                    await self._run(batch)
        finally:
            self._task = None

    async def _gather(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait
        wanted = min(self._last, self._most) // 2
        while sum(map(len, self._queues.values())) < wanted and (left := deadline - loop.time()) > 0:
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                return

    def _take(self) -> list[_Request]:
        """Take requests of one form, one of each caller in turn, as many as run together.

        Those of callers who have left are dropped. Who was served first is served last the next time.
        """
        batch: list[_Request] = []
        rows, most = 0, self._most
        turns = deque(self._queues)
        while turns and rows < most:
            who = turns.popleft()
            request = _next(self._queues[who], batch[0].form if batch else None, most - rows)
            if request is None:
                continue
            turns.append(who)
            if not batch:
                self._queues[who] = self._queues.pop(who)
                most = self._rows_for(request)
            batch.append(request)
            rows += max(request.rows, 1)
        self._queues = {who: queue for who, queue in self._queues.items() if queue}
        return batch

    def _rows_for(self, first: _Request) -> int:
        """Return how many rows to take: one of few numbers, since a program is optimised for each that comes often."""
        others = [request for queue in self._queues.values() for request in queue if request.form == first.form]
        waiting = first.rows + sum([request.rows for request in others])
        return min(self._most, max([rows for rows in ROWS if rows <= waiting], default=1))

    async def _run(self, batch: Sequence[_Request]) -> None:
        try:
            outputs = await self._run_one(_together([request.inputs for request in batch]))
            parts = _apart(outputs, [request.rows for request in batch])
        except Exception as error:
            if len(batch) == 1:
                _refuse(batch[0], error)
                return
            for request in batch:  # one of them may be wrong, and the others are not
                await self._run([request])
            return
        for request, part in zip(batch, parts, strict=True):
            if not request.answer.done():
                request.answer.set_result(part)


def _next(queue: deque[_Request], form: tuple[tuple[int, ...], ...] | None, room: int) -> _Request | None:
    """Take the first request of a form, or of any, that has room in a batch; the first of a batch always has."""
    for place, request in enumerate(queue):
        if request.answer.done():
            continue
        if form is None or (request.form == form and 0 < request.rows <= room):
            del queue[place]
            return request
    while queue and queue[0].answer.done():
        queue.popleft()
    return None


def _refuse(request: _Request, error: Exception) -> None:
    if not request.answer.done():
        request.answer.set_exception(error)


def _rows(inputs: Inputs) -> int:
    return inputs[0].shape[0] if inputs and inputs[0].shape else 0


def _together(requests: Sequence[Inputs]) -> Inputs:
    if len(requests) == 1:
        return requests[0]
    made = []
    for parts in zip(*requests, strict=True):
        rows = sum([part.shape[0] for part in parts])
        made.append(Elements((rows, *parts[0].shape[1:]), b"".join([part.data for part in parts])))
    return made


def _apart(outputs: Sequence[Elements], rows: Sequence[int]) -> list[list[Elements]]:
    """Divide outputs among requests, by the rows that each has brought."""
    if len(rows) == 1:
        return [list(outputs)]
    parts: list[list[Elements]] = [[] for _ in rows]
    for output in outputs:
        total, view, begin = sum(rows), memoryview(output.data), 0
        stride = len(view) // total
        if output.shape[0] != total or stride * total != len(view):
            raise ValueError("a program's output does not have a row for each row of its inputs")
        for part, count in zip(parts, rows, strict=True):
            part.append(Elements((count, *output.shape[1:]), view[begin : begin + count * stride]))
            begin += count * stride
    return parts
