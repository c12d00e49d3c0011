"""Executing a specialised graph step by step, with stops in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from server.engine.device import cancellation


class Call(NamedTuple):
    """A step that is ready to run.

    ``take`` makes its arguments from the list of values; ``out`` is where its result goes, -1 where that is not needed,
    ``outs`` where several go. ``freed`` are the places that nothing reads afterwards.
    """

    run: Callable[[tuple[Any, ...]], Any]
    take: Callable[[list[Any]], tuple[Any, ...]]
    out: int
    outs: tuple[int, ...]
    freed: tuple[int, ...]


class Stop(Protocol):
    """Says whether an execution is to stop after its present step."""

    holds: bool


class _Never:
    """Lets an execution go on to its end."""

    holds = False


NEVER: Stop = _Never()


class Execution:
    """One execution: the list of its values, and how far it has come."""

    __slots__ = ("_at", "_calls", "_outputs", "_table")

    def __init__(self, calls: Sequence[Call], table: list[Any], outputs: Sequence[int]) -> None:
        self._calls = calls
        self._table = table
        self._outputs = outputs
        self._at = 0

    def advance(self, stop: Stop = NEVER) -> bool:
        """Execute steps until ``stop.holds`` or there are no more; returns whether all were executed."""
        calls, table, at, count = self._calls, self._table, self._at, len(self._calls)
        try:
            while at < count:
                run, take, out, outs, freed = calls[at]
                at += 1
                if cancellation.requested:
                    cancellation.stop()
                if out >= 0:
                    table[out] = run(take(table))
                elif outs:
                    for place, result in zip(outs, run(take(table)), strict=True):
                        table[place] = result
                else:
                    run(take(table))
                for place in freed:
                    table[place] = None
                if stop.holds:
                    break
        finally:
            self._at = at
        return at == count

    def outputs(self) -> tuple[Any, ...]:
        """Return what was wanted, once all steps were executed."""
        return tuple([self._table[place] for place in self._outputs])
