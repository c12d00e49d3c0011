"""Executions whose steps are stamped: when each began and ended, and how many launches there were by then.

That is what a profile has to know of operations that are executed as one, where nothing else notes them, and of work
that is captured, since a profile may begin later. Knows a clock and what counts launches, and nothing of what is made
of the stamps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from server.engine import context
from server.engine.device import cancellation
from server.engine.device.interface import Counter
from telegrad_protocol.meta import Device

from .execution import NEVER, Call, Execution, Stop

now: Final = time.monotonic_ns


class Profiler(Protocol):
    """What notes a session."""

    with_memory: bool

    def counter(self, device: Device) -> Counter:
        """Return what counts the launches of a device."""

    def note_memory(self) -> None:
        """Note how memory has changed since the last look."""


class StampedExecution(Execution):
    """One execution; ``ends`` has a time for each step, ``counts`` one number more.

    ``look`` is called after each step; it looks at the memory, where that is noted.
    """

    __slots__ = ("_counter", "_look", "_resumed", "counts", "ends")

    def __init__(
        self, calls: Sequence[Call], table: list[Any], outputs: Sequence[int], counter: Counter,
        look: Callable[[], object] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(calls, table, outputs)
        self._look, self._counter = look, counter
        self._resumed: list[tuple[int, int]] = []
        self.ends: list[int] = []
        self.counts: list[int] = [counter.begin()]

    @property
    def starts(self) -> list[int]:
        """When each step began: as the one before it ended, or where the execution went on."""
        starts = [0, *self.ends[:-1]]
        for place, at in self._resumed:
            starts[place] = at
        return starts

    def advance(self, stop: Stop = NEVER) -> bool:
        """Execute steps until ``stop.holds`` or there are no more; what they consist of is noted by nobody else."""
        current = context.current
        profiler, current.profiler = current.profiler, None
        self._resumed.append((len(self.ends), now()))
        try:
            is_over = self._advance(stop)
        finally:
            current.profiler = profiler
        if is_over:
            self._counter.note_counts(self.counts)
        return is_over

    def _advance(self, stop: Stop) -> bool:
        """Do what ``Execution.advance`` does and stamp each step: a function around each would take twice as long."""
        calls, table, at, count = self._calls, self._table, self._at, len(self._calls)
        ended, counted, launches, look, clock = (
            self.ends.append,
            self.counts.append,
            self._counter.begin,
            self._look,
            now,
        )
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
                ended(clock())
                counted(launches())
                if look is not None:
                    look()
                for place in freed:
                    table[place] = None
                if stop.holds:
                    break
        finally:
            self._at = at
        return at == count
