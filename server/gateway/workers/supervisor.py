"""Keeps one worker running: starts its process, notices its death, and starts it again. Knows no session.

One that dies again and again waits longer and longer before it is started, and no other worker knows of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Hashable
from typing import Any, Final, Literal, TypeAlias

from server.gateway.device_groups import DeviceGroup
from telegrad_protocol.errors import TelegradError, WorkerCrashedError

from .events import UNHEARD, WorkerEvents
from .limits import Limits
from .process import ENGINE, WorkerProcess
from .watchdog import Watchdog, is_unresponsive

START_SECONDS: Final = 180.0
"""A worker that has said nothing for so long will not start: creating a CUDA context takes seconds."""
HEALTHY_SECONDS: Final = 30.0
"""A worker that lived this long is started again at once; after shorter lives the pause doubles."""
MAX_PAUSE_SECONDS: Final = 10.0

State: TypeAlias = Literal["serving", "unresponsive", "starting", "restarting"]
"""What a worker does; it is starting until it has served for the first time, and unresponsive while one thing keeps it
busy for seconds."""

Use: TypeAlias = Literal["shared", "tenant", "session", "spare"]
"""Whose sessions live on a worker: everybody's, those of one tenant, one alone, or nobody's yet."""

_NO_LIMITS: Final = Limits()

log = logging.getLogger(__name__)


class Supervisor:
    """Keeps the worker ``number`` of the node running, which has the devices of ``group``."""

    def __init__(
        self, number: int, group: DeviceGroup, host: str = ENGINE, log_level: str = "INFO",
        limits: Limits = _NO_LIMITS, events: WorkerEvents = UNHEARD,
    ) -> None:  # fmt: skip
        self.number, self.group = number, group
        self.restarts = 0
        self.use: Use = "shared"
        self.holder: Hashable = None
        """Whose sessions alone may live on the worker, where it is one of a tenant or of a session."""
        self.claims = 0
        """How many sessions live on the worker or are being opened there."""
        self._options = (number, group, host, log_level, limits, events)
        self._limits = limits
        self._worker: WorkerProcess | None = None
        self._has_served = False
        self._watch: asyncio.Task[None] | None = None
        self._watchdog: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """What the worker does."""
        worker = self._running
        if worker is not None:
            return "unresponsive" if is_unresponsive(worker) else "serving"
        return "restarting" if self._has_served else "starting"

    @property
    def _running(self) -> WorkerProcess | None:
        worker = self._worker
        return worker if worker is not None and worker.alive and worker.hello.done() else None

    @property
    def worker(self) -> WorkerProcess:
        """The worker's process, or ``WorkerCrashedError`` while there is none that answers."""
        worker = self._running
        if worker is None:
            raise WorkerCrashedError(f"the engine process of {self.group} is being started; try again in a moment")
        return worker

    async def request(self, verb: str, args: list[Any]) -> Any:
        """Put a control request to the whole worker; raises the error that it is answered with."""
        return await self.worker.request(None, verb, args)

    async def start(self) -> None:
        """Start the worker and wait until it serves; where that fails, it is tried again until ``stop``."""
        try:
            await self._start()
        finally:
            self._watch = asyncio.get_running_loop().create_task(self._keep_running())

    async def stop(self) -> None:
        """End the worker for good."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        if self._worker is not None:
            await self._worker.stop()
        if self._watchdog is not None:
            self._watchdog.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watchdog

    def kill(self) -> None:
        """End the process at once; ``stop`` has to follow."""
        if self._watch is not None:
            self._watch.cancel()
        if self._worker is not None:
            self._worker.kill("was ended at once")

    async def _start(self) -> None:
        try:
            self._worker = worker = WorkerProcess(*self._options)
        except OSError as error:
            raise WorkerCrashedError(f"the engine process cannot be started: {error.strerror}") from error
        try:
            await asyncio.wait_for(asyncio.shield(worker.hello), START_SECONDS)
        except BaseException:
            await worker.stop()
            raise
        self._has_served = True
        self._watchdog = asyncio.get_running_loop().create_task(
            Watchdog(worker, self._limits.instruction_seconds, self._limits.kernel_seconds).run()
        )
        log.info("worker started", extra=self._described(pid=worker.pid))

    async def _keep_running(self) -> None:
        pause = 0.0
        while True:
            began = time.monotonic()
            if self._worker is not None:
                reason = await asyncio.shield(self._worker.death)
                log.error("worker died", extra=self._described(reason=reason))
            pause = 0.0 if time.monotonic() - began > HEALTHY_SECONDS else min(pause * 2 or 0.1, MAX_PAUSE_SECONDS)
            await asyncio.sleep(pause)
            self.restarts += 1
            with contextlib.suppress(TimeoutError, TelegradError):
                await self._start()

    def _described(self, **rest: Any) -> dict[str, Any]:
        return {"worker": self.number, "devices": list(self.group.devices), **rest}
