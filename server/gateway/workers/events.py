"""Whom a worker's process and its watchdog tell what happens. Knows no session but by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from server.ipc.measures import Notice

WatchdogAction: TypeAlias = Literal["cancelled", "killed", "silent"]
"""What becomes of what takes too long: its turn is cancelled, or its worker killed, also where that is silent."""


class WorkerEvents(Protocol):
    """What happens in and to workers, by their numbers."""

    def noticed(self, worker: int, notices: Sequence[Notice]) -> None:
        """A worker tells what has happened in it."""

    def watchdog_acted(self, worker: int, action: WatchdogAction, session: int) -> None:
        """The watchdog has ended a turn or a worker because of a session, or of none (0)."""


class _Unheard:
    """Nobody is told."""

    def noticed(self, worker: int, notices: Sequence[Notice]) -> None: ...

    def watchdog_acted(self, worker: int, action: WatchdogAction, session: int) -> None: ...


UNHEARD: WorkerEvents = _Unheard()
