"""Whatever is sent to a session's real stream: the sender gets a typed error, and nobody else notices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

import telegrad
from telegrad._session.sending.send_queue import FIRST_NUMBER
from telegrad._transport.socket_transport import SocketTransport
from telegrad._transport.websocket import Address
from telegrad.errors import (
    AuthenticationError,
    CommunicationError,
    DeviceError,
    ProtocolError,
    SessionLostError,
    ShapeError,
    TelegradError,
    UnknownIdError,
)
from telegrad_protocol import wire
from telegrad_protocol.errors import BY_CODE
from telegrad_protocol.messages import Backward, Call, Gradient, Query, Read, Seed, SetGrad, Upload
from telegrad_protocol.ops import TABLE
from tests.support import plain_http

from .server_process import ServerProcess

FUZZ = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
HEADERS = st.builds(
    wire.LINK_HEADER.pack, st.integers(0, 6), st.integers(0, 3) | st.integers(0, 2**64 - 1), st.integers(0, 2)
)


@pytest.fixture
def bystander(server: ServerProcess) -> Iterator[Any]:
    """Another client's tensor, which is what it was at the end."""
    with telegrad.connect(server.url):
        tensor = telegrad.arange(5) * 2
        yield tensor
        assert tensor.tolist() == [0, 2, 4, 6, 8]


@contextlib.contextmanager
def raw_stream(server: ServerProcess, **headers: str) -> Iterator[ClientConnection]:
    """A WebSocket to a new session, which is closed afterwards."""
    opened = plain_http.post(f"{server.url}/v1/sessions", json={}).json()
    key = {"Telegrad-Session-Key": opened["key"]}
    address = f"ws{server.url.removeprefix('http')}/v1/sessions/{opened['session']}"
    try:
        with connect(f"{address}/stream?received=0", additional_headers=key | headers, compression=None) as stream:
            yield stream
    finally:
        plain_http.delete(f"{server.url}/v1/sessions/{opened['session']}", headers=key)


def _reaction(stream: ClientConnection) -> str:
    """The code that the server closes the stream with; empty where it goes on."""
    try:
        while True:
            stream.recv(timeout=0.05)
    except TimeoutError:
        return ""
    except ConnectionClosed as closed:
        assert closed.rcvd is not None
        return closed.rcvd.reason.partition(":")[0]


@FUZZ
@given(message=st.binary(max_size=300) | st.builds(lambda h, b: h + b, HEADERS, st.binary(max_size=200)))
def test_any_bytes(server: ServerProcess, bystander: Any, message: bytes) -> None:
    with raw_stream(server) as stream:
        stream.send(message)
        assert _reaction(stream) in ("", *BY_CODE)


def test_a_text_message(server: ServerProcess, bystander: Any) -> None:
    with raw_stream(server) as stream:
        stream.send("text")
        assert _reaction(stream) in BY_CODE or _reaction(stream) == ""


def test_a_message_beyond_the_limit(server: ServerProcess, bystander: Any) -> None:
    with raw_stream(server) as stream:
        with contextlib.suppress(ConnectionClosed):
            stream.send(wire.LINK_HEADER.pack(wire.BATCH, 1, 0) + bytes(9 << 20))
        with pytest.raises(ConnectionClosed):
            while True:
                stream.recv(timeout=10)


def test_a_gap_in_the_numbers(server: ServerProcess, bystander: Any) -> None:
    with raw_stream(server) as stream:
        stream.send(wire.LINK_HEADER.pack(wire.BATCH, 5, 0) + wire.encode_batch([]))
        assert _reaction(stream) == "ProtocolError"


def _op(name: str, outs: tuple[int, ...], *args: Any) -> Call:
    return Call(TABLE[name].index, 0, outs, list(args))


