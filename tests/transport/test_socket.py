"""The socket transport, over a real gateway and worker: nothing is lost, repeated, or left hanging."""

from __future__ import annotations

import os
import random
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from telegrad._session.handshake import open_session
from telegrad._transport import websocket as _connection
from telegrad._transport.socket_transport import SocketTransport
from telegrad._transport.websocket import Address
from telegrad_protocol.errors import AuthenticationError, CommunicationError, ConnectError, SessionLostError
from telegrad_protocol.messages import Call

from .conftest import Client, GatewayProcess
from .fault_proxy import FaultProxy
from .waiting import wait_until

Connect = Callable[..., Client]


def test_what_is_sent_comes_back(connect: Connect) -> None:
    client = connect()
    assert client.ask("echo", 1, [2.5, "x", b"\x00"]) == [1, [2.5, "x", b"\x00"]]
    assert client.transport.hello.dtypes == ["uint8"]


@pytest.mark.parametrize("size", [0, 1, 1 << 16, (1 << 16) + 1, (1 << 20) - 1, (1 << 20) + 3, 5_000_001])
def test_payloads_of_every_size_come_back_unchanged(connect: Connect, size: int) -> None:
    client = connect()
    data = random.Random(size).randbytes(size)
    client.upload(7, data)
    assert client.read(7) == data


def test_an_array_may_change_as_soon_as_it_was_sent(connect: Connect) -> None:
    client = connect()
    data = bytearray(b"a" * (3 << 20))
    client.upload(1, data)
    data[:] = bytes(len(data))
    assert client.read(1) == b"a" * (3 << 20)


@pytest.mark.parametrize("seed", range(3))
def test_cuts_at_any_byte_lose_and_repeat_nothing(connect: Connect, gateway: GatewayProcess, seed: int) -> None:
    rng = random.Random(seed)
    data = rng.randbytes(3_000_000)
    with FaultProxy(gateway.port) as proxy:
        client = connect(f"http://127.0.0.1:{proxy.port}")
        proxy.cut_after([rng.choice([rng.randrange(400), rng.randrange(400_000)]) for _ in range(40)])
        answers, number = [], -1
        while number < 399 or (client.transport.stats.reconnects < 10 and number < 5000):
            number += 1  # a cut that falls into a handshake makes no connection to be counted
            client.send(Call(number, 0, (), []))
            if number % 10 == 0:
                answers.append(client.ask("echo", number)[0])
            if number % 100 == 50:
                client.upload(number, data)
                assert client.read(number) == data
        assert client.ask("calls") == list(range(number + 1))
        assert answers == list(range(0, number + 1, 10))
        assert proxy.cuts >= 20
        assert client.transport.stats.reconnects >= 10
        client.transport.close()


def test_a_cut_is_survived_with_delay_and_many_frames_in_flight(connect: Connect, gateway: GatewayProcess) -> None:
    rng = random.Random(1)
    with FaultProxy(gateway.port, delay=0.015) as proxy:
        client = connect(f"http://127.0.0.1:{proxy.port}")
        proxy.cut_after([rng.randrange(3000) for _ in range(10)])
        for number in range(1000):
            client.send(Call(number, 0, (), []))
        assert client.ask("calls") == list(range(1000))
        assert proxy.cuts == 10
        client.transport.close()


def test_an_idle_connection_that_breaks_is_made_anew(connect: Connect, gateway: GatewayProcess) -> None:
    with FaultProxy(gateway.port) as proxy:
        client = connect(f"http://127.0.0.1:{proxy.port}")
        client.ask("echo")
        proxy.cut_now()
        wait_until(lambda: client.transport.stats.reconnects == 1, "the timer reconnected")
        assert client.ask("echo", 1) == [1]
        client.transport.close()


@pytest.mark.filterwarnings("ignore")  # sockets that an interrupt took away while they were being made
@pytest.mark.parametrize("seed", range(2))
def test_interrupts_anywhere_in_a_send_or_receive_corrupt_nothing(connect: Connect, seed: int) -> None:
    """Interrupts come from a timer signal, so they hit between any two bytecodes of the transport."""
    rng = random.Random(seed)
    client = connect()
    accepted: list[int] = []
    interrupts = 0
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for number in range(1500):
            before = client.transport.accepted
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 3e-4))
                client.send(Call(number, 0, (), []))
                client.transport.receive(0)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
            if client.transport.accepted > before:
                accepted.append(number)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert client.ask("calls") == accepted
    assert interrupts > 100


def test_a_blocked_send_can_be_interrupted_and_goes_on(connect: Connect, gateway: GatewayProcess) -> None:
    client = connect()
    worker = gateway.processes[1]
    data = random.Random(0).randbytes(64 << 20)
    worker.suspend()
    try:
        interrupt = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            client.upload(1, data)
        interrupt.join()
    finally:
        worker.resume()
    assert client.ask("echo", 5) == [5]


def test_a_forked_child_is_told_and_disturbs_nothing(connect: Connect) -> None:
    client = connect()
    client.ask("echo")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            client.ask("echo")
        except CommunicationError as error:
            status = 0 if "was forked" in str(error) else 2
        finally:
            client.transport.close()
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert client.ask("echo", 3) == [3]
    assert client.transport.stats.reconnects == 0


