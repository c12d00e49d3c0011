"""Waiting for what usually comes soon: it is looked for again and again, before the process sleeps until it comes.

To put a process to sleep and to wake it takes tens of microseconds, on virtual machines often more than the other end
of a channel takes to answer. Between two looks the system may run whatever else wants the processor; where something
did, or a look took long for another reason, the process goes to sleep, and for a while it is not awake again. Knows
nothing of what is waited for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

from .processors import processors

Found = TypeVar("Found")

AWAKE_SECONDS: Final = 0.0005
"""For so long a process is awake at most, and only where what it waits for usually comes sooner."""
LONG_SECONDS: Final = 4 * AWAKE_SECONDS
"""Waiting for longer counts as waiting so long."""
DISTURBED_SECONDS: Final = 0.0001
"""A look and a chance for others that take so long say that the processor, or Python's lock, is wanted by others."""
FEWEST_REST: Final = 16
"""After a disturbance so many times are slept through at least; each further one doubles it, up to the most.

To be disturbed costs milliseconds, and to be awake saves some tens of microseconds, so each time that it was worth it
takes no more than one off.
"""
MOST_REST: Final = 4096
_RECENT: Final = 0.25
"""The part that the last time has in the average."""


class AwakeWaiting:
    """Decides by how long the last times took whether to be awake the next time.

    ``clock`` tells seconds, and ``give_way`` lets others have the processor for as long as they want it.
    """

    __slots__ = ("_clock", "_give_way", "_rest", "_resting", "_usual")

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, give_way: Callable[[], None] | None = None,
        available: int | None = None,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._give_way = give_way or getattr(os, "sched_yield", None)
        self._usual = LONG_SECONDS
        """How long was waited lately, on average."""
        self._rest, self._resting = FEWEST_REST, 0
        if self._give_way is None or (processors() if available is None else available) < 2:
            self._resting = -1  # the other end needs the processor

    def wait(self, look: Callable[[float | None], Found], timeout: float | None) -> Found:
        """Return what ``look(timeout)`` finds, which sleeps until there is something; ``look(0)`` does not sleep."""
        clock = self._clock
        begin = clock()
        found = self._look(look, begin) if self._usual < AWAKE_SECONDS and self._may_be_awake() else None
        if not found:
            found = look(timeout)
        self._usual += (min(clock() - begin, LONG_SECONDS) - self._usual) * _RECENT
        return found

    def _may_be_awake(self) -> bool:
        resting = self._resting
        if resting > 0:
            self._resting = resting - 1
        return not resting

    def _look(self, look: Callable[[float | None], Found], begin: float) -> Found | None:
        """Look until there is something, the time is over, or something else wants the processor."""
        assert self._give_way is not None
        clock, give_way, before = self._clock, self._give_way, begin
        while True:
            found = look(0)
            if found:
                self._rest = max(self._rest - 1, FEWEST_REST)
                return found
            give_way()
            now = clock()
            if now - before > DISTURBED_SECONDS:
                self._resting = self._rest
                self._rest = min(2 * self._rest, MOST_REST)
                return None
            if now - begin > AWAKE_SECONDS:
                return None
            before = now
