"""Which worker gets a session: the least loaded of those that have what it asks for. It asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from telegrad_protocol.errors import DeviceError

from .supervisor import Supervisor

SESSION_LOAD: Final = 0.25
"""The load of an open session whose client sends nothing; that of one that works is 1 more."""
SCARCE: Final = 0.1
"""A worker on whose devices less than this share of memory can be had comes after all others."""
_MEMORY_STEPS: Final = 20
"""Workers whose free shares differ by less than this part of the whole count as equal."""

Fitting = TypeVar("Fitting", bound=Supervisor)


@dataclass(frozen=True)
class Load:
    """How busy a worker is. ``free_share``: of its devices' memory, what can be had; None if it does not answer."""

    sessions: float
    free_share: float | None

    @property
    def rank(self) -> tuple[bool, float, int]:
        """The lower, the better to be placed there."""
        free = self.free_share or 0.0
        return free < SCARCE, round(self.sessions, 1), -int(free * _MEMORY_STEPS)


def fitting(workers: Sequence[Fitting], gpus: int | None) -> list[Fitting]:
    """The workers that a session may be placed on; ``DeviceError`` if this server can never serve it.

    Who names no number gets a GPU if the server has one, and 0 stands for any worker.
    """
    least = min(1, max(worker.group.gpus for worker in workers)) if gpus is None else gpus
    fit = [worker for worker in workers if worker.group.gpus >= least]
    if not fit:
        there = "; ".join(f"worker {worker.number}: {worker.group}" for worker in workers)
        wanted = f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"
        raise DeviceError(f"connect: no worker of this server has {wanted}; it has {there}")
    return fit


def smallest(workers: Iterable[Fitting]) -> list[Fitting]:
    """Those with the fewest GPUs, so that larger ones are left to who asks for more."""
    listed = list(workers)
    fewest = min(worker.group.gpus for worker in listed)
    return [worker for worker in listed if worker.group.gpus == fewest]
