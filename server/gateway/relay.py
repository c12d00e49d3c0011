"""One session as the gateway sees it: the link to its client, the channel to its worker, at most one connection.

It passes bodies on as they are: what is in a batch is between client and worker. It never holds more than a window of
either direction: what the worker has not taken is not acknowledged, and while the client does not keep up nothing more
is read from the worker. From the client it always reads, or acknowledgements would wait behind data, and both for ever.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from server.ipc import channel
from server.ipc.channel import Frame
from telegrad_protocol import wire
from telegrad_protocol.errors import ProtocolError, TelegradError
from telegrad_protocol.link import Link, Parts, Received
from telegrad_protocol.messages import Failure, Hello

from .async_channel import AsyncChannel

NORMAL: Final = 1000
LOST: Final = 4001
REPLACED: Final = 4002
REFUSED: Final = 4003

log = logging.getLogger(__name__)


class Connection(Protocol):
    """A WebSocket as far as a session uses it; calls back ``frame_received``, ``writable`` and ``detach``."""

    @property
    def full(self) -> bool:
        """Whether the client does not keep up with what was written."""

    def write(self, parts: Parts) -> None:
        """Send one message."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def end(self, code: int, reason: str) -> None:
        """Close, after what was written."""


class GatewaySession:
    """An open session. ``key`` is the secret that its client proves itself with."""

    def __init__(
        self, number: int, hello: Hello, sock: socket.socket,
        on_close: Callable[[GatewaySession], None], on_lost: Callable[[GatewaySession, bool], None],
    ) -> None:  # fmt: skip
        self.number, self.id, self.key, self.hello = number, hello.session, hello.key, hello
        self.last_sign = self.last_sent = time.monotonic()
        self.frames_received = self.frames_sent = self.bytes_received = self.bytes_sent = 0
        self._on_close, self._on_lost = on_close, on_lost
        self._link = Link(hold=True)
        self._connection: Connection | None = None
        self._ended_by_worker = False
        self._passed_on: deque[tuple[int, int]] = deque()
        self._passed_bytes = self._released_bytes = 0
        self._channel = AsyncChannel(sock, self._from_worker, self._channel_ended, self._worker_took_some)

    def attach(self, connection: Connection, received: int) -> None:
        """Continue over a new connection, from what the client has received; ``ProtocolError`` if that cannot be."""
        missing = self._link.resend_after(received)
        replaced, self._connection = self._connection, None
        if replaced is not None:
            replaced.end(REPLACED, "the client connected anew")
        self._connection = connection
        self.last_sign = time.monotonic()
        self._acknowledge(connection)
        for parts in missing:
            self._write(connection, parts)
        self._hold_worker()

    def detach(self, connection: Connection) -> None:
        """The connection was lost; its session waits for another until the lease ends."""
        if connection is self._connection:
            self._connection = None

    def frame_received(self, connection: Connection, frame: bytes | bytearray) -> None:
        """Take a message from the client."""
        if connection is not self._connection:
            return
        self.last_sign = time.monotonic()
        self.frames_received += 1
        self.bytes_received += len(frame)
        link = self._link
        try:
            link.receive(frame)
        except ProtocolError as error:
            self.refuse(error)
            return
        while link.inbox:
            self._deliver(link.inbox.popleft())
        self._release()
        self._hold_worker()

    def writable(self) -> None:
        """The client has caught up with what was written."""
        self._hold_worker()

    def tick(self, now: float, heartbeat: float) -> None:
        """Say something to the client if that is due."""
        connection = self._connection
        if connection is not None and (self._link.owes_acknowledgement or now - self.last_sent >= heartbeat):
            self._acknowledge(connection)

    def fail(self, error: TelegradError) -> None:
        """Tell the client, in order with the replies, that its session is over."""
        failure = Failure(0, None, error.code, error.message, "", "", "", error.server_traceback)
        self._send(wire.BATCH, wire.encode_batch([failure]))

    def refuse(self, error: TelegradError) -> None:
        """Close the connection because of what came over it."""
        self._end_connection(REFUSED, error)

    def close(self, error: TelegradError | None = None) -> None:
        """Let go of channel and connection; ``error`` says why if the client did not ask for it."""
        self._channel.close()
        self._end_connection(LOST if error else NORMAL, error)

    def _deliver(self, frame: Received) -> None:
        if frame.kind == wire.CLOSE:
            self._on_close(self)
            return
        self._channel.send(frame.kind, 0, [frame.body])
        self._passed_bytes += channel.HEADER.size + len(frame.body)
        self._passed_on.append((frame.sequence, self._passed_bytes))
        if self._channel.pending > 2 * self._link.window and self._connection is not None:
            self._connection.pause_reading()  # a client that ignores its window

    def _release(self) -> None:
        """Acknowledge what the worker has taken."""
        taken = self._passed_bytes - self._channel.pending
        link, passed_on = self._link, self._passed_on
        while passed_on and passed_on[0][1] <= taken:
            sequence, end = passed_on.popleft()
            link.release(sequence, end - self._released_bytes)
            self._released_bytes = end
        if link.wants_acknowledgement and self._connection is not None:
            self._acknowledge(self._connection)

    def _worker_took_some(self) -> None:
        self._release()
        if self._connection is not None and self._channel.pending <= self._link.window:
            self._connection.resume_reading()

    def _hold_worker(self) -> None:
        behind = self._connection is not None and self._connection.full
        if behind or not self._link.can_send:
            self._channel.pause_reading()
        else:
            self._channel.resume_reading()

    def _from_worker(self, frame: Frame) -> None:
        if frame.kind == channel.CLOSE:
            self._ended_by_worker = True
            return
        self._send(frame.kind, frame.body)
        self._hold_worker()

    def _channel_ended(self) -> None:
        self._on_lost(self, self._ended_by_worker)

    def _send(self, kind: int, body: bytes | memoryview) -> None:
        parts = (self._link.header(kind), body)
        self._link.keep(parts, len(body))
        if self._connection is not None:
            self._write(self._connection, parts)

    def _acknowledge(self, connection: Connection) -> None:
        self._write(connection, (self._link.header(wire.ACK),))

    def _write(self, connection: Connection, parts: Parts) -> None:
        self.last_sent = time.monotonic()
        self.frames_sent += 1
        self.bytes_sent += sum(map(len, parts))
        connection.write(parts)

    def _end_connection(self, code: int, error: TelegradError | None) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.end(code, f"{error.code}: {error.message}" if error else "")
