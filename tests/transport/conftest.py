"""A gateway and a worker in processes of their own, and clients of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from telegrad._session.handshake import open_session
from telegrad._transport.socket_transport import SocketTransport
from telegrad_protocol import wire
from telegrad_protocol.messages import CHUNK_BYTES, Answer, Data, Failure, Query, Read, Upload
from tests.support import plain_http

from .waiting import wait_until

ROOT = Path(__file__).parents[2]


class GatewayProcess:
    """``tests.transport.gateway`` as a child; a context manager."""

    def __init__(self, **environment: str) -> None:
        inherited = filter(None, [os.environ.get("PYTHONPATH")])
        paths = os.pathsep.join((str(ROOT / "client"), str(ROOT), *inherited))
        self._directory = tempfile.TemporaryDirectory()
        path = f"{self._directory.name}/socket"
        self.unix = f"unix:{path}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.transport.gateway"],
            cwd=ROOT, env=os.environ | {"PYTHONPATH": paths, "STUB_UNIX": path} | environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline() or 0)
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> GatewayProcess:
        return self

    def __exit__(self, *_: object) -> None:
        children = psutil.Process(self._process.pid).children()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        self._directory.cleanup()
        wait_until(lambda: not any(child.is_running() for child in children), "the worker ended")

    @property
    def processes(self) -> list[psutil.Process]:
        """The gateway and its worker."""
        gateway = psutil.Process(self._process.pid)
        return [gateway, *gateway.children()]

    @property
    def sessions(self) -> int:
        text = plain_http.get(f"{self.url}/metrics").text
        return int(float(next(line.split()[1] for line in text.splitlines() if line.startswith("telegrad_sessions "))))


class Client:
    """Asks a stub session things over a transport."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self._request = 0

    def send(self, *instructions: Any) -> None:
        self.transport.send_batch(wire.encode_batch(list(instructions)))

    def ask(self, what: str, *args: Any) -> Any:
        self._request += 1
        self.send(Query(self._request, what, list(args)))
        reply = self.reply()
        if isinstance(reply, Failure):
            return reply
        assert isinstance(reply, Answer) and reply.request == self._request, reply
        return reply.value

    def reply(self) -> Any:
        received = self.transport.receive(None)
        assert received is not None and received[0] == wire.BATCH
        (reply,) = wire.decode_replies(received[1])
        return reply

    def upload(self, id: int, data: bytes) -> None:
        self.send(Upload(id, 0, 0, (len(data),), "cpu", None))
        for at in range(0, len(data), CHUNK_BYTES):
            self.transport.send_chunk(id, at, memoryview(data)[at : at + CHUNK_BYTES])

    def read(self, id: int) -> bytes:
        self._request += 1
        self.send(Read(self._request, id))
        reply = self.reply()
        assert isinstance(reply, Data)
        if reply.data is not None:
            return reply.data
        data = bytearray(reply.nbytes)
        for at in range(0, reply.nbytes, CHUNK_BYTES):
            kind, body = self.transport.receive(None)
            assert kind == wire.CHUNK
            owner, offset, part = wire.split_chunk(body)
            assert (owner, offset) == (self._request, at)
            data[offset : offset + len(part)] = part
        return bytes(data)


@pytest.fixture(scope="session")
def gateway() -> Iterator[GatewayProcess]:
    with GatewayProcess(TELEGRAD_DEBUG="1") as process:
        yield process


@pytest.fixture(params=["tcp", "unix"])
def connect(gateway: GatewayProcess, request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Opens sessions, which end with the test: over TCP, and over a Unix socket with a direct channel."""
    opened: list[SocketTransport] = []
    usual = gateway.unix if request.param == "unix" else gateway.url

    def open_client(url: str = usual, **options: Any) -> Client:
        opened.append(open_session(url, options))
        opened[-1].go_direct()
        return Client(opened[-1])

    yield open_client
    for transport in opened:
        transport.close()
