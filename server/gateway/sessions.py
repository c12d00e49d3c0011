"""All open sessions: opens them on a worker, finds them, and closes them, also those that were lost.

Knows neither HTTP nor what is in a batch; ``stream`` moves the bytes, ``node`` has the workers and says which it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import secrets
import socket
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from server import __version__
from server.ipc import channel
from telegrad_protocol.errors import (
    SessionLostError,
    TelegradError,
    UnknownIdError,
    WorkerCrashedError,
)
from telegrad_protocol.link import WINDOW_BYTES
from telegrad_protocol.messages import PROTOCOL_VERSION, Hello

from .node import PLACE_SECONDS, Node
from .observability.observer import Observer
from .placement import SESSION_LOAD, Demand
from .stream import SessionRelay
from .tenancy.audit import log as audit_log
from .workers.process import STOP_SECONDS, WorkerProcess
from .workers.supervisor import Supervisor

REMEMBERED: Final = 1000
"""How many closed sessions are remembered with the reason why they ended."""

TENANT_WINDOWS: Final = 64 << 20
"""Bytes that may be on their way, each way, for the sessions of a tenant together, but for the least of each."""
LEAST_WINDOW: Final = 2 << 20
"""A session's window however many others its tenant has: two chunks."""
CLOSE_SECONDS: Final = 3.0
"""How long the end of a session waits for a worker that does not answer."""
_STOPPING: Final = "the server is shutting down"
_ANY: Final = Demand()

log = logging.getLogger(__name__)


class Home(NamedTuple):
    """Where a session lives: the worker, and the process that it ran in when the session was opened."""

    worker: Supervisor
    process: WorkerProcess


