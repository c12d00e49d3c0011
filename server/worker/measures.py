"""What one worker process counts: times by bucket, and what has happened that the gateway is not told yet.

A turn appends a few times to lists, which are counted together once they are long. Knows neither sockets nor sessions.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

import numpy as np
from msgspec import structs

from server.ipc.measures import BOUNDS, HistogramState, InstructionFailed, Notice, SlowTurn
from telegrad_protocol.messages import Failure

MAX_TEXT: Final = 500
"""Characters of each text of a notice: clients choose them."""
COUNTED_TOGETHER: Final = 1024
"""Times that are kept before they are counted; it takes some ten microseconds."""


class Histogram:
    """Counts times by bucket; ``times`` takes them, in seconds, and stays the same list."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._counts = np.zeros(len(BOUNDS) + 1, np.int64)
        self._sum = 0.0

    def count(self) -> None:
        """Count the times that were taken. Clocks of two processes may differ by a little: none is below 0."""
        times = np.maximum(self.times, 0.0)
        self.times.clear()
        self._counts += np.bincount(np.searchsorted(BOUNDS, times), minlength=len(self._counts))
        self._sum += float(times.sum())

    @property
    def state(self) -> HistogramState:
        """What was counted so far."""
        self.count()
        return HistogramState(self._counts.tolist(), self._sum)


class Measures:
    """The counts of one worker process."""

    def __init__(self, slow_seconds: float) -> None:
        self.slow_seconds = slow_seconds
        """From so many seconds on a turn is noticed."""
        self.turn, self.queue, self.round_trip, self.device = Histogram(), Histogram(), Histogram(), Histogram()
        self._failed: dict[tuple[int, str, bool], InstructionFailed] = {}
        self._slow: list[SlowTurn] = []
        self.has_notices = False

    def count(self) -> None:
        """Count all times that were taken."""
        for histogram in (self.turn, self.queue, self.round_trip, self.device):
            histogram.count()

    def note_failure(self, session: int, failure: Failure, ends: bool = False) -> None:
        """Notice that an instruction has failed. Of one session and class, only the first is described until taken."""
        key = session, failure.code, ends
        known = self._failed.get(key)
        if known is None:
            self._failed[key] = InstructionFailed(
                session, 1, failure.code, failure.message[:MAX_TEXT], failure.operation[:MAX_TEXT],
                failure.operands[:MAX_TEXT], failure.site[:MAX_TEXT], ends,
            )  # fmt: skip
        else:
            self._failed[key] = structs.replace(known, count=known.count + 1)
        self.has_notices = True

    def note_slow(self, turn: SlowTurn) -> None:
        """Notice that a turn took long."""
        self._slow.append(turn)
        self.has_notices = True

    def take_notices(self) -> list[Notice]:
        """Return what was noticed since the last call."""
        notices: list[Notice] = [*self._failed.values(), *self._slow]
        self._failed.clear()
        self._slow.clear()
        self.has_notices = False
        return notices


def resident_bytes() -> int:
    """Bytes of memory that this process holds; 0 where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
