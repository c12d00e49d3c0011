"""The workers of one server: starts and stops them together, and finds the one that a session is placed on.

Knows nothing of sessions but how much of a load those of each worker are.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from server.ipc.requests import DeviceInfo
from telegrad_protocol.errors import TelegradError, WorkerCrashedError

from .device_groups import DeviceGroup
from .placement import Load, fitting, smallest
from .supervisor import Supervisor
from .warmup import Warming, architecture_of
from .worker_process import ENGINE

PLACE_SECONDS: Final = 5.0
"""How long a session waits while all workers that fit it are being started."""
POLL_SECONDS: Final = 0.05
ANSWER_SECONDS: Final = 1.0
"""A worker that has not told its free memory for so long is busy, and comes last."""


class Node:
    """One worker for each group of devices."""

    def __init__(
        self, groups: Iterable[DeviceGroup], host: str = ENGINE, log_level: str = "INFO",
        warming: Warming | None = None,
    ) -> None:  # fmt: skip
        self.workers = [Supervisor(number, group, host, log_level) for number, group in enumerate(groups)]
        self._warming = warming or Warming()

    async def start(self) -> None:
        """Start all workers and wait for them; fails if none can be started."""
        started = await asyncio.gather(*(worker.start() for worker in self.workers), return_exceptions=True)
        failures = [failure for failure in started if failure is not None]
        if len(failures) == len(self.workers):
            await self.stop()
            raise failures[0]
        await self._warm()

    async def stop(self) -> None:
        """End all workers for good."""
        self._warming.stop()
        await asyncio.gather(*(worker.stop() for worker in self.workers))

    async def place(self, gpus: int | None, loads: Callable[[], Mapping[int, float]], deadline: float) -> Supervisor:
        """The worker for a session that wants this many GPUs; ``loads`` tells that of the sessions of each worker.

        Waits for a worker that is being started until ``deadline``, a time of ``time.monotonic``. Raises DeviceError
        if there is no such worker, WorkerCrashedError if it does not serve in time.
        """
        fit = fitting(self.workers, gpus)
        while True:
            serving = [worker for worker in fit if worker.state == "serving"]
            if serving:
                return await self._least_loaded(smallest(serving), loads)
            if time.monotonic() >= deadline:
                devices = "; ".join(str(worker.group) for worker in fit)
                raise WorkerCrashedError(f"the engine process of {devices} is being started; try again in a moment")
            await asyncio.sleep(POLL_SECONDS)

    async def _least_loaded(self, workers: list[Supervisor], loads: Callable[[], Mapping[int, float]]) -> Supervisor:
        if len(workers) == 1:
            return workers[0]
        shares = await asyncio.gather(*map(_free_share, workers))
        sessions = loads()
        ranked = [
            (Load(sessions.get(worker.number, 0.0), share).rank, worker) for worker, share in zip(workers, shares)
        ]
        return min(ranked, key=lambda pair: pair[0])[1]

    async def _warm(self) -> None:
        """Have the usual kernels compiled, once for all GPUs of an architecture; without a GPU there are none."""
        described = await asyncio.gather(*(_device_infos(worker) for worker in self.workers if worker.group.gpus))
        infos = itertools.chain.from_iterable(described)
        self._warming.start(architecture_of(info.capability) for info in infos if info.capability)


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
