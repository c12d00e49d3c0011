"""What anybody can send before, or without, presenting a token: it is bounded, refused in words, and delays nobody."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import telegrad as tg
from server.gateway.door.connections import Connections
from telegrad._transport.address import is_read_on_the_way
from telegrad_protocol.errors import ConnectError
from tests.support import plain_http

from ..end_to_end.server_process import ServerProcess
from ..support.certificates import self_signed
from ..transport.waiting import wait_until

TOKEN = "correct-horse-battery"
MIB = 1 << 20
JSON = {"Content-Type": "application/json"}
UPGRADE = (
    b"GET /v1/sessions/%s/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Authorization: Bearer %s\r\nTelegrad-Session-Key: %s\r\n\r\n"
)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    variables = {"TELEGRAD_MAX_CONNECTIONS": "64", "TELEGRAD_MAX_CONNECTIONS_PER_ADDRESS": "32"}
    with ServerProcess(TELEGRAD_TOKEN=TOKEN, **variables) as running:
        yield running


def connected(server: ServerProcess) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def send_until_closed(sock: socket.socket, piece: bytes, most: int) -> int:
    """Send pieces until the server closes or ``most`` bytes are sent; return how many it took."""
    sent = 0
    with contextlib.suppress(OSError):
        while sent < most:
            sock.sendall(piece)
            sent += len(piece)
    return sent


def answer_of(sock: socket.socket) -> tuple[int, dict[str, Any]]:
    """Read an answer until the server closes; status and problem document."""
    text = b""
    with contextlib.suppress(ConnectionError):
        while piece := sock.recv(1 << 16):
            text += piece
    head, _, body = text.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, text[:500]
    return int(head.split()[1]), json.loads(body)


@contextlib.contextmanager
def undisturbed(server: ServerProcess, most_bytes: int = 48 * MIB, most_seconds: float = 2.0) -> Iterator[None]:
    """Assert that the gateway hardly grows, and that others are answered meanwhile and afterwards.

    How long they wait is counted in the gateway's processor time, which a busy machine does not stretch.
    """
    gateway = psutil.Process(server.process.pid)
    before = gateway.memory_info().rss
    slowest, begun, over = 0.0, threading.Event(), threading.Event()

    def ask() -> None:
        nonlocal slowest
        with plain_http.Client(timeout=60) as http:
            while True:
                began = sum(gateway.cpu_times()[:2])
                assert http.get(f"{server.url}/healthz").status_code == 200
                slowest = max(slowest, sum(gateway.cpu_times()[:2]) - began)
                begun.set()
                if over.wait(0.01):
                    return

    victim = threading.Thread(target=ask)
    victim.start()
    try:
        wait_until(begun.is_set, "the other client was answered")
        yield
    finally:
        over.set()
        victim.join()
    assert slowest < most_seconds, f"another client waited for {slowest:.2f} s of the gateway's work"
    grown = gateway.memory_info().rss - before
    assert grown < most_bytes, f"the gateway grew by {grown / MIB:.0f} MiB"


@pytest.mark.parametrize(
    ("first", "piece", "status"),
    [
        (b"GET / HTTP/1.1\r\n", b"X-Filler: " + b"x" * 1000 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nX-Endless: ", b"x" * 65536, 431),
        (b"GET /", b"x" * 65536, 414),
        (b"GET / HTTP/1.1\r\n", b"a:b\r\n" * 1000, 431),
        (b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         b"Transfer-Encoding: chunked\r\n\r\n0\r\nTrailer: ", b"x" * 65536, None),
        (b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 65536, None),
        (b"\r\n", b"\r\n" * 4096, 431),
    ],
    ids=["header lines", "one header", "address", "short headers", "trailer", "extension of a chunk", "empty lines"],
)  # fmt: skip
def test_heads_of_requests_are_bounded(server: ServerProcess, first: bytes, piece: bytes, status: int | None) -> None:
    with undisturbed(server), connected(server) as sock:
        sock.sendall(first)
        assert send_until_closed(sock, piece, 64 * MIB) < 16 * MIB, "the server reads on and on"
    if status is not None:
        with connected(server) as sock:
            sock.sendall(first + piece * (80_000 // len(piece) + 1))
            got, problem = answer_of(sock)
            assert (got, problem["code"]) == (status, "RequestError")


def test_pipelined_requests_are_bounded(server: ServerProcess) -> None:
    with undisturbed(server), connected(server) as sock:
        requests = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000
        assert send_until_closed(sock, requests, 400 * len(requests)) < 399 * len(requests)
    with connected(server) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 8)
        text = b""
        while text.count(b'{"status":"ok"}') < 8:
            piece = sock.recv(1 << 16)
            assert piece, text
            text += piece


def test_of_idle_connections_the_kind_that_most_are_of_gives_way() -> None:
    closed: list[str] = []

    def filled(asked: int, silent: int) -> Connections:
        connections = Connections(asked + silent, asked + silent)
        for name in [f"asked {number}" for number in range(asked)] + [f"silent {number}" for number in range(silent)]:
            place = connections.admit("address", functools.partial(closed.append, name))
            assert place is not None
            if name.startswith("asked"):
                place.busy()
                place.rest()
        closed.clear()
        return connections

    cases = ((1, 3, "silent"), (3, 1, "asked"), (2, 2, "silent"), (3, 0, "asked"), (0, 3, "silent"))
    for asked, silent, expected in cases:
        assert filled(asked, silent).admit("address", lambda: None) is not None
        assert closed == [f"{expected} 0"]
    connections = filled(3, 0)
    for place in connections.open:
        place.busy()
    assert connections.admit("address", lambda: None) is None and not closed


def test_connections_that_ask_for_nothing_keep_nobody_out(server: ServerProcess) -> None:
    gateway = psutil.Process(server.process.pid)
    before = gateway.num_fds()
    with contextlib.ExitStack() as stack, undisturbed(server):
        for number in range(200):
            sock = stack.enter_context(connected(server))
            if number % 2:
                sock.sendall(b"GET /healthz HT")
        assert gateway.num_fds() - before <= 64
        assert plain_http.get(f"{server.url}/healthz").status_code == 200
    wait_until(lambda: gateway.num_fds() <= before + 2, "the connections were closed")


@contextlib.contextmanager
def session(server: ServerProcess) -> Iterator[tuple[str, dict[str, str]]]:
    """An open session: its address, and the headers that requests about it show."""
    authorized = {"Authorization": f"Bearer {TOKEN}"}
    hello = plain_http.post(f"{server.url}/v1/sessions", json={}, headers=authorized).json()
    path, headers = f"{server.url}/v1/sessions/{hello['session']}", authorized | {"Telegrad-Session-Key": hello["key"]}
    try:
        yield path, headers
    finally:
        plain_http.delete(path, headers=headers)


BODIES = {
    "empty lists": ("", b"[" + b"[]," * (8 * MIB // 3 - 2) + b"[]]", 413),
    "deep lists": ("", b"[" * 100_000 + b"]" * 100_000, 400),
    "deep objects": ("", b'{"client":' * 50_000 + b"1" + b"}" * 50_000, 400),
    "one number": ("", b'{"a":' + b"1" * 4_000_000 + b"}", 400),
    "many members": ("", b"{" + b",".join(b'"k%d":[0]' % i for i in range(90_000)) + b"}", 422),
    "many mistakes": ("/ops", b"[" + b",".join([b"{}"] * 140_000) + b"]", 422),
    "many steps": ("/ops", b"[" + b",".join([b'{"op":"add"}'] * 140_000) + b"]", 422),
    "many numbers": ("/ops", b'{"op":"add","args":[[' + b"1," * 290_000 + b"1],1]}", 422),
    "uneven lists": ("/ops", b'{"op":"tensor","data":[' + b"[1]," * 140_000 + b"1]}", 422),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_of_json_block_nobody(server: ServerProcess, name: str) -> None:
    place, body, status = BODIES[name]
    with session(server) as (path, headers), undisturbed(server, most_bytes=160 * MIB):
        url, headers = path + place if place else f"{server.url}/v1/sessions", headers | JSON
        with plain_http.Client(timeout=60) as http:
            answer = http.post(url, content=body, headers=headers)
    assert answer.status_code == status, answer.text[:300]
    assert len(answer.content) < 1 << 14 and answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "text",
    [b"0," * 32_000, b"1 " * 30_000, b"(" * 60_000, b" " * 60_000, b"9" * 60_000],
    ids=lambda text: str(text[:2]),
)
def test_headers_of_npy_are_read_in_one_pass(server: ServerProcess, text: bytes) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + text + b"), }"
    body = b"\x93NUMPY\x02\0" + len(header).to_bytes(4, "little") + header
    with session(server) as (path, headers), undisturbed(server):
        answer = plain_http.put(f"{path}/tensors/1", content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "ArgumentError")
        long = b"\x93NUMPY\x02\0" + (1 << 20).to_bytes(4, "little") + b"{" * (1 << 20)
        assert "longer than 65536" in plain_http.put(f"{path}/tensors/1", content=long, headers=headers).text


def frame(opcode: int, payload: bytes = b"", fin: bool = True) -> bytes:
    """A masked WebSocket frame of a client, whose mask is zero."""
    assert len(payload) < 126
    return bytes([0x80 * fin | opcode, 0x80 | len(payload), 0, 0, 0, 0]) + payload


FLOODS: dict[str, Callable[[], tuple[bytes, bytes]]] = {
    "empty fragments": lambda: (frame(2, b"x", fin=False), frame(0, fin=False) * 10_000),
    "fragments": lambda: (frame(2, b"x", fin=False), frame(0, b"x" * 100, fin=False) * 600),
    "pings": lambda: (b"", frame(9, b"x" * 100) * 600),
    "pongs": lambda: (b"", frame(10) * 10_000),
}


@pytest.mark.parametrize("name", FLOODS)
def test_frames_without_a_message_end_the_connection(server: ServerProcess, name: str) -> None:
    first, piece = FLOODS[name]()
    with session(server) as (path, headers), undisturbed(server), connected(server) as sock:
        key = headers["Telegrad-Session-Key"].encode()
        sock.sendall(UPGRADE % (path.rpartition("/")[2].encode(), TOKEN.encode(), key))
        head = b""
        while b"\r\n\r\n" not in head:
            head += sock.recv(1)
        assert head.startswith(b"HTTP/1.1 101")
        sock.sendall(first)
        assert send_until_closed(sock, piece, 64 * MIB) < 32 * MIB, "the server reads on and on"
        assert plain_http.get(f"{path}/memory_stats", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
     {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}],
    ids=str,
)  # fmt: skip
def test_pages_of_other_sites_reach_nothing(headers: dict[str, str], open_server: ServerProcess) -> None:
    url = open_server.url
    refused = plain_http.post(f"{url}/v1/sessions", json={}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (403, "AuthenticationError")
    assert "TELEGRAD_ALLOWED_ORIGINS" in refused.json()["detail"]
    assert plain_http.get(f"{url}/v1/devices", headers=headers).status_code == 403


@pytest.fixture(scope="module")
def open_server() -> Iterator[ServerProcess]:
    with ServerProcess(TELEGRAD_ALLOWED_ORIGINS="https://notebooks.example") as running:
        yield running


def test_simple_requests_of_a_page_open_no_session(open_server: ServerProcess) -> None:
    url = open_server.url
    for kind in ("text/plain", "application/x-www-form-urlencoded", None):
        headers = {} if kind is None else {"Content-Type": kind}
        answer = plain_http.post(f"{url}/v1/sessions", content=b"{}", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (415, "RequestError")
    own = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
    for allowed in (own, {"Origin": "https://notebooks.example", "Sec-Fetch-Site": "cross-site"}, {}):
        opened = plain_http.post(f"{url}/v1/sessions", json={}, headers=allowed)
        assert opened.status_code == 201, opened.text
        key = {"Telegrad-Session-Key": opened.json()["key"]}
        plain_http.delete(f"{url}/v1/sessions/{opened.json()['session']}", headers=key)
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert plain_http.get(f"{url}/docs", headers=link).status_code == 200


def test_a_token_that_crosses_a_network_in_clear_text_is_warned_of(server: ServerProcess) -> None:
    with (
        pytest.warns(UserWarning, match="unencrypted") as told,
        tg.connect(f"http://0.0.0.0:{server.port}", token=TOKEN),
    ):
        pass
    assert [warning.filename for warning in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tg.connect(server.url, token=TOKEN).disconnect()
    for address in ("https://gpu-node:8000", "http://localhost", "http://127.0.0.1:1", "http://[::1]:8000"):
        assert not is_read_on_the_way(address)
    for address in ("http://gpu-node:8000", "http://10.0.0.1", "http://127.example:80"):
        assert is_read_on_the_way(address)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, signed by itself, and its key."""
    return self_signed(tmp_path_factory.mktemp("tls"), "localhost")


def test_a_server_with_a_certificate_speaks_tls_alone(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    variables = {"TELEGRAD_TLS_CERT": str(cert), "TELEGRAD_TLS_KEY": str(key), "TELEGRAD_TOKEN": TOKEN}
    limits = {"TELEGRAD_MAX_CONNECTIONS": "16", "TELEGRAD_MAX_CONNECTIONS_PER_ADDRESS": "16"}
    context = ssl.create_default_context(cafile=str(cert))
    with ServerProcess(**variables, **limits) as server, contextlib.ExitStack() as stack:
        assert server.url.startswith("https://")
        for _ in range(64):  # handshakes that do not begin
            stack.enter_context(connected(server))
        assert httpx.get(f"{server.url}/healthz", verify=context, trust_env=False).status_code == 200
        with pytest.raises((httpx.HTTPError, ssl.SSLError)):
            httpx.get(server.url.replace("https", "http"), trust_env=False)
        with tg.connect(server.url, token=TOKEN, tls=context):
            values = tg.arange(300_000.0, device="cpu")
            assert tg.equal(tg.tensor(values.numpy(), device="cpu"), values)
        with pytest.raises(ConnectError):
            tg.connect(server.url, token=TOKEN)  # the system does not trust the certificate
