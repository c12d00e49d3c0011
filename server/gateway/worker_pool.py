"""The workers that run: shared ones as long as the server, and those of one tenant or session as long as it needs them.

A worker that belongs to somebody is never given to somebody else. Spare workers belong to nobody yet: they are started
ahead, so that who needs a worker of his own does not wait for the start of a process. Knows no session but by number
of claims.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Hashable, Sequence
from typing import Final

from telegrad_protocol.errors import CommunicationError, TelegradError

from .device_groups import DeviceGroup
from .placement import Isolation
from .workers.events import UNHEARD, WorkerEvents
from .workers.limits import Limits
from .workers.process import ENGINE
from .workers.supervisor import Supervisor, Use

_NO_LIMITS: Final = Limits()

log = logging.getLogger(__name__)


class WorkerPool:
    """Starts workers on the device groups of a server and ends them.

    ``max_workers`` bounds the processes that are not shared. ``spare_workers`` are kept ready for each group, unless
    workers are shared. ``limits``: of their instructions. ``events`` is told what happens in them.
    """

    def __init__(
        self, groups: Sequence[DeviceGroup], host: str = ENGINE, log_level: str = "INFO",
        isolation: Isolation = "shared", max_workers: int = 16, spare_workers: int = 1,
        limits: Limits = _NO_LIMITS, events: WorkerEvents = UNHEARD,
    ) -> None:  # fmt: skip
        self.groups, self.isolation, self.max_workers = list(groups), isolation, max_workers
        self.running: list[Supervisor] = []
        """All workers that serve or are being started, by number."""
        self._spare_workers = 0 if isolation == "shared" else spare_workers
        self._options = host, log_level, limits, events
        self._ending: dict[Supervisor, asyncio.Task[None]] = {}
        self._starting: dict[Supervisor, asyncio.Task[None]] = {}
        if isolation == "shared":
            for group in groups:
                self._add(group, "shared")

    @property
    def shared(self) -> list[Supervisor]:
        """The workers that sessions of everybody live on."""
        return [worker for worker in self.running if worker.use == "shared"]

    @property
    def is_ending(self) -> bool:
        """Whether there will soon be room for another worker."""
        return bool(self._ending)

    @property
    def has_room(self) -> bool:
        """Whether another worker may be started."""
        own = sum(worker.use != "shared" for worker in self.running)
        return own + len(self._ending) < self.max_workers

    async def start(self) -> None:
        """Start the shared or spare workers and wait for them; fails if none can be started."""
        self._add_spares()
        started = await asyncio.gather(*(worker.start() for worker in self.running), return_exceptions=True)
        failures = [failure for failure in started if failure is not None]
        if failures and len(failures) == len(self.running):
            await self.stop()
            raise failures[0]

    async def stop(self) -> None:
        """End all workers for good."""
        self.max_workers = 0
        for worker in list(self.running):
            self._end(worker)
        await asyncio.gather(*self._ending.values())

    def held_by(self, holder: Hashable) -> list[Supervisor]:
        """The workers that belong to a tenant or a session."""
        return [worker for worker in self.running if worker.holder == holder]

    def take(self, group: DeviceGroup, holder: Hashable, use: Use) -> Supervisor:
        """A worker on ``group`` for a new holder, which may be being started; CommunicationError if there is no room.

        It is claimed once; ``release`` takes the claim back.
        """
        spares = sorted(self._spares(group), key=lambda worker: worker.state != "serving")
        if not (spares or self.has_room):
            raise CommunicationError(
                f"{self.max_workers} worker processes of tenants and sessions run, which is the limit "
                "(TELEGRAD_MAX_WORKERS)"
            )
        worker = spares[0] if spares else self._launch(group)
        worker.holder, worker.use, worker.claims = holder, use, 1
        self._refill()
        return worker

    def release(self, worker: Supervisor, was_used: bool = True) -> None:
        """Take back a claim; a worker that nobody claims any more ends, if it belongs to a tenant or a session."""
        worker.claims -= 1
        if worker.claims or worker.use == "shared" or worker not in self.running:
            return
        if was_used or len(self._spares(worker.group)) >= max(self._spare_workers, 1):
            self._end(worker)
        else:  # its start took longer than its holder waited: the next one need not wait
            worker.use, worker.holder = "spare", None

    def _spares(self, group: DeviceGroup) -> list[Supervisor]:
        return [worker for worker in self.running if worker.use == "spare" and worker.group == group]

    def _refill(self) -> None:
        for worker in self._add_spares():
            self._launched(worker)

    def _add_spares(self) -> list[Supervisor]:
        added = []
        for group in dict.fromkeys(self.groups):
            while len(self._spares(group)) < self._spare_workers and self.has_room:
                added.append(self._add(group, "spare"))
        return added

    def _add(self, group: DeviceGroup, use: Use) -> Supervisor:
        taken = {worker.number for worker in self.running} | {worker.number for worker in self._ending}
        number = next(number for number in itertools.count() if number not in taken)
        worker = Supervisor(number, group, *self._options)
        worker.use = use
        self.running.append(worker)
        self.running.sort(key=lambda worker: worker.number)
        return worker

    def _launch(self, group: DeviceGroup) -> Supervisor:
        return self._launched(self._add(group, "spare"))

    def _launched(self, worker: Supervisor) -> Supervisor:
        task = self._starting[worker] = asyncio.get_running_loop().create_task(_start(worker))
        task.add_done_callback(lambda _: self._starting.pop(worker, None))
        return worker

    def _end(self, worker: Supervisor) -> None:
        self.running.remove(worker)
        task = self._ending[worker] = asyncio.get_running_loop().create_task(self._stop(worker))
        task.add_done_callback(lambda _: self._ended(worker))

    async def _stop(self, worker: Supervisor) -> None:
        starting = self._starting.get(worker)
        if starting is not None:
            starting.cancel()
            await asyncio.wait([starting])
        await worker.stop()

    def _ended(self, worker: Supervisor) -> None:
        del self._ending[worker]
        self._refill()


async def _start(worker: Supervisor) -> None:
    """Start a worker; one that cannot be started is tried again by itself."""
    try:
        await worker.start()
    except (TelegradError, TimeoutError) as error:
        log.warning("worker not started", extra={"worker": worker.number, "reason": str(error)})
