"""One WebSocket over one socket, driven by whichever thread calls it. Connects, reads and writes; knows no link.

``websockets`` does the handshake, the parsing and the closing. Messages are masked here, into the form in which they
are kept until they are acknowledged, so that a payload is copied once. ``OSError`` means that the connection is gone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from telegrad_protocol.bulk import BulkReader, pool
from telegrad_protocol.errors import (
    BY_CODE,
    ArgumentError,
    CommunicationError,
    ConnectError,
    DeviceError,
    NotAllowedError,
    SessionLostError,
    TelegradError,
    UnknownIdError,
    revive,
)
from telegrad_protocol.link import Buffer, Parts

from .address import base_url, socket_of
from .trace_context import trace_headers

try:
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover, where websockets has no wheel
    from websockets.utils import apply_mask

CONNECT_SECONDS: Final = 5.0
SOCKET_BUFFER_BYTES: Final = 4 << 20
SESSION_KEY_HEADER: Final = "Telegrad-Session-Key"
READ: Final = select.POLLIN
WRITE: Final = select.POLLOUT
_READ_BYTES: Final = 1 << 18
_JOIN_BYTES: Final = 1 << 13
"""Messages up to this many bytes are copied into one buffer, larger ones keep their payload apart."""
_MAX_BUFFERS: Final = 64
"""One system call writes at most so many buffers."""
_LOGGER: Final = logging.getLogger("websockets.client")
"""Looked up at import, since an interrupt within ``getLogger`` would leave the lock of all loggers taken."""


class ClosedByServer(SessionLostError):
    """The server ended the session's stream in good order."""


@dataclass(frozen=True)
class Address:
    """The address of a session's stream, and the secrets that a connection to it must show."""

    url: str
    session: str
    key: str
    token: str | None = None
    tls: ssl.SSLContext | None = None
    attachment: int = 1
    pages: str = ""
    """Where a browser reaches the server, if that is not ``url``."""

    def stream(self, received: int) -> str:
        """The WebSocket address that continues after frame ``received``."""
        stream = f"ws{base_url(self.url).removeprefix('http')}/v1/sessions/{self.session}/stream"
        return f"{stream}?received={received}&attachment={self.attachment}"


def masked_message(header: bytes, *body: Buffer) -> tuple[Parts, int]:
    """A binary WebSocket message from client to server (RFC 6455, 5.2) in parts, and its length."""
    length = len(header) + sum(map(len, body))
    key = os.urandom(4)
    if length <= _JOIN_BYTES:
        return (_head(length) + key + apply_mask(b"".join((header, *body)), key),), length
    first = b"".join((header, *body[:-1]))
    turn = len(first) % 4
    return (_head(length) + key + apply_mask(first, key), _masked(body[-1], key[turn:] + key[:turn])), length


def _masked(data: Buffer, key: bytes) -> Buffer:
    """Return what ``apply_mask`` returns, in memory from the pool of buffers."""
    words = len(data) // 4
    masked = pool.take(len(data))
    source, target = np.frombuffer(data, np.uint32, words), np.frombuffer(masked, np.uint32, words)
    np.bitwise_xor(source, np.frombuffer(key, np.uint32), out=target)
    masked[words * 4 :] = apply_mask(data[words * 4 :], key)
    return masked


def _head(length: int) -> bytes:
    if length < 126:
        return struct.pack("!BB", 0x82, 0x80 | length)
    if length < 1 << 16:
        return struct.pack("!BBH", 0x82, 0x80 | 126, length)
    return struct.pack("!BBQ", 0x82, 0x80 | 127, length)


class _BulkClientProtocol(ClientProtocol):
    """The protocol of ``websockets`` with a reader that receives large messages where they stay."""

    bulk: BulkReader

    def parse(self) -> Generator[None, None, None]:
        self.reader = self.bulk = BulkReader()
        yield from super().parse()


