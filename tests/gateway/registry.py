"""A registry without processes: sessions of the test engine, asked directly. Answers pass through MessagePack."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec

from server.gateway.device_groups import DeviceGroup
from server.gateway.placement import Demand, fitting, smallest
from server.gateway.sessions import TrafficCount
from server.gateway.workers.supervisor import State, Use
from telegrad_protocol.errors import (
    SessionDetachedError,
    SessionLostError,
    TelegradError,
    UnknownIdError,
    WorkerCrashedError,
)
from telegrad_protocol.messages import PROTOCOL_VERSION, Hello

from .engine import Host, Session


class OpenSession:
    """A session as the gateway sees it."""

    def __init__(self, number: int, worker: FakeWorker, engine: Session, lease: float) -> None:
        self.number, self.id, self.key, self.engine = number, f"s{number}", f"key-{number}", engine
        self.worker = worker
        self.frames_received = self.frames_sent = self.bytes_received = self.bytes_sent = 10
        self.client: dict[str, Any] = {}
        self.owner, self.tenant, self.left = b"", "", SessionDetachedError("")
        self.opened = self.last_sign = self.last_work = 0.0
        self.hello = Hello(
            session=self.id, key=self.key, protocol=PROTOCOL_VERSION, server_version="0", table_hash="0123",
            dtypes=["float32"], devices=list(worker.group.session_devices),
            default_device=worker.group.session_devices[0], limits={}, lease_seconds=lease,
            worker=worker.number, node_devices=list(worker.group.devices),
        )  # fmt: skip

    @property
    def is_in_use(self) -> bool:
        return False

    def change_client(self, lease: float | None, instruction: Any, left: SessionDetachedError) -> None: ...


class FakeWorker:
    """A worker that is there, or is not, or hangs, with an engine of its own."""

    def __init__(self, number: int, group: DeviceGroup) -> None:
        self.number, self.group = number, group
        self.restarts = self.claims = 0
        self.use: Use = "shared"
        self.alive = True
        self.hangs = False
        self.host = Host(list(group.session_devices))
        self.asked: list[str] = []

    @property
    def state(self) -> State:
        return "serving" if self.alive else "restarting"

    async def start(self) -> None:
        if not self.alive:
            raise WorkerCrashedError("the engine process has ended before it was ready")

    async def stop(self) -> None:
        self.alive = False

    async def request(self, verb: str, args: list[Any]) -> Any:
        if not self.alive:
            raise WorkerCrashedError(f"the engine process of {self.group} is being started")
        if self.hangs:
            await asyncio.Event().wait()
        self.asked.append(verb)
        return _sent(self.host.control(None, verb, _sent(args)))


class FakeRegistry:
    """Sessions by id."""

    def __init__(self, *groups: DeviceGroup) -> None:
        self.workers = [FakeWorker(number, group) for number, group in enumerate(groups or [DeviceGroup(("cpu",))])]
        self.closed_traffic = {"local": TrafficCount(1, 1, 1, 1)}
        self.sessions: dict[str, OpenSession] = {}
        self.gone: set[str] = set()
        self.host = self.workers[0].host
        self.running = False
        self.options: dict[str, Any] = {}
        self._numbers = itertools.count(1)

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False
        self.sessions.clear()

    def kill(self) -> None: ...

    @property
    def asked(self) -> list[str]:
        """What the first worker was asked, about sessions and the whole of it."""
        return self.workers[0].asked

    async def open(self, client: dict[str, Any], lease: float, demand: Demand) -> OpenSession:
        self.options, self.demand = _sent(client), demand
        fit = smallest(fitting([worker.group for worker in self.workers], demand.gpus))
        workers = [worker for worker in self.workers if worker.group in fit]
        worker = min(workers, key=lambda worker: len(worker.host.sessions))
        if not worker.alive:
            raise WorkerCrashedError(f"the engine process of {worker.group} is being started")
        number = next(self._numbers)
        session = OpenSession(number, worker, worker.host.open(number, client), lease)
        self.sessions[session.id] = session
        return session

    async def close(self, session: OpenSession, error: TelegradError | None = None) -> None:
        self.gone.add(session.id)
        self.sessions.pop(session.id).engine.close()

    def get(self, id: str) -> OpenSession:
        if id in self.gone:
            raise SessionLostError("the session was closed")
        if id not in self.sessions:
            raise UnknownIdError(f"there is no session {id}")
        return self.sessions[id]

    def worker_of(self, session: OpenSession) -> FakeWorker:
        return session.worker

    async def request(self, session: OpenSession, verb: str, args: list[Any]) -> Any:
        if not session.worker.alive:
            raise WorkerCrashedError("the engine process was killed")
        session.worker.asked.append(verb)
        return _sent(session.worker.host.control(session.engine, verb, _sent(args)))


def _sent(value: Any) -> Any:
    """The value as it comes out at the other end of a channel."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))
