"""Ends what takes too long in one worker process: cancels the turn, and where that does not help kills the process.

It reads what the worker notes in shared memory, so that it needs no answer. Knows sessions by number.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import time
from typing import Final

from server.ipc.heartbeat import Turn
from telegrad_protocol.errors import LimitExceededError, TelegradError

from .process import WorkerProcess

CANCEL_SECONDS: Final = 1.0
"""How long a worker may take to cancel a turn; the process is killed after that."""
UNRESPONSIVE_SECONDS: Final = 3.0
"""A worker that works on one turn for so long, or leaves a request unanswered, counts as unresponsive."""
ANSWER_SECONDS: Final = 120.0
"""A worker that leaves a request unanswered for so long is killed, whatever it does."""
PING_SECONDS: Final = 10.0
"""How often a worker is asked something, so that one shows that does nothing."""
_LONGEST_PAUSE: Final = 0.5
PATIENCE_SECONDS: Final = CANCEL_SECONDS + 2 * _LONGEST_PAUSE
"""For so much longer a session without kernels of its own may wait for a device.

What holds the device up may be a worker that hangs since the same time: it is ended first, and those that wait go on.
"""

log = logging.getLogger(__name__)


def is_unresponsive(process: WorkerProcess) -> bool:
    """Whether a worker has been busy with one thing for so long that it is of no use to others."""
    now = time.perf_counter()
    begins = [turn.begin for turn in (process.heartbeat.turn(), process.heartbeat.longest_wait()) if turn is not None]
    return any(now - begin > UNRESPONSIVE_SECONDS for begin in [*begins, process.oldest_request or now])


class Watchdog:
    """Watches one process: no instruction may take longer than ``limit`` seconds, on the host or on a device.

    For sessions that have launched kernels of their own a device may be without progress for ``kernel_limit`` seconds.
    """

    def __init__(self, process: WorkerProcess, limit: float, kernel_limit: float = math.inf) -> None:
        self._process, self._limit, self._kernel_limit = process, limit, min(limit, kernel_limit)
        self._heartbeat = process.heartbeat
        self._heartbeat.limit = limit
        self._cancelled: Turn | None = None
        self._has_killed = False

    async def run(self) -> None:
        """Watch until the process has ended."""
        pinging = asyncio.get_running_loop().create_task(self._ping())
        try:
            while self._process.alive:
                self._look(time.perf_counter())
                await asyncio.sleep(min(self._kernel_limit / 20, _LONGEST_PAUSE))
        finally:
            pinging.cancel()

    def _look(self, now: float) -> None:
        if self._has_killed:
            return
        turn = self._heartbeat.turn()
        overdue = [wait for wait in self._heartbeat.waits() if now - wait.begin > self._longest(wait)]
        if overdue:  # who waits longest, of those that could, has most likely launched what does not end
            self._kill(min(overdue, key=lambda wait: (not wait.has_kernels, wait.begin)), "a kernel on the device")
        elif turn is not None and now - turn.begin > self._limit:
            if turn != self._cancelled:
                self._cancel(turn)
            elif now - turn.begin > self._limit + CANCEL_SECONDS:
                self._kill(turn, "an instruction")
        elif now - (self._process.oldest_request or now) > max(ANSWER_SECONDS, 2 * self._limit):
            log.error("worker killed", extra={"worker": self._process.number, "reason": "it does not answer"})
            self._has_killed = True
            self._process.events.watchdog_acted(self._process.number, "silent", 0)
            self._process.kill("did not answer and was ended")

    def _longest(self, wait: Turn) -> float:
        """Return for how long a session may wait for a device without progress."""
        return self._kernel_limit if wait.has_kernels else self._limit + PATIENCE_SECONDS

    def _limit_of(self, turn: Turn) -> float:
        return self._kernel_limit if turn.has_kernels else self._limit

    def _cancel(self, turn: Turn) -> None:
        log.warning("turn cancelled", extra={"worker": self._process.number, "session_number": turn.session})
        self._process.events.watchdog_acted(self._process.number, "cancelled", turn.session)
        self._cancelled = turn
        self._heartbeat.cancel(turn)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGUSR1)

    def _kill(self, turn: Turn, what: str) -> None:
        name = "KERNEL" if turn.has_kernels and self._kernel_limit < self._limit else "INSTRUCTION"
        limit = f"{self._limit_of(turn):g} s, which is the limit (TELEGRAD_{name}_SECONDS)"
        log.error("worker killed", extra={"worker": self._process.number, "session_number": turn.session})
        self._has_killed = True
        self._process.events.watchdog_acted(self._process.number, "killed", turn.session)
        self._process.kill(
            f"was ended, since {what} of one of its sessions took longer than {limit}",
            turn.session, LimitExceededError(f"{what} of this session took longer than {limit}"),
        )  # fmt: skip

    async def _ping(self) -> None:
        with contextlib.suppress(TelegradError):
            while True:
                await asyncio.sleep(PING_SECONDS)
                await self._process.request(None, "counters", [])
