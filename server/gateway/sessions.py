"""All open sessions: opens them on the worker, finds them, and closes them, also those that were lost.

Knows neither HTTP nor what is in a batch; ``stream`` moves the bytes, ``supervisor`` keeps the worker running.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from server import __version__
from server.ipc import channel
from telegrad_protocol.errors import (
    SessionLostError,
    TelegradError,
    UnknownIdError,
    WorkerCrashedError,
)
from telegrad_protocol.messages import PROTOCOL_VERSION, Hello

from .stream import SessionRelay
from .supervisor import STOP_SECONDS, Supervisor, WorkerProcess

REMEMBERED: Final = 1000
"""How many closed sessions are remembered with the reason why they ended."""

log = logging.getLogger(__name__)


class Registry:
    """The sessions of one gateway."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.frames_received = self.frames_sent = self.bytes_received = self.bytes_sent = 0
        self._sessions: dict[str, SessionRelay] = {}
        self._workers: dict[int, WorkerProcess] = {}
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def sessions(self) -> Mapping[str, SessionRelay]:
        """Open sessions by id."""
        return self._sessions

    async def start(self) -> None:
        """Start the worker."""
        await self.supervisor.start()

    async def stop(self) -> None:
        """Close every session and stop the worker."""
        reason = SessionLostError("the server is shutting down")
        await asyncio.gather(*(self.close(session, reason) for session in list(self._sessions.values())))
        await self.supervisor.stop()
        await asyncio.gather(*self._tasks)

    async def open(self, client: dict[str, Any], lease: float) -> SessionRelay:
        """Open a session for a client that describes itself; it outlives its connection by ``lease`` seconds."""
        worker = self.supervisor.worker
        number = next(self._numbers)
        ours, theirs = channel.channel_pair()
        try:
            await worker.request(number, "open", [client], fd=theirs.detach())
        except BaseException:
            ours.close()
            raise
        session = SessionRelay(
            number, self._hello(worker, lease), ours, asyncio.get_running_loop(), self._closed_by_client, self._lost,
            self._lease_ended,
        )  # fmt: skip
        self._sessions[session.id] = session
        self._workers[number] = worker
        log.info("session opened", extra={"session": session.id})
        return session

    def get(self, id: str) -> SessionRelay:
        """The session of this id, or ``UnknownIdError`` or ``SessionLostError``."""
        session = self._sessions.get(id)
        if session is not None:
            return session
        if id in self._gone:
            raise SessionLostError(self._gone[id])
        raise UnknownIdError(f"there is no session {id}")

    async def close(self, session: SessionRelay, error: TelegradError | None = None) -> None:
        """End a session and free what it holds; ``error`` is what its client is told."""
        if self._sessions.pop(session.id, None) is None:
            return
        self._remember(session, error or SessionLostError("the session was closed"))
        worker = self._workers.pop(session.number)
        try:
            with contextlib.suppress(WorkerCrashedError):
                await worker.request(session.number, "close", [])
        finally:
            session.close(error)

    async def request(self, session: SessionRelay | None, verb: str, args: list[Any]) -> Any:
        """Put a control request to the worker of ``session``, or to the host where it is None."""
        if session is None:
            return await self.supervisor.worker.request(None, verb, args)
        session.last_sign = time.monotonic()
        worker = self._workers.get(session.number)
        if worker is None:
            raise SessionLostError(self._gone.get(session.id, "the session was closed"))
        return await worker.request(session.number, verb, args)

    def _hello(self, worker: WorkerProcess, lease: float) -> Hello:
        host = worker.hello.result()
        devices = host["devices"]
        return Hello(
            session=secrets.token_hex(8), key=secrets.token_urlsafe(24), protocol=PROTOCOL_VERSION,
            server_version=__version__, table_hash=host["table_hash"], dtypes=host["dtypes"], devices=devices,
            default_device=host.get("default_device") or devices[0], limits=host["limits"], lease_seconds=lease,
        )  # fmt: skip

    def _closed_by_client(self, session: SessionRelay) -> None:
        self._spawn(self.close(session))

    def _lost(self, session: SessionRelay, in_good_order: bool) -> None:
        self._spawn(self._end_lost(session, in_good_order))

    async def _end_lost(self, session: SessionRelay, in_good_order: bool) -> None:
        worker = self._workers.pop(session.number, None)
        if worker is None or self._sessions.pop(session.id, None) is None:
            return
        if in_good_order:
            error: TelegradError = SessionLostError("the session ended after the failure that was reported")
        else:
            error = WorkerCrashedError(f"{await _cause(worker)}; the session's tensors are lost")
            session.fail(error)
        self._remember(session, error)
        log.warning("session lost", extra={"session": session.id, "reason": error.message})
        session.close(SessionLostError(error.message))

    def _remember(self, session: SessionRelay, error: TelegradError) -> None:
        for name in ("frames_received", "frames_sent", "bytes_received", "bytes_sent"):
            setattr(self, name, getattr(self, name) + getattr(session, name))
        self._gone[session.id] = error.message
        while len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)

    def _lease_ended(self, session: SessionRelay) -> None:
        self._spawn(self._reclaim(session))

    async def _reclaim(self, session: SessionRelay) -> None:
        log.warning("lease ended", extra={"session": session.id})
        lease = session.hello.lease_seconds
        message = f"nothing was heard of the session's client for {lease:g} s, and its lease ended"
        await self.close(session, SessionLostError(message))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _cause(worker: WorkerProcess) -> str:
    try:
        return await asyncio.wait_for(asyncio.shield(worker.death), STOP_SECONDS + 1)
    except TimeoutError:
        return f"the engine process {worker.pid} gave the session up"
