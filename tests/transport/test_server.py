"""Gateway and worker: limits, leases, crashes, and sessions that do not disturb each other."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable

import psutil
import pytest

from telegrad._session.handshake import open_session
from telegrad._transport.in_process import InProcessTransport
from telegrad._transport.socket_transport import SocketTransport
from telegrad._transport.websocket import Address
from telegrad_protocol.errors import CommunicationError, InternalError, SessionLostError, TelegradError
from telegrad_protocol.messages import Call, Failure, Hello, Query, Read
from tests.support import plain_http

from .conftest import Client, GatewayProcess
from .stub import StubSession
from .waiting import wait_until

Connect = Callable[..., Client]
MIB = 1 << 20


def test_a_crashed_worker_is_reported_and_replaced() -> None:
    with GatewayProcess() as gateway:
        client, bystander = Client(open_session(gateway.url, {})), Client(open_session(gateway.url, {}))
        bystander.ask("echo")
        reply = client.ask("crash")
        assert isinstance(reply, Failure)
        assert reply.code == "WorkerCrashedError"
        assert "was killed by SIGKILL" in reply.message
        with pytest.raises(SessionLostError, match="SIGKILL"):
            client.ask("echo")
        lost = bystander.reply()
        assert isinstance(lost, Failure) and lost.code == "WorkerCrashedError"
        hello = client.transport.hello
        with pytest.raises(SessionLostError, match="SIGKILL"):
            SocketTransport(Address(gateway.url, hello.session, hello.key), hello)
        for each in (client, bystander):
            each.transport.close()
        fresh = Client(_open_when_ready(gateway))
        assert fresh.ask("echo", 1) == [1]
        fresh.transport.close()


def _open_when_ready(gateway: GatewayProcess) -> SocketTransport:
    opened: list[SocketTransport] = []

    def attempt() -> bool:
        try:
            opened.append(open_session(gateway.url, {}))
        except CommunicationError:
            return False
        return True

    wait_until(attempt, "the worker was started again")
    return opened[0]


def test_a_defect_in_a_session_ends_only_this_session(connect: Connect) -> None:
    client, other = connect(), connect()
    other.upload(1, b"x" * 100)
    reply = client.ask("bug")
    assert isinstance(reply, Failure)
    assert (reply.code, reply.message) == (InternalError.__name__, "ZeroDivisionError: a defect of the engine")
    assert "_answer" in reply.traceback
    with pytest.raises(SessionLostError):
        client.ask("echo")
    assert other.read(1) == b"x" * 100


def test_garbage_in_a_batch_is_a_typed_failure(connect: Connect) -> None:
    client, other = connect(), connect()
    client.transport.send_batch(b"\xc1garbage")
    reply = client.reply()
    assert isinstance(reply, Failure) and reply.code == "ProtocolError"
    assert other.ask("echo", 1) == [1]


def test_a_session_that_cannot_be_opened_says_why(connect: Connect, gateway: GatewayProcess) -> None:
    with pytest.raises(TelegradError, match="asked to refuse"):
        open_session(gateway.url, {"refuse": True})
    assert connect().ask("echo", 1) == [1]


def test_a_killed_client_is_reclaimed_when_its_lease_ends() -> None:
    program = (
        "import sys, time; from telegrad._session.handshake import open_session; t = open_session(sys.argv[1], {});"
        "print(t.hello.session, flush=True); time.sleep(1000)"
    )
    with GatewayProcess(STUB_LEASE="1") as gateway:
        child = subprocess.Popen([sys.executable, "-c", program, gateway.url], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        session = child.stdout.readline().strip()
        survivor = Client(open_session(gateway.url, {}))
        child.kill()
        child.wait()
        child.stdout.close()
        wait_until(lambda: gateway.sessions == 1, "the session of the killed client was reclaimed")
        hello = survivor.transport.hello
        with pytest.raises(SessionLostError, match="its lease ended"):
            SocketTransport(Address(gateway.url, session, hello.key), hello)
        assert survivor.ask("echo", 1) == [1]
        survivor.transport.close()
        assert gateway.sessions == 0


def test_a_lease_does_not_end_while_the_worker_is_what_is_slow() -> None:
    lease = 1.5  # so long that neither client nor gateway is held up for it where many tests run
    with GatewayProcess(STUB_LEASE=str(lease)) as gateway:
        client = Client(open_session(gateway.url, {}))
        worker = gateway.processes[1]
        worker.suspend()
        sender = threading.Thread(target=client.upload, args=(1, bytes(64 * MIB)))
        sender.start()
        sender.join(2 * lease)
        assert sender.is_alive()
        worker.resume()
        sender.join()
        assert client.ask("echo", 1) == [1]
        client.transport.close()


def test_uploads_are_not_buffered_without_bound(connect: Connect, gateway: GatewayProcess) -> None:
    client = connect()
    client.upload(1, bytes(8 * MIB))
    client.ask("echo")
    front, worker = gateway.processes
    before = front.memory_info().rss
    worker.suspend()
    try:
        data = random.Random(0).randbytes(100 * MIB) * 3
        sender = threading.Thread(target=client.upload, args=(2, data))
        sender.start()
        wait_until(lambda: not _has_room(client), "the window is closed, or all slots are lent")
        sender.join(0.5)
        assert sender.is_alive()
        assert front.memory_info().rss - before < 64 * MIB
    finally:
        worker.resume()
    sender.join()
    assert client.read(2) == data


def _has_room(client: Client) -> bool:
    direct = client.transport._direct
    return client.transport._link.can_send if direct is None else direct.has_slot


def test_downloads_are_not_buffered_without_bound(connect: Connect, gateway: GatewayProcess) -> None:
    client = connect()
    data = random.Random(0).randbytes(100 * MIB) * 3
    client.upload(1, data)
    client.ask("echo")
    before = [process.memory_info().rss for process in gateway.processes]
    client.transport._timer.stop()
    client.send(Read(99, 1))
    other = connect()
    for _ in range(200):
        assert other.ask("echo", 1) == [1]
    grown = [process.memory_info().rss - was for process, was in zip(gateway.processes, before)]
    assert max(grown) < 64 * MIB
    client._request = 98
    _, received = client.reply(), bytearray()
    while len(received) < len(data):
        chunk = client.transport.receive(10)
        assert chunk is not None
        received += chunk[1][16:]
    assert received == data


def test_a_client_that_only_sends_still_reads(connect: Connect) -> None:
    client = connect()
    data = random.Random(0).randbytes(40 * MIB)
    client.upload(1, data)
    for request in range(1000, 1003):
        client.send(Read(request, 1))
    client.upload(2, data)
    client.upload(3, data)
    for _ in range(3):
        client.reply()
        received = bytearray()
        while len(received) < len(data):
            chunk = client.transport.receive(10)
            assert chunk is not None
            received += chunk[1][16:]
        assert received == data
    assert client.read(3) == data


def test_a_flood_does_not_starve_other_sessions_or_control_requests(connect: Connect, gateway: GatewayProcess) -> None:
    flood, other = connect(), connect()
    pieces = 3000
    for request in range(pieces):
        flood.send(Query(request, "work", [20_000]))
    assert other.ask("echo", 1) == [1]
    seen = 0
    while flood.transport.receive(0) is not None:
        seen += 1
    assert seen < pieces, "the other session was answered only when the flood was over"
    while seen < pieces:
        flood.transport.receive(None)
        seen += 1


def test_a_session_that_waits_for_a_device_is_looked_at_while_others_work(connect: Connect) -> None:
    """It has used more than its slice before, and earns none while it waits."""
    floods, other = [connect(), connect()], connect()
    pieces = 2000
    for flood in floods:
        for request in range(pieces):
            flood.send(Query(request, "work", [20_000]))
    assert other.ask("wait", 2_000_000, 20) is None
    seen = [0, 0]
    for place, flood in enumerate(floods):
        while flood.transport.receive(0) is not None:
            seen[place] += 1
    assert max(seen) < pieces, "the session that waits was answered only when the others had ended"
    for place, flood in enumerate(floods):
        for _ in range(pieces - seen[place]):
            flood.transport.receive(None)


def test_control_requests_are_answered_and_their_errors_are_errors(connect: Connect, gateway: GatewayProcess) -> None:
    client = connect()
    hello = client.transport.hello
    headers = {"Telegrad-Session-Key": hello.key}
    answer = plain_http.delete(f"{gateway.url}/v1/sessions/{hello.session}", headers=headers)
    assert answer.status_code == 204
    with pytest.raises(SessionLostError):
        client.ask("echo")


def test_the_same_conversation_works_in_one_process() -> None:
    hello = Hello("s", "k", 1, "0", "stub", ["uint8"], ["cpu"], "cpu", {}, 60.0)
    session = StubSession(1, {})
    client = Client(InProcessTransport(session, hello))
    client.send(*(Call(number, 0, (), []) for number in range(100)))
    assert client.ask("calls") == list(range(100))
    data = random.Random(0).randbytes(3 * MIB + 1)
    client.upload(1, data)
    assert client.read(1) == data
    assert client.transport.receive(None) is None
    assert client.transport.stats.frames == 8
    client.transport.close()
    assert not session.tensors


def test_the_worker_ends_when_its_gateway_is_killed() -> None:
    gateway = GatewayProcess()
    front, worker = gateway.processes
    front.kill()
    wait_until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, "the worker ended")
    gateway.__exit__()


def test_sessions_end_with_the_gateway_and_their_clients_are_told() -> None:
    gateway = GatewayProcess()
    client = Client(open_session(gateway.url, {}))
    client.ask("echo")
    gateway.__exit__()
    with pytest.raises(SessionLostError, match="shutting down"):
        client.ask("echo")
    client.transport.close()
