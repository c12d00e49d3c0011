"""The workers of one server, and the choice of the one that a session is placed on.

Knows nothing of sessions but how much of a load those of each worker are.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from server.ipc.requests import DeviceInfo
from telegrad_protocol.errors import CommunicationError, TelegradError, WorkerCrashedError

from .device_groups import DeviceGroup
from .placement import Demand, Load, fitting, smallest
from .warmup import Warming, architecture_of
from .worker_pool import WorkerPool
from .workers.supervisor import Supervisor

PLACE_SECONDS: Final = 5.0
"""How long a session waits while all workers that fit it are being started."""
OWN_SECONDS: Final = 20.0
"""How long a session waits for a worker of its own or of its tenant, which may be a process that has to be started."""
POLL_SECONDS: Final = 0.05
ANSWER_SECONDS: Final = 1.0
"""A worker that has not told its free memory for so long is busy, and comes last."""

Loads: TypeAlias = Callable[[], Mapping[int, float]]


class Node:
    """The workers on the device groups of a server; ``options`` are those of ``WorkerPool``."""

    def __init__(self, groups: Iterable[DeviceGroup], *args: Any, warming: Warming | None = None, **options: Any):
        self.pool = WorkerPool(list(groups), *args, **options)
        self._warming = warming or Warming()

    @property
    def workers(self) -> list[Supervisor]:
        """The workers that serve or are being started, by number."""
        return self.pool.running

    async def start(self) -> None:
        """Start workers and wait for them; fails if none can be started."""
        await self.pool.start()
        await self._warm()

    async def stop(self) -> None:
        """End all workers for good."""
        self._warming.stop()
        await self.pool.stop()

    def kill(self) -> None:
        """End all workers at once; ``stop`` has to follow."""
        for worker in self.pool.running:
            worker.kill()

    async def place(self, demand: Demand, loads: Loads, wait: float | None = None) -> Supervisor:
        """The worker for a session; ``loads`` tells that of the sessions of each worker. ``release`` gives it back.

        Waits for a worker that is being started, for ``wait`` seconds if that is given. Raises DeviceError if no
        worker can ever serve the session, WorkerCrashedError if none serves in time, CommunicationError if there is no
        room for a worker of its own.
        """
        fit = fitting(self.pool.groups, demand.gpus)
        holder = self._holder(demand)
        if holder is None:
            return await self._place_shared(fit, loads, time.monotonic() + (PLACE_SECONDS if wait is None else wait))
        return await self._place_own(holder, fit, loads, time.monotonic() + (OWN_SECONDS if wait is None else wait))

    def release(self, worker: Supervisor, was_used: bool = True) -> None:
        """A session that was placed on ``worker`` has ended, or, if it was not used, could not be opened there."""
        self.pool.release(worker, was_used)

    def _holder(self, demand: Demand) -> Hashable | None:
        """Who a session's worker belongs to: a tenant by name, or the session alone; None if it is everybody's."""
        if demand.own_worker or self.pool.isolation == "session":
            return object()
        return demand.tenant if self.pool.isolation == "tenant" else None

    async def _place_shared(self, fit: list[DeviceGroup], loads: Loads, deadline: float) -> Supervisor:
        while True:
            serving = [worker for worker in self.pool.shared if worker.group in fit and worker.state == "serving"]
            if serving:
                groups = smallest(worker.group for worker in serving)
                chosen = await _least_loaded([worker for worker in serving if worker.group in groups], loads)
                chosen.claims += 1
                return chosen
            if time.monotonic() >= deadline:
                raise _not_serving("; ".join(map(str, fit)))
            await asyncio.sleep(POLL_SECONDS)

    async def _place_own(
        self, holder: Hashable, fit: list[DeviceGroup], loads: Loads, deadline: float
    ) -> Supervisor:  # fmt: skip
        group = await self._least_loaded_group(smallest(fit), loads)
        worker = await self._claimed(holder, group, fit, deadline)
        try:
            while worker.state != "serving":
                if time.monotonic() >= deadline:
                    raise _not_serving(str(worker.group))
                await asyncio.sleep(POLL_SECONDS)
        except BaseException:
            self.pool.release(worker, was_used=False)
            raise
        return worker

    async def _claimed(
        self, holder: Hashable, group: DeviceGroup, fit: list[DeviceGroup], deadline: float
    ) -> Supervisor:  # fmt: skip
        """The holder's worker on ``group``, or a new one, or where there is no room, another of the holder's."""
        while True:
            held = [worker for worker in self.pool.held_by(holder) if worker.group in fit]
            chosen = next((worker for worker in held if worker.group == group), None)
            try:
                if chosen is None:
                    return self.pool.take(group, holder, "tenant" if isinstance(holder, str) else "session")
            except CommunicationError:
                chosen = next(iter(held), None)
                if chosen is None and (not self.pool.is_ending or time.monotonic() >= deadline):
                    raise
            if chosen is not None:
                chosen.claims += 1
                return chosen
            await asyncio.sleep(POLL_SECONDS)

    async def _least_loaded_group(self, groups: list[DeviceGroup], loads: Loads) -> DeviceGroup:
        """The group with the least load on all its workers; of equal ones, that with the most free memory."""
        if len(set(groups)) == 1:
            return groups[0]
        of_group = [[worker for worker in self.workers if worker.group == group] for group in groups]
        shares = await asyncio.gather(*map(_free_share_of_any, of_group))
        sessions = loads()
        ranked = [
            (Load(sum(sessions.get(worker.number, 0.0) for worker in workers), share).rank, group)
            for group, workers, share in zip(groups, of_group, shares)
        ]
        return min(ranked, key=lambda pair: pair[0])[1]

    async def _warm(self) -> None:
        """Have the usual kernels compiled, once for all GPUs of an architecture; without a GPU there are none."""
        described = await asyncio.gather(*(_device_infos(worker) for worker in self.workers if worker.group.gpus))
        infos = itertools.chain.from_iterable(described)
        self._warming.start(architecture_of(info.capability) for info in infos if info.capability)


def _not_serving(devices: str) -> WorkerCrashedError:
    return WorkerCrashedError(
        f"the engine process of {devices} is being started, or is busy with one instruction; try again in a moment"
    )


async def _least_loaded(workers: list[Supervisor], loads: Loads) -> Supervisor:
    if len(workers) == 1:
        return workers[0]
    shares = await asyncio.gather(*map(_free_share, workers))
    sessions = loads()
    ranked = [(Load(sessions.get(worker.number, 0.0), share).rank, worker) for worker, share in zip(workers, shares)]
    return min(ranked, key=lambda pair: pair[0])[1]


async def _free_share_of_any(workers: list[Supervisor]) -> float | None:
    """What ``_free_share`` tells of devices that these workers share; 1 where no worker has them yet."""
    return 1.0 if not workers else await _free_share(workers[0])


async def _free_share(worker: Supervisor) -> float | None:
    """The share of the memory of a worker's GPUs, or of its CPU, that can be had; None if it does not say at once."""
    try:
        infos = await asyncio.wait_for(_device_infos(worker), ANSWER_SECONDS)
    except TimeoutError:
        return None
    kind = "cuda" if worker.group.gpus else "cpu"
    counted = [info for info in infos if info.type == kind]
    cached = sum(info.reserved_memory - info.allocated_memory for info in counted)
    return (sum(info.free_memory for info in counted) + cached) / max(sum(info.total_memory for info in counted), 1)


async def _device_infos(worker: Supervisor) -> list[DeviceInfo]:
    with contextlib.suppress(TelegradError):
        return msgspec.convert(await worker.request("devices", []), list[DeviceInfo])
    return []
