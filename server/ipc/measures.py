"""What a worker counts for its operator: times in histograms of fixed buckets, and notices of what has happened.

A turn costs a few additions here, and no operation costs anything. Histograms are read by a control request; notices
are sent to the gateway as they come, which writes logs and traces. Knows neither sockets nor sessions.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from operator import add
from typing import Final, TypeAlias

from msgspec import Struct, structs

from telegrad_protocol.messages import Failure

BOUNDS: Final = (
    25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Upper bounds of the buckets, in seconds; what is above the last one has a bucket, too."""
MAX_TEXT: Final = 500
"""Characters of each text of a notice: clients choose them."""


class HistogramState(Struct, frozen=True, array_like=True):
    """How many values fell into each bucket, and their sum."""

    counts: list[int]
    sum: float


class Histogram:
    """Counts times by bucket."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one time."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    @property
    def state(self) -> HistogramState:
        """What was counted so far."""
        return HistogramState(list(self.counts), self.sum)


class InstructionFailed(Struct, frozen=True, array_like=True, tag="failed"):
    """Instructions of a session's stream have failed: ``count`` of one class, of which the first is described.

    ``ends`` says that the session ends with it.
    """

    session: int
    count: int
    code: str
    message: str
    operation: str
    operands: str
    site: str
    ends: bool


class SlowTurn(Struct, frozen=True, array_like=True, tag="slow"):
    """A turn of a session took long; ``operation`` and ``site`` are those of the last operation in it.

    ``end`` is a time of ``time.time``.
    """

    session: int
    end: float
    seconds: float
    operation: str
    site: str


Notice: TypeAlias = InstructionFailed | SlowTurn


class Measures:
    """The counts of one worker process."""

    def __init__(self, slow_seconds: float) -> None:
        self.slow_seconds = slow_seconds
        """From so many seconds on a turn is noticed."""
        self.turn, self.queue, self.round_trip = Histogram(), Histogram(), Histogram()
        self._failed: dict[tuple[int, str, bool], InstructionFailed] = {}
        self._slow: list[SlowTurn] = []
        self.has_notices = False

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


class TenantLoad(Struct, frozen=True, array_like=True):
    """What waits in one worker for one tenant's sessions.

    ``queued_instructions`` are decoded and not executed, ``queued_bytes`` are in frames that are not decoded,
    ``unsent_bytes`` in replies; ``ahead`` are instructions that a device is not known to have completed.
    """

    sessions: int = 0
    queued_instructions: int = 0
    queued_bytes: int = 0
    unsent_bytes: int = 0
    ahead: int = 0

    def plus(self, other: TenantLoad) -> TenantLoad:
        """The load of both."""
        return TenantLoad(*map(add, structs.astuple(self), structs.astuple(other)))


class WorkerState(Struct, frozen=True, array_like=True):
    """The answer to ``Measurements``: histograms and the loads of tenants by name, and what the process uses."""

    turn: HistogramState
    queue: HistogramState
    round_trip: HistogramState
    loads: dict[str, TenantLoad]
    resident_bytes: int
    cpu_seconds: float


def resident_bytes() -> int:
    """Bytes of memory that this process holds; 0 where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
