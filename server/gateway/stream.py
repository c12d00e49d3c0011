"""One session as the gateway sees it, from the client's WebSocket to the worker's channel and back.

``StreamProtocol`` is uvicorn's WebSocket protocol, which a session takes over once the handshake is done: from then
on frames go from it straight to ``SessionRelay``, without a queue and a task switch for each. The relay passes bodies
on as they are: what is in a batch is between client and worker. It never holds more than a window of either direction:
what the worker has not taken is not acknowledged, and while the client does not keep up nothing more is read from the
worker. From the client it always reads, or acknowledgements would wait behind data, and both for ever.

Both are in one file because every frame passes them together.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from asyncio.transports import BaseTransport
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import structs
from websockets.exceptions import InvalidState
from websockets.http11 import Request

from server.ipc import channel
from server.ipc.channel import AsyncChannel, Frame
from telegrad_protocol import wire
from telegrad_protocol.errors import ProtocolError, SessionDetachedError, SessionLostError, TelegradError
from telegrad_protocol.link import ACK_SECONDS, WINDOW_BYTES, Link, Parts, Received, heartbeat_seconds
from telegrad_protocol.messages import Attach, Detach, Failure, Hello

from .door.receiver import BulkProtocol, Receiver
from .door.websocket import LimitedWebSocket
from .websocket_frames import close_reason, message_head

NORMAL: Final = 1000
LOST: Final = 4001
REPLACED: Final = 4002
REFUSED: Final = 4003
"""Codes with which a WebSocket is closed: at the client's wish; session gone; a newer connection; protocol error."""
EXTENSION: Final = "telegrad.stream"
"""Under this name the ASGI scope of a stream has its ``StreamProtocol``."""
LOAD_SECONDS: Final = 10.0
"""A session that has sent nothing for so long counts as hardly at work."""
CLOSE_SECONDS: Final = 2.0
"""How long a client may take to agree to the end."""
WRITE_BUFFER_BYTES: Final = 4 << 20


