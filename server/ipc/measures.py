"""What a worker tells its operator: times in histograms of fixed buckets, and notices of what has happened.

Histograms are read by a control request; notices are sent to the gateway as they come, which writes logs and traces.
"""

from __future__ import annotations

from operator import add
from typing import Final, TypeAlias

from msgspec import Struct, structs

BOUNDS: Final = (
    25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Upper bounds of the buckets, in seconds; what is above the last one has a bucket, too."""


class HistogramState(Struct, frozen=True, array_like=True):
    """How many values fell into each bucket, and their sum."""

    counts: list[int]
    sum: float


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
    """A turn of a session took long; ``operation`` and ``site`` are those that it began with.

    ``end`` is a time of ``time.time``.
    """

    session: int
    end: float
    seconds: float
    operation: str
    site: str


Notice: TypeAlias = InstructionFailed | SlowTurn


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


class CompilationCounts(Struct, frozen=True, array_like=True):
    """Texts of CUDA kernels that a worker has had compiled: in the middle of sessions' work, and beside it.

    ``failed`` are those of the latter that could not be.
    """

    on_path: int = 0
    beside: int = 0
    failed: int = 0


class ChoiceCounts(Struct, frozen=True, array_like=True):
    """How often a worker has asked libraries how to compute something in given sizes, or knew it from others."""

    asked: int = 0
    borrowed: int = 0


class WorkerState(Struct, frozen=True, array_like=True):
    """The answer to ``Measurements``: histograms and the loads of tenants by name, and what the process uses."""

    turn: HistogramState
    queue: HistogramState
    round_trip: HistogramState
    device: HistogramState
    loads: dict[str, TenantLoad]
    resident_bytes: int
    cpu_seconds: float
    compilations: CompilationCounts = CompilationCounts()
    choices: ChoiceCounts = ChoiceCounts()
