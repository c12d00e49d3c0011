"""One run of a worker process: its start, its control channel, the answers that are awaited, and how it ended.

A worker is a fresh interpreter, not a fork: neither locks nor CUDA contexts nor sockets of the gateway come along.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from server.crash_notes import open_notes
from server.gateway.device_groups import DeviceGroup
from server.ipc import channel
from server.ipc.channel import AsyncChannel, Frame
from server.ipc.heartbeat import Heartbeat
from server.ipc.measures import Notice
from telegrad_protocol.errors import InternalError, TelegradError, WorkerCrashedError, revive
from telegrad_protocol.messages import Failure

from . import early
from .events import UNHEARD, WorkerEvents
from .limits import Limits

STOP_SECONDS: Final = 5.0
ENGINE: Final = "server.worker.host:Host"
"""The engine that workers serve, ``module:class``."""


class WorkerProcess:
    """One run of the worker ``number`` of the node."""

    def __init__(
        self, number: int, group: DeviceGroup, host: str, log_level: str, limits: Limits,
        events: WorkerEvents = UNHEARD,
    ) -> None:  # fmt: skip
        self.number, self.group, self.events = number, group, events
        ours, theirs = channel.channel_pair()
        loop = asyncio.get_running_loop()
        self.hello: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.death: asyncio.Future[str] = loop.create_future()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._asked: dict[int, float] = {}
        """When requests were put that are not answered yet, by number."""
        self._numbers = itertools.count(1)
        self.heartbeat = Heartbeat()
        arguments = ["--host", host, "--log-level", log_level]
        arguments += ["--devices", ",".join(group.session_devices), "--parent", str(os.getpid())]
        notes, self._notes = open_notes()
        arguments += ["--operation-work", str(limits.operation_work), "--graph-nodes", str(limits.graph_nodes)]
        arguments += ["--slow-seconds", str(limits.slow_seconds)]
        arguments += [] if limits.cpu_memory is None else ["--cpu-memory", str(limits.cpu_memory)]
        arguments += [] if limits.has_cpu else ["--without-cpu"]
        variants = limits.compiled_variants
        arguments += [] if variants is None else ["--compiled-variants", str(variants)]
        with theirs, os.fdopen(notes), self._closed_on_error(ours):
            descriptors = [theirs.fileno(), notes, self.heartbeat.fd]
            self._process = early.start(arguments, descriptors, group.environment())
        self._channel = AsyncChannel(ours, loop, self._on_frame, self._on_end)
        self._reaper: asyncio.Task[None] | None = None
        self._crash = ""
        self._blamed: tuple[int, TelegradError] | None = None

    @contextlib.contextmanager
    def _closed_on_error(self, ours: socket.socket) -> Iterator[None]:
        try:
            yield
        except OSError:
            ours.close()
            self.heartbeat.close()
            raise

    @property
    def oldest_request(self) -> float | None:
        """When the oldest request was put that is not answered yet, as ``time.perf_counter`` counts."""
        return next(iter(self._asked.values()), None)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._channel.closed

    async def request(self, session: int | None, verb: str, args: list[Any], fd: int | None = None) -> Any:
        """Put a control request; raises the error that it is answered with. ``fd`` is passed on and closed here."""
        number = next(self._numbers)
        body = msgspec.msgpack.encode([session, verb, args])
        if fd is None:
            self._channel.send(channel.REQUEST, number, [body])
        else:
            self._channel.send_with_fd(channel.REQUEST, number, body, fd)
        if not self.alive:
            raise WorkerCrashedError(await asyncio.shield(self.death))
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._asked[number] = time.perf_counter()
        try:
            return await answer
        finally:
            del self._answers[number]

    def kill(self, reason: str, session: int = 0, error: TelegradError | None = None) -> None:
        """End the process by force; ``error`` is what the session of this number is told, the others get ``reason``."""
        if self._process.returncode is None:
            self._crash = self._crash or reason
            if error is not None:
                self._blamed = session, error
            self._process.kill()

    def error_for(self, session: int) -> TelegradError | None:
        """What a session is told if the process was ended because of it."""
        return self._blamed[1] if self._blamed is not None and self._blamed[0] == session else None

    async def stop(self) -> None:
        """End the process, by closing its channel and by force if that does not do."""
        if self.alive:
            self._channel.close()
            self._on_end()
        if self._reaper is not None:
            await self._reaper

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind == channel.HELLO:
            self.hello.set_result(msgspec.msgpack.decode(frame.body))
            return
        if frame.kind == channel.CRASH:
            self._crash = f"gave up: {msgspec.msgpack.decode(frame.body, type=str)}"
            return
        if frame.kind == channel.NOTICES:
            self.events.noticed(self.number, msgspec.msgpack.decode(frame.body, type=list[Notice]))
            return
        self._asked.pop(frame.number, None)
        answer = self._answers.get(frame.number)
        if answer is None or answer.done():
            return
        succeeded, value = msgspec.msgpack.decode(frame.body)
        if succeeded:
            answer.set_result(value)
        else:
            answer.set_exception(_error_of(msgspec.convert(value, Failure)))

    def _on_end(self) -> None:
        if self._reaper is None:  # the channel may end while the process is being stopped
            self._reaper = asyncio.get_running_loop().create_task(self._reap())

    async def _reap(self) -> None:
        loop = asyncio.get_running_loop()
        code = await loop.run_in_executor(None, _wait, self._process)
        running = self._notes.running
        self._notes.close()
        reason = f"the engine process {self.pid} {self._crash or _describe_exit(code)}"
        reason += f" in the extension's function {running}" if running else ""
        self._asked.clear()
        self.heartbeat.close()
        self.death.set_result(reason)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(WorkerCrashedError(reason))
        if not self.hello.done():
            self.hello.set_exception(WorkerCrashedError(f"{reason} before it was ready"))
            self.hello.exception()  # somebody may have stopped waiting for it


def _wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited with status {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def _error_of(failure: Failure) -> TelegradError:
    if not failure.code:
        return InternalError(failure.message)
    return revive(failure.code, failure.message, failure.operation, failure.operands, failure.site, failure.traceback)