class SessionRelay:
    """An open session: the link to its client, the channel to its worker, and at most one connection.

    ``key`` is the secret that its client proves itself with; ``client`` is how that describes itself. ``on_close`` is
    called when the client ends the session, ``on_lost`` when the worker does, ``on_lease_end`` when nothing was heard
    of the client for ``lease`` seconds, ``on_interrupt`` with the number of an interrupt, which overtakes what waits
    for the worker. ``load`` is in how much of the last seconds the client sent work, from 0 to 1;
    over HTTP, ``worked`` notes it.
    """

    def __init__(
        self, number: int, hello: Hello, sock: socket.socket, loop: asyncio.AbstractEventLoop,
        on_close: Callable[[SessionRelay], None], on_lost: Callable[[SessionRelay, bool], None],
        on_lease_end: Callable[[SessionRelay], None], on_interrupt: Callable[[SessionRelay, int], None],
    ) -> None:  # fmt: skip
        self.number, self.id, self.key, self.hello = number, hello.session, hello.key, hello
        self.last_sign = self.last_sent = self.last_work = time.monotonic()
        self.frames_received = self.frames_sent = self.bytes_received = self.bytes_sent = 0
        self.client: Mapping[str, Any] = {}
        self.owner, self.tenant = b"", ""
        self.opened = time.time()
        self.left = SessionDetachedError("")
        self._on_close, self._on_lost, self._on_lease_end = on_close, on_lost, on_lease_end
        self._on_interrupt = on_interrupt
        self._set_lease(hello.lease_seconds)
        self.window = hello.limits.get("window_bytes", WINDOW_BYTES)
        self._link = Link(self.window, hold=True)
        self._connection: StreamProtocol | None = None
        self._ended_by_worker = False
        self._passed_on: deque[tuple[int, int]] = deque()
        self._passed_bytes = self._released_bytes = 0
        self._loop = loop
        self._channel = AsyncChannel(sock, loop, self._from_worker, self._channel_ended, self._worker_took_some)
        self._outbox = self._channel.writer
        self.load = 1.0
        self.worked = True
        self._last_tick = self.last_sign
        self._passed_at_tick = 0
        self._timer = loop.call_later(self._tick_seconds, self._tick)

    @property
    def is_in_use(self) -> bool:
        """Whether a client is connected that has been heard of lately."""
        return self._connection is not None and time.monotonic() - self.last_sign < 3 * self._heartbeat

    def change_client(self, lease: float | None, instruction: Detach | Attach, left: SessionDetachedError) -> None:
        """Refuse the client that has the session, and whose answers are dropped; ``left`` is what it is told.

        ``instruction`` tells the worker. ``lease`` is the new one, in seconds; None leaves it as it is.
        """
        self._end_connection(LOST, left)
        self.left = left
        self._set_lease(self._lease if lease is None else lease)
        self.hello = structs.replace(self.hello, attachment=self.hello.attachment + 1, lease_seconds=self._lease)
        self.last_sign = time.monotonic()
        self._link = Link(self.window, hold=True)
        self._passed_on.clear()
        body = wire.encode_batch([instruction])
        self._channel.send(wire.BATCH, 0, [body])
        self._passed_bytes += channel.HEADER.size + len(body)
        self._released_bytes = self._passed_bytes
        self._hold_worker()

    def _set_lease(self, seconds: float) -> None:
        self._lease = seconds
        self._heartbeat = heartbeat_seconds(seconds)
        self._tick_seconds = min(ACK_SECONDS * 0.8, self._heartbeat / 2)

    def connect(self, connection: StreamProtocol, received: int) -> None:
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

    def disconnect(self, connection: StreamProtocol) -> None:
        """The connection was lost; its session waits for another until the lease ends."""
        if connection is self._connection:
            self._connection = None

    def frame_received(self, connection: StreamProtocol, frame: bytes | bytearray) -> None:
        """Take a message from the client."""
        if connection is not self._connection:
            return
        self.last_sign = time.monotonic()
        self.frames_received += 1
        self.bytes_received += len(frame)
        link = self._link
        try:
            kind = link.receive(frame)
        except ProtocolError as error:
            self.refuse(error)
            return
        if kind == wire.INTERRUPT:
            self._on_interrupt(self, wire.LINK_HEADER.unpack_from(frame)[1])
        while link.inbox:
            self._deliver(link.inbox.popleft())
        self._release()
        self._hold_worker()

    def writable(self) -> None:
        """The client has caught up with what was written."""
        self._hold_worker()

    def fail(self, error: TelegradError) -> None:
        """Tell the client, in order with the replies, that its session is over."""
        failure = Failure(0, None, error.code, error.message, "", "", "", error.server_traceback)
        self._send(wire.BATCH, wire.encode_batch([failure]))

    def refuse(self, error: TelegradError) -> None:
        """Close the connection because of what came over it."""
        self._end_connection(REFUSED, error)

    def close(self, error: TelegradError | None = None) -> None:
        """End channel and connection; ``error`` says why if the client did not ask for it."""
        self._timer.cancel()
        self._channel.close()
        self._end_connection(LOST if error else NORMAL, error)
        self._link = Link(self.window)  # the old one has what was not acknowledged
        self._passed_on.clear()

    def _tick(self) -> None:
        """Say something to the client if that is due, and end a lease that nobody has renewed."""
        now = time.monotonic()
        # A gateway that was held up, or asleep, has heard nobody: what came meanwhile is still to be read.
        deaf = max(0.0, now - self._last_tick - 2 * self._tick_seconds)
        self._last_tick = now
        self._note_load()
        self.last_sign = min(now, self.last_sign + deaf)
        connection = self._connection
        if connection is not None and (self._link.owes_acknowledgement or now - self.last_sent >= self._heartbeat):
            self._acknowledge(connection)
        if now - self.last_sign > self._lease:
            self._on_lease_end(self)
        else:
            self._timer = self._loop.call_later(self._tick_seconds, self._tick)

    def _note_load(self) -> None:
        worked = self.worked or self._passed_bytes != self._passed_at_tick
        self.worked, self._passed_at_tick = False, self._passed_bytes
        self.last_work = self._last_tick if worked else self.last_work
        self.load += (worked - self.load) * min(1.0, self._tick_seconds / LOAD_SECONDS)

    def _deliver(self, frame: Received) -> None:
        """Pass a frame of the client on to the worker."""
        if frame.kind == wire.CLOSE:
            self._on_close(self)
            return
        self._channel.send(frame.kind, int(self.last_sign * 1e9), [frame.body])
        self._passed_bytes += channel.HEADER.size + len(frame.body)
        self._passed_on.append((frame.sequence, self._passed_bytes))
        if self._outbox.pending > 2 * self._link.window and self._connection is not None:
            self._connection.pause_reading()  # a client that ignores its window

    def _release(self) -> None:
        """Acknowledge what the worker has taken."""
        taken = self._passed_bytes - self._outbox.pending
        link, passed_on = self._link, self._passed_on
        while passed_on and passed_on[0][1] <= taken:
            sequence, end = passed_on.popleft()
            link.release(sequence, end - self._released_bytes)
            self._released_bytes = end
        if link.wants_acknowledgement and self._connection is not None:
            self._acknowledge(self._connection)

    def _worker_took_some(self) -> None:
        self._release()
        if self._connection is not None and self._outbox.pending <= self._link.window:
            self._connection.resume_reading()

    def _hold_worker(self) -> None:
        """Read from the worker only while the client keeps up with what it is sent."""
        connection, channel = self._connection, self._channel
        if self._link.can_send and (connection is None or connection.writable.is_set()):
            if not channel.reading:
                channel.resume_reading()
        elif channel.reading:
            channel.pause_reading()

    def _from_worker(self, frame: Frame) -> None:
        if frame.kind == channel.CLOSE:
            self._ended_by_worker = True
            return
        if frame.kind == channel.TRAFFIC:
            self._note_traffic(*channel.TRAFFIC_COUNTS.unpack(frame.body))
            return
        self._send(frame.kind, frame.body)
        self._hold_worker()

    def _note_traffic(self, frames_in: int, frames_out: int, bytes_in: int, bytes_out: int) -> None:
        """Count what went between client and worker past the gateway."""
        self.frames_received += frames_in
        self.frames_sent += frames_out
        self.bytes_received += bytes_in
        self.bytes_sent += bytes_out
        self.worked = True

    def _channel_ended(self) -> None:
        self._on_lost(self, self._ended_by_worker)

    def _send(self, kind: int, body: bytes | memoryview) -> None:
        parts = (self._link.header(kind), body)
        self._link.keep(parts, len(body))
        if self._connection is not None:
            self._write(self._connection, parts)

    def _acknowledge(self, connection: StreamProtocol) -> None:
        self._write(connection, (self._link.header(wire.ACK),))

    def _write(self, connection: StreamProtocol, parts: Parts) -> None:
        self.last_sent = time.monotonic()
        self.frames_sent += 1
        self.bytes_sent += sum(map(len, parts))
        connection.write(parts)

    def _end_connection(self, code: int, error: TelegradError | None) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.end(code, f"{error.code}: {error.message}" if error else "")


class StreamProtocol(LimitedWebSocket):
    """uvicorn's WebSocket protocol, which a session can take over once the handshake is done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.close_timeout = CLOSE_SECONDS
        self.ping_interval = None  # the link has heartbeats of its own
        self.conn = self._protocol = BulkProtocol(max_size=self.config.ws_max_size, logger=self.logger)
        self._session: SessionRelay | None = None
        self._over = asyncio.Event()

    async def serve(self, session: SessionRelay, received: int) -> None:
        """Be the connection of ``session`` until it is lost or closed."""
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._session = session
        try:
            session.connect(self, received)
        except ProtocolError as error:
            self.end(REFUSED, f"{error.code}: {error.message}")
        self._take_over_queue()
        self.transport.set_protocol(Receiver(self, self._protocol.bulk))
        try:
            await self._over.wait()
        finally:
            session.disconnect(self)

    async def take_socket(self) -> socket.socket:
        """Give the connection up, once what was written is on its way, and return its socket."""
        while self.transport.get_write_buffer_size():
            await asyncio.sleep(0)
        self.transport.pause_reading()
        sock = socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno()))
        self.close_sent = True
        self.transport.abort()
        return sock

    def write(self, parts: Parts) -> None:
        """Send one message, without copying its parts together."""
        if not self.close_sent and not self.transport.is_closing():
            self.transport.writelines([message_head(sum(map(len, parts))), *parts])

    def pause_reading(self) -> None:
        if not self.read_paused and not self.transport.is_closing():
            self.read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    def end(self, code: int, reason: str) -> None:
        """Close after what was written, and go on reading until the client has agreed, lest it is reset."""
        self._over.set()
        if self.close_sent or self.transport.is_closing():
            return
        try:
            self.conn.send_close(code, close_reason(reason))
        except InvalidState:
            self.transport.close()
            return
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)
        self.resume_reading()

    def shutdown(self) -> None:
        """Called by uvicorn when the server stops: sessions do not outlive it, so their clients need not try again."""
        if self._session is None or self.close_sent:
            super().shutdown()
            return
        self.end(LOST, f"{SessionLostError.__name__}: the server is shutting down")

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions: Any = self.scope["extensions"]
            extensions[EXTENSION] = self

    def send_receive_event_to_app(self) -> None:
        if self._session is None:
            super().send_receive_event_to_app()
            return
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if not self.close_sent:
            self._session.frame_received(self, data)

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._over.set()
        self._protocol.release()
        if self._session is not None:
            self._session.disconnect(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._session is not None:
            self._session.writable()

    def _take_over_queue(self) -> None:
        while not self.queue.empty():
            message = self.queue.get_nowait()
            if message["type"] == "websocket.receive" and self._session is not None:
                self._session.frame_received(self, message.get("bytes") or b"")
        self.resume_reading()
