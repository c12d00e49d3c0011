"""Clients that misuse their direct channel and its shared memory, and processes that are killed in the middle."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from telegrad._session.handshake import open_session
from telegrad._transport.address import socket_of
from telegrad._transport.direct_channel import _shake_hands
from telegrad._transport.socket_transport import SocketTransport
from telegrad._transport.websocket import Address, connect_unix
from telegrad_protocol import wire
from telegrad_protocol.channels.frames import HEADER
from telegrad_protocol.channels.shared_memory import MEMORY_BYTES, SLOT_BYTES, SLOTS
from telegrad_protocol.errors import AuthenticationError, CommunicationError, ConnectError, SessionLostError
from telegrad_protocol.messages import CHUNK_BYTES, Failure, Query, Upload

from ..support.direct_channel import PLACE, RawChannel
from ..transport.conftest import ROOT, Client, GatewayProcess
from ..transport.waiting import wait_until


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with GatewayProcess(STUB_LEASE="1.5") as process:
        yield process


def _batch(*instructions: Any) -> bytes:
    return wire.encode_batch(list(instructions))


@pytest.fixture
def transport(gateway: GatewayProcess) -> Iterator[SocketTransport]:
    opened = open_session(gateway.unix, {})
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ([(wire.SHARED_CHUNK, 1, PLACE.pack(SLOTS, 16))], "slot 8 of the shared memory"),
        ([(wire.SHARED_CHUNK, 1, PLACE.pack(0, SLOT_BYTES + 1))], "in slot 0"),
        ([(wire.SHARED_CHUNK, 1, PLACE.pack(0xFFFFFFFF, 0xFFFFFFFF))], "4294967295 bytes in slot 4294967295"),
        ([(wire.SHARED_CHUNK, 1, b"\0" * 7)], "the place of a chunk has 8 bytes, not 7"),
        ([(99, 1, b"")], "unknown kind of frame 99"),
        ([(wire.ACK, 5, b"")], "frame 5 is acknowledged, but only 0 were sent"),
        ([(wire.BATCH, 2, _batch())], "frame 2 follows frame 0"),
        ([(wire.BATCH, 1, b"\xc1")], "malformed batch"),
        ([(wire.OPENED, 1, b"")], "unknown kind of frame 7"),
    ],
)
def test_lies_end_the_session_with_a_typed_error_and_no_other(
    gateway: GatewayProcess, transport: SocketTransport, frames: list[tuple[int, int, bytes]], told: str
) -> None:
    other = Client(open_session(gateway.unix, {}))
    other.transport.go_direct()
    with RawChannel(transport.address) as raw:
        for frame in frames:
            raw.send(*frame)
        (failure,) = raw.replies()
        assert isinstance(failure, Failure) and failure.code == "ProtocolError" and told in failure.message
    assert other.ask("echo", 1) == [1]
    other.transport.close()


def test_a_frame_that_is_too_long_is_not_waited_for(gateway: GatewayProcess, transport: SocketTransport) -> None:
    with RawChannel(transport.address) as raw:
        raw.socket.sendall(HEADER.pack(0xFFFFFFFF, wire.BATCH, 1))
        (failure,) = raw.replies()
        assert isinstance(failure, Failure) and "exceeds the limit" in failure.message
    assert max(process.memory_info().rss for process in gateway.processes) < 1 << 30


@pytest.mark.parametrize("seed", range(2))
def test_random_bytes_disturb_nobody(gateway: GatewayProcess, seed: int) -> None:
    rng = random.Random(seed)
    other = Client(open_session(gateway.unix, {}))
    other.transport.go_direct()
    for _ in range(12):
        transport = open_session(gateway.unix, {})
        with RawChannel(transport.address) as raw:
            for number in range(1, rng.randrange(2, 6)):
                kind = rng.choice([wire.BATCH, wire.CHUNK, wire.SHARED_CHUNK, wire.ACK, rng.randrange(256)])
                raw.memory[: 1 << 10] = rng.randbytes(1 << 10)
                body = rng.choice(
                    [b"", PLACE.pack(rng.randrange(9), rng.randrange(40)), rng.randbytes(rng.randrange(99))]
                )
                try:
                    raw.send(kind, number, body)
                except OSError:  # the worker has ended it already
                    break
        transport.close()
        assert other.ask("echo", 1) == [1]
    other.transport.close()


def test_the_memory_cannot_shrink_and_what_changes_in_it_is_only_data(
    gateway: GatewayProcess, transport: SocketTransport
) -> None:
    """The header of a chunk, too, may change while the worker reads it: what counts is what it has read."""
    with RawChannel(transport.address) as raw:
        for size in (0, MEMORY_BYTES // 2, 2 * MEMORY_BYTES):
            with pytest.raises(PermissionError):
                os.ftruncate(raw.fd, size)
        stop = threading.Event()
        header = wire.CHUNK_HEADER.pack(1, 0)

        def scribble() -> None:
            rng = random.Random(0)
            while not stop.is_set():
                raw.memory[16:SLOT_BYTES] = rng.randbytes(1) * (SLOT_BYTES - 16)

        writer = threading.Thread(target=scribble)
        writer.start()
        try:
            raw.memory[:16] = header
            raw.send(wire.BATCH, 1, _batch(Upload(1, 0, 0, (CHUNK_BYTES,), "cpu", None)))
            for number in range(2, 40):
                raw.send(wire.SHARED_CHUNK, number, PLACE.pack(0, 16 + CHUNK_BYTES))
            raw.send(wire.BATCH, 40, _batch(Query(1, "echo", [7])))
            (reply,) = raw.replies()
        finally:
            stop.set()
            writer.join()
        assert reply.value == [7]


def test_only_the_client_of_a_session_opens_its_channel(gateway: GatewayProcess, transport: SocketTransport) -> None:
    hello, path = transport.hello, socket_of(transport.address.url)
    assert path is not None
    refused: list[tuple[Address, type[Exception]]] = [
        (Address(gateway.unix, hello.session, "wrong"), AuthenticationError),
        (Address(gateway.unix, hello.session, hello.key, attachment=2), CommunicationError),
        (Address(gateway.unix, "0" * 16, hello.key), SessionLostError),
    ]
    for address, error in refused:
        with connect_unix(path) as sock, pytest.raises(error):
            _shake_hands(sock, address, 0)
    with (
        socket.create_connection(("127.0.0.1", gateway.port)) as sock,
        pytest.raises(ConnectError, match="NotSupportedError"),
    ):
        _shake_hands(sock, transport.address, 0)
    client = Client(transport)
    transport.go_direct()
    assert client.ask("echo", 1) == [1]
    with connect_unix(path) as sock:  # more than the worker has sent: the channel that is open stays
        _shake_hands(sock, transport.address, 1 << 40)
        assert sock.recv(1) == b""
    assert client.ask("echo", 2) == [2]


def test_a_client_that_is_killed_in_an_upload_leaves_nothing_at_the_worker(gateway: GatewayProcess) -> None:
    program = (
        "import sys; from tests.transport.conftest import Client\n"
        "from telegrad._session.handshake import open_session\n"
        "client = Client(open_session(sys.argv[1], {})); client.transport.go_direct(); n = 0\n"
        "while True:\n"
        "    n += 1; client.upload(n % 4 + 1, bytes(16 << 20)); print(n, flush=True)"
    )
    front, worker = gateway.processes
    wait_until(lambda: not gateway.sessions, "the sessions ended")
    before = _held(worker)
    paths = os.pathsep.join((str(ROOT / "client"), str(ROOT), os.environ.get("PYTHONPATH", "")))
    child = subprocess.Popen(
        [sys.executable, "-c", program, gateway.unix], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": paths}
    )
    assert child.stdout is not None
    for _ in range(3):
        child.stdout.readline()
    assert _held(worker) > before
    child.kill()
    child.wait()
    child.stdout.close()
    wait_until(lambda: not gateway.sessions, "the lease ended")
    wait_until(lambda: _held(worker) == before, "sockets and shared memory are closed")
    assert front.is_running()


def test_a_worker_that_is_killed_in_a_download_is_told() -> None:
    with GatewayProcess() as gateway:
        client = Client(open_session(gateway.unix, {}))
        client.transport.go_direct()
        client.upload(1, bytes(64 << 20))
        client.read(1)
        maps = _mapped(os.getpid())
        killer = threading.Timer(0.05, gateway.processes[1].kill)
        killer.start()
        with pytest.raises((CommunicationError, AssertionError)):
            while True:
                client.read(1)
        killer.join()
        failure = _last_failure(client)
        assert "SIGKILL" in failure
        client.transport.close()
        assert _mapped(os.getpid()) <= maps


def _last_failure(client: Client) -> str:
    """What the session's end was told as: a frame that waits, or the error of whoever goes on."""
    try:
        while (frame := client.transport.receive(10)) is not None:
            if frame[0] == wire.BATCH:
                for reply in wire.decode_replies(frame[1]):
                    if isinstance(reply, Failure):
                        return reply.message
    except CommunicationError as error:
        return str(error)
    return ""


def _held(worker: psutil.Process) -> tuple[int, int]:
    """How many descriptors a worker has, and how often it maps memory of direct channels."""
    return worker.num_fds(), _mapped(worker.pid)


def _mapped(pid: int) -> int:
    with open(f"/proc/{pid}/maps") as maps:
        return sum("telegrad-payloads" in line for line in maps)
