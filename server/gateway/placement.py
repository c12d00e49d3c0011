"""Which devices a session gets: the least loaded of those that have what it asks for. It asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from telegrad_protocol.errors import DeviceError

from .device_groups import DeviceGroup

SESSION_LOAD: Final = 0.25
"""The load of an open session whose client sends nothing; that of one that works is 1 more."""
SCARCE: Final = 0.1
"""A worker on whose devices less than this share of memory can be had comes after all others."""
_MEMORY_STEPS: Final = 20
"""Workers whose free shares differ by less than this part of the whole count as equal."""

Isolation: TypeAlias = Literal["shared", "tenant", "session"]
"""Whose sessions live together on a worker: everybody's, those of one tenant, or one session alone."""


@dataclass(frozen=True)
class Demand:
    """What a session asks for: so many GPUs, and whether its worker is to be its own. ``tenant``: whose session it is.

    Who names no number of GPUs gets one if the server has one, and 0 stands for any worker.
    """

    gpus: int | None = None
    tenant: str = ""
    own_worker: bool = False


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


def fitting(groups: Sequence[DeviceGroup], gpus: int | None) -> list[DeviceGroup]:
    """The groups of devices that a session may be placed on; ``DeviceError`` if this server can never serve it."""
    least = min(1, max(group.gpus for group in groups)) if gpus is None else gpus
    fit = [group for group in groups if group.gpus >= least]
    if not fit:
        there = "; ".join(f"worker {number}: {group}" for number, group in enumerate(groups))
        wanted = f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"
        raise DeviceError(f"connect: no worker of this server has {wanted}; it has {there}")
    return fit


def smallest(groups: Iterable[DeviceGroup]) -> list[DeviceGroup]:
    """Those with the fewest GPUs, so that larger ones are left to who asks for more."""
    listed = list(groups)
    fewest = min(group.gpus for group in listed)
    return [group for group in listed if group.gpus == fewest]