@dataclass
class TrafficCount:
    """What sessions that are closed have received and sent."""

    frames_received: int = 0
    frames_sent: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0

    def add(self, session: SessionRelay) -> None:
        """Add what a session has counted."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(session, field.name))


class Registry:
    """The sessions of one gateway; ``observer`` is told when they begin and end."""

    def __init__(self, node: Node, observer: Observer) -> None:
        self.node, self._observer = node, observer
        self.closed_traffic: defaultdict[str, TrafficCount] = defaultdict(TrafficCount)
        """By tenant, the traffic of its sessions that are closed."""
        self._sessions: dict[str, SessionRelay] = {}
        self._homes: dict[int, Home] = {}
        self._opening: Counter[int] = Counter()
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    @property
    def sessions(self) -> Mapping[str, SessionRelay]:
        """Open sessions by id."""
        return self._sessions

    @property
    def workers(self) -> Sequence[Supervisor]:
        """The workers that the node has now, by number: others may come and go while these are asked."""
        return list(self.node.workers)

    def worker_of(self, session: SessionRelay) -> Supervisor:
        """The worker that an open session lives on."""
        return self._home_of(session).worker

    async def start(self) -> None:
        """Start the workers."""
        await self.node.start()

    async def stop(self) -> None:
        """Close every session and stop the workers."""
        self._is_stopping = True
        for session in list(self._sessions.values()):
            self._end(session, SessionLostError(_STOPPING))
        await self.node.stop()
        await asyncio.gather(*self._tasks)

    def kill(self) -> None:
        """End all workers at once; ``stop`` has to follow."""
        self._is_stopping = True
        self.node.kill()

    async def open(self, client: dict[str, Any], lease: float, demand: Demand = _ANY) -> SessionRelay:
        """Open a session for a client that describes itself, on the least loaded worker that fits its demand.

        It outlives its connection by ``lease`` seconds. Raises what ``Node.place`` raises.
        """
        deadline = time.monotonic() + PLACE_SECONDS
        client = client | {"tenant": demand.tenant}
        while True:
            chosen = await self.node.place(demand, self._loads)
            try:
                return await self._open_on(chosen, client, lease)
            except BaseException as error:
                self.node.release(chosen, was_used=False)
                crashed = isinstance(error, WorkerCrashedError)
                if not crashed or chosen.state == "serving" or time.monotonic() >= deadline:
                    raise

    async def _open_on(self, chosen: Supervisor, client: dict[str, Any], lease: float) -> SessionRelay:
        self._opening[chosen.number] += 1
        try:
            return await self._open_in(Home(chosen, chosen.worker), client, lease)
        finally:
            self._opening[chosen.number] -= 1

    async def _open_in(self, home: Home, client: dict[str, Any], lease: float) -> SessionRelay:
        number = next(self._numbers)
        ours, theirs = channel.channel_pair()
        try:
            options = client | {"isolation": home.worker.use}
            await home.process.request(number, "open", [options], fd=theirs.detach())
        except BaseException:
            ours.close()
            raise
        hello = self._hello(home, lease, self._window(client.get("tenant", "")))
        session = SessionRelay(
            number, hello, ours, asyncio.get_running_loop(), self._closed_by_client, self._lost,
            self._lease_ended, self._interrupted,
        )  # fmt: skip
        session.client, session.tenant = client, client["tenant"]
        self._sessions[session.id] = session
        self._homes[number] = home
        self._observer.opened(session)
        log.info("session opened", extra={"session": session.id, "worker": home.worker.number})
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
        home = self._homes.pop(session.number)
        try:
            with contextlib.suppress(WorkerCrashedError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):  # a worker that is busy frees all when it sees the end
                    await home.process.request(session.number, "close", [])
        finally:
            self.node.release(home.worker)
            session.close(error)

    def _end(self, session: SessionRelay, error: TelegradError) -> None:
        """End a session without a word to its worker, which sees its channel end."""
        if self._sessions.pop(session.id, None) is not None:
            self._remember(session, error)
            self.node.release(self._homes.pop(session.number).worker)
            session.close(error)

    async def request(self, session: SessionRelay, verb: str, args: list[Any]) -> Any:
        """Put a control request about ``session`` to its worker."""
        session.last_sign = time.monotonic()
        session.worked = True
        return await self._home_of(session).process.request(session.number, verb, args)

    async def go_direct(self, session: SessionRelay, sock: socket.socket, received: int, max_bytes: int) -> None:
        """Give a socket of the client to the worker, as the session's direct channel, with frames up to ``max_bytes``.

        The client has the frames of that channel up to number ``received``.
        """
        process = self._home_of(session).process
        await process.request(session.number, "go_direct", [received, max_bytes], fd=sock.detach())

    def _home_of(self, session: SessionRelay) -> Home:
        home = self._homes.get(session.number)
        if home is None:
            raise SessionLostError(self._gone.get(session.id, "the session was closed"))
        return home

    def _loads(self) -> dict[int, float]:
        """By worker, the load of its sessions and of those that are being opened there."""
        loads = {number: count * (SESSION_LOAD + 1) for number, count in self._opening.items()}
        for session in self._sessions.values():
            number = self._homes[session.number].worker.number
            loads[number] = loads.get(number, 0.0) + SESSION_LOAD + session.load
        return loads

    def _window(self, tenant: str) -> int:
        """Return how many bytes of a new session may be on their way, each way: less, the more its tenant has."""
        held = [session.window for session in self._sessions.values() if session.client.get("tenant") == tenant]
        return max(LEAST_WINDOW, min(WINDOW_BYTES, (TENANT_WINDOWS - sum(held)) // 2))

    def _hello(self, home: Home, lease: float, window: int) -> Hello:
        host = home.process.hello.result()
        devices, limits = host["devices"], host["limits"] | {"window_bytes": window}
        return Hello(
            session=secrets.token_hex(8), key=secrets.token_urlsafe(24), protocol=PROTOCOL_VERSION,
            server_version=__version__, table_hash=host["table_hash"], dtypes=host["dtypes"], devices=devices,
            default_device=host.get("default_device") or devices[0], limits=limits, lease_seconds=lease,
            worker=home.worker.number, node_devices=list(home.worker.group.devices), isolation=home.worker.use,
        )  # fmt: skip

    def _closed_by_client(self, session: SessionRelay) -> None:
        self._spawn(self.close(session))

    def _lost(self, session: SessionRelay, in_good_order: bool) -> None:
        self._spawn(self._end_lost(session, in_good_order))

    async def _end_lost(self, session: SessionRelay, in_good_order: bool) -> None:
        home = self._homes.pop(session.number, None)
        if home is None:
            return
        self.node.release(home.worker)
        if self._sessions.pop(session.id, None) is None:
            return
        if self._is_stopping:
            error: TelegradError = SessionLostError(_STOPPING)
        elif in_good_order:
            error = SessionLostError("the session ended after the failure that was reported")
        else:
            cause = await _cause(home.process)
            error = home.process.error_for(session.number) or WorkerCrashedError(
                f"{cause}; the session's tensors are lost"
            )
            session.fail(error)
        if not self._is_stopping:
            self._observer.lost(session, error)
        self._remember(session, error)
        log.warning("session lost", extra={"session": session.id, "reason": error.message})
        session.close(SessionLostError(error.message))

    def _remember(self, session: SessionRelay, error: TelegradError) -> None:
        self.closed_traffic[session.tenant].add(session)
        self._gone[session.id] = error.message
        self._observer.ended(session, error.message)
        audit_log.info(
            "session ended", extra={"tenant": session.tenant, "session": session.id, "reason": error.message}
        )
        while len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)

    def _interrupted(self, session: SessionRelay, number: int) -> None:
        self._spawn(self._interrupt(session, number))

    async def _interrupt(self, session: SessionRelay, number: int) -> None:
        with contextlib.suppress(TelegradError):  # the session may have ended
            await self.request(session, "interrupt", [number])

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