def test_threads_share_a_session(connect: Connect) -> None:
    client = connect()

    def send(start: int) -> None:
        for number in range(start, start + 200):
            client.send(Call(number, 0, (), []))

    threads = [threading.Thread(target=send, args=(start,)) for start in range(0, 800, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = client.ask("calls")
    assert sorted(calls) == list(range(800))
    assert all([n for n in calls if n // 200 == k] == list(range(200 * k, 200 * k + 200)) for k in range(4))


def test_receive_returns_nothing_when_the_time_is_over(connect: Connect) -> None:
    client = connect()
    assert client.transport.receive(0) is None
    assert client.transport.receive(0.05) is None


def test_the_flush_callback_is_called_soon_after_arming(gateway: GatewayProcess) -> None:
    flushed = threading.Event()
    transport = open_session(gateway.url, {}, flush=flushed.set)
    try:
        for _ in range(3):
            flushed.clear()
            transport.arm()
            assert flushed.wait(10)
    finally:
        transport.close()


def test_no_thread_outlives_its_transport(gateway: GatewayProcess) -> None:
    before = set(threading.enumerate())
    transport = open_session(gateway.url, {})
    assert len(set(threading.enumerate()) - before) == 1
    transport.close()
    assert set(threading.enumerate()) <= before


def test_a_closed_session_is_gone_and_says_so(connect: Connect, gateway: GatewayProcess) -> None:
    client = connect()
    before = gateway.sessions
    client.transport.close()
    assert gateway.sessions == before - 1
    with pytest.raises(SessionLostError, match="closed"):
        client.send()
    client.transport.close()


def test_nobody_answers(gateway: GatewayProcess) -> None:
    with pytest.raises(ConnectError, match=r"cannot reach a telegrad server at http://127\.0\.0\.1:1"):
        open_session("http://127.0.0.1:1", {})
    with pytest.raises(ConnectError, match="begins with http"):
        open_session("ftp://localhost:8000", {})


def test_a_session_belongs_to_who_holds_its_key(connect: Connect, gateway: GatewayProcess) -> None:
    hello = connect().transport.hello
    with pytest.raises(AuthenticationError, match="not the key"):
        SocketTransport(Address(gateway.url, hello.session, "guess"), hello)
    with pytest.raises(SessionLostError, match="no session"):
        SocketTransport(Address(gateway.url, "0123", hello.key), hello)


def test_a_second_connection_takes_over(connect: Connect, gateway: GatewayProcess) -> None:
    client = connect()
    client.ask("echo")
    hello = client.transport.hello
    received = client.transport._link.received
    raw = _connection.WebSocketConnection(Address(gateway.url, hello.session, hello.key), received, lambda frame: None)
    assert client.ask("echo", 1) == [1]
    wait_until(lambda: client.transport.stats.reconnects >= 1, "the client connected anew")
    raw.abandon()


@pytest.mark.parametrize("garbage", [b"", b"\x01", b"\x63" + bytes(16), b"\x01" + b"\xff" * 16 + b"x"])
def test_a_malformed_frame_is_refused_with_a_typed_error(connect: Connect, garbage: bytes) -> None:
    client, other = connect(), connect()
    client.ask("echo")
    client.transport._connection.queue(_connection.masked_message(garbage)[0])
    with pytest.raises(CommunicationError) as caught:
        client.transport.receive(10)
    assert caught.value.code == "ProtocolError"
    assert other.ask("echo", 1) == [1]


def test_answers_to_one_session_never_reach_another(connect: Connect) -> None:
    clients = [connect() for _ in range(3)]
    for number, client in enumerate(clients):
        client.upload(1, bytes([number]) * 100_000)
    for number, client in enumerate(clients):
        assert client.read(1) == bytes([number]) * 100_000
    clients[0].transport.close()
    assert clients[1].read(1) == bytes([1]) * 100_000


def test_a_transport_that_was_forgotten_stops_its_timer(gateway: GatewayProcess) -> None:
    before = set(threading.enumerate())
    transport: Any = open_session(gateway.url, {})
    transport._connection.close()
    del transport
    wait_until(lambda: set(threading.enumerate()) <= before, "the timer ended")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_the_stream_works_over_tls_and_only_to_whom_we_trust(tmp_path: Path) -> None:
    certificate, key = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    data = random.Random(0).randbytes(3_000_001)
    with GatewayProcess(STUB_CERTIFICATE=certificate, STUB_KEY=key) as gateway:
        url = gateway.url.replace("http:", "https:")
        with pytest.raises(ConnectError, match="cannot reach"):
            open_session(url, {})
        client = Client(open_session(url, {}, tls=ssl.create_default_context(cafile=certificate)))
        client.upload(1, data)
        assert client.read(1) == data
        with FaultProxy(gateway.port) as proxy:
            proxied = Client(
                open_session(f"https://127.0.0.1:{proxy.port}", {}, tls=ssl.create_default_context(cafile=certificate))
            )
            proxy.cut_after([20_000] * 10)
            for number in range(500):
                proxied.send(Call(number, 0, (), []))
            proxied.upload(1, data[:200_000])
            assert proxied.ask("calls") == list(range(500))
            assert proxied.read(1) == data[:200_000]
            assert proxy.cuts == 10
            proxied.transport.close()
        client.transport.close()
