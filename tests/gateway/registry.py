"""A registry without processes: sessions of the test engine, asked directly. Answers pass through MessagePack."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from telegrad_protocol.errors import SessionLostError, UnknownIdError, WorkerCrashedError
from telegrad_protocol.messages import PROTOCOL_VERSION, Hello

from .engine import Host, Session


class OpenSession:
    """A session as the gateway sees it."""

    def __init__(self, number: int, engine: Session, lease: float = 60.0) -> None:
        self.number, self.id, self.key, self.engine = number, f"s{number}", f"key-{number}", engine
        self.frames_received = self.frames_sent = self.bytes_received = self.bytes_sent = 10
        self.hello = Hello(
            session=self.id, key=self.key, protocol=PROTOCOL_VERSION, server_version="0", table_hash="0123",
            dtypes=["float32"], devices=["cpu"], default_device="cpu", limits={}, lease_seconds=lease,
        )  # fmt: skip


class FakeSupervisor:
    """A worker that is there, or is not."""

    def __init__(self) -> None:
        self.restarts = 0
        self.alive = True

    @property
    def worker(self) -> FakeSupervisor:
        if not self.alive:
            raise WorkerCrashedError("the engine process is being started")
        return self


class FakeRegistry:
    """Sessions by id."""

    def __init__(self) -> None:
        self.supervisor = FakeSupervisor()
        self.frames_received = self.frames_sent = self.bytes_received = self.bytes_sent = 1
        self.sessions: dict[str, OpenSession] = {}
        self.gone: set[str] = set()
        self.host = Host([])
        self.running = False
        self.asked: list[str] = []
        self.options: dict[str, Any] = {}
        self._numbers = itertools.count(1)

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False
        self.sessions.clear()

    async def open(self, client: dict[str, Any], lease: float) -> OpenSession:
        self.options = msgspec.msgpack.decode(msgspec.msgpack.encode(client))
        number = next(self._numbers)
        session = OpenSession(number, self.host.open(number, client), lease)
        self.sessions[session.id] = session
        return session

    async def close(self, session: OpenSession) -> None:
        self.gone.add(session.id)
        self.sessions.pop(session.id).engine.close()

    def get(self, id: str) -> OpenSession:
        if id in self.gone:
            raise SessionLostError("the session was closed")
        if id not in self.sessions:
            raise UnknownIdError(f"there is no session {id}")
        return self.sessions[id]

    async def request(self, session: OpenSession | None, verb: str, args: list[Any]) -> Any:
        _ = self.supervisor.worker
        self.asked.append(verb)
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(args))
        answer = self.host.control(None if session is None else session.engine, verb, sent)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(answer))