MINE = FIRST_NUMBER
"""The tensor that the session has."""
BAD_INSTRUCTIONS: list[tuple[Any, type[TelegradError]]] = [
    (_op("as_strided", (900,), MINE, [4], [1 << 40], 0), TelegradError),
    (_op("as_strided", (900,), MINE, [100], [1], 0), TelegradError),
    (_op("as_strided", (900,), MINE, [1], [1], -1), TelegradError),
    (_op("as_strided", (900,), MINE, [2], [-1], 1), TelegradError),
    (_op("add", (900,), 12345, MINE, 1), UnknownIdError),
    (_op("add", (900,), MINE, -1, 1), UnknownIdError),
    (_op("bmm", (900,), MINE, MINE), ShapeError),
    (_op("view", (900,), MINE, [7]), ShapeError),
    (_op("add", (900, 901), MINE, MINE, 1), ProtocolError),
    (_op("add", (900,), MINE), ProtocolError),
    (_op("add", (900,), "one", MINE, 1), ProtocolError),
    (Call(10**6, 0, (900,), []), ProtocolError),
    (Call(-1, 0, (900,), []), ProtocolError),
    (_op("zeros", (900,), [1 << 50], 6, "cpu"), TelegradError),
    (_op("zeros", (900,), [1 << 62, 1 << 62], 6, "cpu"), TelegradError),
    (_op("zeros", (900,), [-1], 6, "cpu"), TelegradError),
    (_op("zeros", (900,), [1] * 1000, 6, "cpu"), TelegradError),
    (_op("zeros", (900,), [2], 99, "cpu"), ProtocolError),
    (_op("zeros", (900,), [2], 6, "cuda:7"), DeviceError),
    (Upload(900, 0, 6, (1 << 50,), "cpu"), TelegradError),
    (Upload(900, 0, 6, (2,), "cpu", b"xxx"), ProtocolError),
    (Upload(900, 0, 77, (2,), "cpu", b""), ProtocolError),
    (Read(10**6, 900), UnknownIdError),
    (Query(10**6, "nonsense", []), ProtocolError),
    (Query(10**6, "memory_stats", [1, 2, 3]), ProtocolError),
    (Seed("cuda:9", 1), DeviceError),
    (SetGrad(MINE, 900), UnknownIdError),
    (Backward(0, (900,), (None,), [], False, False), UnknownIdError),
    (Backward(0, (MINE,), (), [], False, False), ProtocolError),
    (Gradient(0, (MINE,), (None,), (MINE,), (), False, False, False), ProtocolError),
]


@pytest.mark.parametrize("number", range(len(BAD_INSTRUCTIONS)))
def test_bad_instructions_are_typed_errors_and_change_nothing(
    server: ServerProcess, bystander: Any, number: int
) -> None:
    instruction, kind = BAD_INSTRUCTIONS[number]
    with telegrad.connect(server.url):
        mine = telegrad.arange(4.0)
        session = mine._session
        assert mine._id == MINE and mine.tolist() == [0.0, 1.0, 2.0, 3.0]
        before = telegrad.cuda.memory_allocated()
        session.submit(instruction)
        with pytest.raises(kind) as raised:
            telegrad.cuda.synchronize()
            telegrad.cuda.synchronize()
        assert raised.value.code != "InternalError", raised.value.server_traceback
        assert str(raised.value)
        assert mine.tolist() == [0.0, 1.0, 2.0, 3.0]
        assert telegrad.cuda.memory_allocated() == before


def test_a_session_needs_its_own_key(server: ServerProcess, bystander: Any) -> None:
    with telegrad.connect(server.url) as connection:
        hello = connection.session.transport.hello
        other = bystander._session.transport.hello
        for key in (other.key, "", "guess"):
            with pytest.raises(AuthenticationError):
                SocketTransport(Address(server.url, hello.session, key), hello)
            answer = plain_http.get(
                f"{server.url}/v1/sessions/{hello.session}/tensors/1",
                headers={"Telegrad-Session-Key": key},
            )  # fmt: skip
            assert answer.status_code in (401, 403)
        with pytest.raises((SessionLostError, AuthenticationError)):
            SocketTransport(Address(server.url, "0123456789abcdef", hello.key), hello)
        assert telegrad.ones(1).item() == 1.0


def test_a_stream_without_a_key_is_not_opened(server: ServerProcess) -> None:
    with pytest.raises(InvalidStatus) as refused, raw_stream(server, **{"Telegrad-Session-Key": "wrong"}):
        pass
    assert refused.value.response.status_code in (401, 403)


def test_bytes_behind_a_valid_start(server: ServerProcess, bystander: Any) -> None:
    with telegrad.connect(server.url):
        tensor = telegrad.ones(3)
        session = tensor._session
        tensor.tolist()
        session.transport.send_batch(b"\xc1\xff\x00")
        with pytest.raises(CommunicationError):
            tensor.tolist()
        assert tensor.tolist() == [1.0] * 3