class WebSocketConnection:
    """An open WebSocket. ``deliver`` is called with each message that ``read`` completes.

    The server speaks first: it acknowledges what it has, so that what it lacks can be sent again.
    """

    def __init__(self, address: Address, received: int, deliver: Callable[[Buffer], Any]) -> None:
        self.last_read = self.last_write = time.monotonic()
        self.bytes_read = self.bytes_written = 0
        self._deliver = deliver
        self._heard = False
        self.unsent: deque[Buffer] = deque()
        self._fragments: list[Buffer] = []
        self._buffer = memoryview(bytearray(_READ_BYTES))
        uri = parse_uri(address.stream(received))
        self._protocol = _BulkClientProtocol(uri, max_size=None, logger=_LOGGER)
        path = socket_of(address.url)
        if path is None:
            self._socket = _connect(uri.host, uri.port, address.tls if uri.secure else None)
        else:
            self._socket = connect_unix(path)
        try:
            begin = time.monotonic()
            self._shake_hands(address)
            self.handshake_seconds = time.monotonic() - begin
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise

    def queue(self, parts: Parts) -> None:
        """Queue a masked message for the next ``write``."""
        self.unsent.extend(parts)

    def write(self) -> None:
        """Write as much of the queued messages as the socket takes without waiting."""
        try:
            while self.unsent:
                self._drop_sent(self._write_some())
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return

    def read(self) -> None:
        """Deliver the messages that one system call completes, if the socket has something."""
        place = self._protocol.bulk.place
        try:
            count = self._socket.recv_into(self._buffer if place is None else place)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        if not count:
            raise ConnectionResetError("the server closed the connection")
        self.last_read = time.monotonic()
        self.bytes_read += count
        if place is None:
            self._protocol.receive_data(self._buffer[:count])  # type: ignore[arg-type]  # it is copied at once
        else:
            self._protocol.bulk.placed(count)
            self._protocol.receive_data(b"")
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
        self.unsent.extend(self._protocol.data_to_send())
        if self._protocol.parser_exc is not None:
            raise ConnectionAbortedError(str(self._protocol.parser_exc))

    def wait(self, events: int, seconds: float | None) -> int:
        """Sleep until one of ``events``, or ``seconds`` have passed, and return what happened."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return READ
        poll = select.poll()
        poll.register(self._socket, events)
        happened = poll.poll(None if seconds is None else seconds * 1000)
        return happened[0][1] if happened else 0

    def fileno(self) -> int:
        """Return the descriptor of the socket; -1 once it is closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Break the connection, which wakes a thread that waits for it."""
        with contextlib.suppress(OSError):  # the other end may have closed it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def abandon(self) -> None:
        """Close this process's copy of the socket; the connection stays open in the process that it belongs to."""
        self._socket.close()

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.BINARY and frame.fin:
            self._heard = True
            self._deliver(frame.data)
        elif frame.opcode in (Opcode.BINARY, Opcode.CONT):
            self._fragments.append(frame.data)
            if frame.fin:
                fragments, self._fragments = self._fragments, []
                self._heard = True
                self._deliver(b"".join(fragments))
        elif frame.opcode is Opcode.CLOSE:
            self._raise_closed()

    def _raise_closed(self) -> None:
        close = self._protocol.close_rcvd
        assert close is not None
        self.unsent.extend(self._protocol.data_to_send())
        self.write()
        if close.code == 1000:
            raise ClosedByServer("the session was closed at the server")
        code, _, message = close.reason.partition(": ")
        if code in BY_CODE:
            raise revive(code, message)
        raise ConnectionResetError(f"the server closed the connection: {close.code} {close.reason}")

    def _write_some(self) -> int:
        if len(self.unsent) == 1 or isinstance(self._socket, ssl.SSLSocket):
            return self._socket.send(self.unsent[0])
        return self._socket.sendmsg([part for part, _ in zip(self.unsent, range(_MAX_BUFFERS))])

    def _drop_sent(self, count: int) -> None:
        self.last_write = time.monotonic()
        self.bytes_written += count
        while count:
            head = self.unsent[0]
            if count < len(head):
                self.unsent[0] = memoryview(head)[count:]
                return
            count -= len(head)
            self.unsent.popleft()

    def _shake_hands(self, address: Address) -> None:
        request = self._protocol.connect()
        request.headers[SESSION_KEY_HEADER] = address.key
        if address.token is not None:
            request.headers["Authorization"] = f"Bearer {address.token}"
        request.headers.update(trace_headers())
        self._protocol.send_request(request)
        self._socket.sendall(b"".join(self._protocol.data_to_send()))
        while True:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the server closed the connection during the handshake")
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                if isinstance(event, Response):
                    self._check_response(event)
                elif isinstance(event, Frame):
                    self._take(event)
            if self._protocol.handshake_exc is not None:
                raise ConnectionAbortedError(str(self._protocol.handshake_exc))
            if self._protocol.state is State.OPEN and self._heard:
                return

    def _check_response(self, response: Response) -> None:
        if response.status_code == 101:
            return
        if response.status_code >= 500:
            raise ConnectionAbortedError(f"the server answered {response.status_code} {response.reason_phrase}")
        raise refusal(response.status_code, bytes(response.body or b""))


def refusal(status: int, body: bytes) -> TelegradError:
    """Return the error that a problem document (RFC 9457) tells of, which refuses a session or its stream."""
    try:
        problem = json.loads(body)
        error = revive(problem["code"], problem["detail"])
    except (ValueError, KeyError, TypeError):
        return ConnectError(f"the server answered with status {status}")
    if isinstance(error, UnknownIdError):
        return SessionLostError(f"{error.message}: the server was restarted, or the session ended long ago")
    if isinstance(error, CommunicationError | ArgumentError | DeviceError | NotAllowedError):
        return error
    return ConnectError(f"{error.code}: {error.message}")


def connect_unix(path: str) -> socket.socket:
    """Return a connection to the Unix socket of a path."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(CONNECT_SECONDS)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


def _connect(host: str, port: int, tls: ssl.SSLContext | None) -> socket.socket:
    sock = socket.create_connection((host, port), CONNECT_SECONDS)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock if tls is None else tls.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise
