"""The WebSocket route of a session's stream, and the uvicorn protocol below it.

The route admits a connection like any other endpoint. From then on frames go from uvicorn's WebSocket protocol
straight to the session, without a queue and a task switch for each; that needs ``StreamProtocol`` as uvicorn's ``ws``.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from asyncio.transports import BaseTransport
from collections.abc import Generator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, WebSocket
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.http11 import Request
from websockets.server import ServerProtocol

from telegrad_protocol.bulk import BulkReader
from telegrad_protocol.errors import InternalError, ProtocolError, SessionLostError, TelegradError
from telegrad_protocol.link import Parts

from .auth import SESSION_KEY_HEADER, check_session_key
from .problems import Refused, problem_response
from .relay import LOST, REFUSED, GatewaySession

EXTENSION: Final = "telegrad.stream"
CLOSE_SECONDS: Final = 2.0
"""How long a client may take to agree to the end."""
READ_BYTES: Final = 1 << 16
WRITE_BUFFER_BYTES: Final = 4 << 20
MAX_REASON_BYTES: Final = 123

router = APIRouter()


class _BulkProtocol(ServerProtocol):
    bulk: BulkReader

    def parse(self) -> Generator[None, None, None]:
        self.reader = self.bulk = BulkReader(scratch=True)
        yield from super().parse()


class _Receiver(asyncio.BufferedProtocol):
    """What the loop sees of a ``StreamProtocol`` that is taken over: bytes are received where they belong."""

    def __init__(self, stream: StreamProtocol, bulk: BulkReader) -> None:
        self._stream, self._bulk = stream, bulk
        self._small = memoryview(bytearray(READ_BYTES))
        self._place: memoryview | None = None
        self.connection_lost = stream.connection_lost  # type: ignore[method-assign]
        self.eof_received = stream.eof_received  # type: ignore[method-assign]
        self.pause_writing = stream.pause_writing  # type: ignore[method-assign]
        self.resume_writing = stream.resume_writing  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        self._place = self._bulk.place
        return self._small if self._place is None else self._place

    def buffer_updated(self, count: int) -> None:
        if self._place is None:
            self._stream.data_received(self._small[:count])  # type: ignore[arg-type]  # it is copied at once
        else:
            self._bulk.placed(count)
            self._stream.data_received(b"")


class StreamProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, which a session can take over once the handshake is done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.close_timeout = CLOSE_SECONDS
        self.ping_interval = None  # the link has heartbeats of its own
        self.conn = self._protocol = _BulkProtocol(max_size=self.config.ws_max_size, logger=self.logger)
        self._session: GatewaySession | None = None
        self._over = asyncio.Event()

    async def serve(self, session: GatewaySession, received: int) -> None:
        """Be the connection of ``session`` until it is lost or closed."""
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._session = session
        try:
            session.attach(self, received)
        except ProtocolError as error:
            self.end(REFUSED, f"{error.code}: {error.message}")
        self._take_over_queue()
        self.transport.set_protocol(_Receiver(self, self._protocol.bulk))
        try:
            await self._over.wait()
        finally:
            session.detach(self)

    @property
    def full(self) -> bool:
        """Whether the client does not keep up with what was written."""
        return not self.writable.is_set()

    def write(self, parts: Parts) -> None:
        """Send one message, without copying its parts together."""
        if not self.close_sent and not self.transport.is_closing():
            self.transport.writelines([_head(sum(map(len, parts))), *parts])

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
            self.conn.send_close(code, _shorten(reason))
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
        if self._session is not None:
            self._session.detach(self)

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


@router.websocket("/v1/sessions/{session_id}/stream")
async def stream(websocket: WebSocket, session_id: str, received: Annotated[int, Query(ge=0)] = 0) -> None:
    """Carry the frames of a session; ``received`` is the number of the last frame that the client has."""
    try:
        session: GatewaySession = websocket.app.state.gateway.registry.get(session_id)
        check_session_key(session, websocket.headers.get(SESSION_KEY_HEADER))
        protocol = websocket.scope["extensions"].get(EXTENSION)
        if protocol is None:
            raise InternalError("the server must run with ws=server.gateway.websocket.StreamProtocol")
    except Refused as refusal:
        await _deny(websocket, refusal.error, refusal.status_code)
    except TelegradError as error:
        await _deny(websocket, error)
    else:
        await websocket.accept()
        await protocol.serve(session, received)


async def _deny(websocket: WebSocket, error: TelegradError, status: int | None = None) -> None:
    await websocket.send_denial_response(problem_response(websocket.url.path, error, status))


def _head(length: int) -> bytes:
    """The head of an unmasked binary WebSocket message (RFC 6455, 5.2)."""
    if length < 126:
        return struct.pack("!BB", 0x82, length)
    if length < 1 << 16:
        return struct.pack("!BBH", 0x82, 126, length)
    return struct.pack("!BBQ", 0x82, 127, length)


def _shorten(reason: str) -> str:
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
