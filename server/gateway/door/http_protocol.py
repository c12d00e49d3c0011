"""uvicorn's HTTP protocol with limits: how long the head of a request may be and take, and how many may wait.

What exceeds them is answered by a problem document, and the connection is closed. Once a WebSocket has taken the
connection over, nothing of this is passed any more.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from server.gateway.problems import problem_response
from server.gateway.unix_socket import peer_of
from telegrad_protocol.errors import CommunicationError, RequestError, TelegradError

from .connections import Connections, Place

MAX_HEAD_BYTES: Final = 64 << 10
"""Bytes of a request's line and headers, and of what comes in a chunked body beside the body."""
SLICE_BYTES: Final = 16 << 10
"""Heads are parsed in pieces of this size: what a parser holds without a word is counted by the piece."""
MAX_URL_BYTES: Final = 16 << 10
MAX_HEADERS: Final = 100
MAX_WAITING: Final = 64
"""Requests of one connection that may wait until those before them are answered."""
HEAD_SECONDS: Final = 10.0
"""From the first byte of a request, or the beginning of the connection, to the end of the headers."""
BODY_SECONDS: Final = 30.0
"""How long a body may pause."""
LINGER_SECONDS: Final = 2.0
"""How long the rest of a body is read that nobody wants any more, lest the answer is lost with the connection."""


class LimitedProtocol(HttpToolsProtocol):
    """One connection that speaks HTTP. ``place`` is given where it was admitted before, by the handshake of TLS."""

    def __init__(self, connections: Connections, place: Place | None = None, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._connections = connections
        self.place = place
        self._timer: asyncio.TimerHandle | None = None
        self._awaits_head = True
        self._head_bytes = self._header_count = self._silent_bytes = 0
        self._last_data = 0.0
        self._refusal: tuple[int, TelegradError] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        if self.place is None:
            peer = peer_of(transport)
            if peer is not None:
                self.client = str(peer), 0
            address = f"uid={peer.uid}" if peer else self.client[0] if self.client else ""
            self.place = self._connections.admit(address, transport.abort)
        if self.place is None:
            self._refuse(503, CommunicationError("the server has as many connections as it may (MAX_CONNECTIONS)"))
        else:
            self._wait_at_most(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        self.pipeline.clear()
        if self.place is not None:
            self.place.release()

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self.transport.is_closing():
            return
        if self._awaits_head:
            if self._timer is None:
                self._wait_at_most(HEAD_SECONDS)
        else:
            self._last_data = self.loop.time()
        if self._awaits_head and len(data) > SLICE_BYTES:
            pieces = [data[begin : begin + SLICE_BYTES] for begin in range(0, len(data), SLICE_BYTES)]
        else:
            pieces = [data]
        for piece in pieces:
            self._silent_bytes += len(piece)
            super().data_received(piece)
            if self._silent_bytes > MAX_HEAD_BYTES:
                self._refuse(431, _too_long())
            if self.transport.is_closing() or self.transport.get_protocol() is not self:
                return

    def handle_websocket_upgrade(self) -> None:
        self._stop_waiting()
        place, self.place = self.place, None
        super().handle_websocket_upgrade()
        self.transport.get_protocol().place = place  # type: ignore[attr-defined]  # a StreamProtocol

    def on_message_begin(self) -> None:
        self._silent_bytes = self._head_bytes = self._header_count = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_URL_BYTES:
            self._stop(414, RequestError(f"the address is longer than {MAX_URL_BYTES} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._silent_bytes = 0
        self._head_bytes += len(name) + len(value) + 4
        self._header_count += 1
        if self._head_bytes > MAX_HEAD_BYTES:
            self._stop(431, _too_long())
        if self._header_count > MAX_HEADERS:
            self._stop(431, RequestError(f"the request has more than {MAX_HEADERS} headers"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._silent_bytes = 0
        self._awaits_head = False
        self._last_data = self.loop.time()
        if len(self.pipeline) >= MAX_WAITING:
            self._stop(400, RequestError(f"more than {MAX_WAITING} requests wait for an answer on this connection"))
        if self.place is not None:
            self.place.busy()
        self._wait_at_most(BODY_SECONDS, self._check_body)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._silent_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._silent_bytes = 0
        self._awaits_head = True
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.pipeline:
            self.flow.pause_reading()
        elif self.place is not None:
            self.place.rest()
        if not self._awaits_head:
            self._wait_at_most(LINGER_SECONDS, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        self._refuse(*(self._refusal or (400, RequestError("this is no request of HTTP/1.1"))))

    def _stop(self, status: int, error: TelegradError) -> None:
        """Within a callback of the parser: have it give up, and ``send_400_response`` called."""
        self._refusal = status, error
        raise error

    def _refuse(self, status: int, error: TelegradError) -> None:
        """Answer, if nothing else is being answered, and close the connection."""
        self._stop_waiting()
        if self.transport.is_closing():
            return
        self._connections.refused[status] += 1
        if self.cycle is None or self.cycle.response_complete:
            response = problem_response(_path_of(self.url if hasattr(self, "url") else b""), error, status)
            headers = [*response.raw_headers, (b"connection", b"close")]
            lines = [b"%s: %s\r\n" % header for header in headers]
            self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", bytes(response.body)]))
        self.transport.close()

    def _wait_at_most(self, seconds: float, then: Any = None) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, then or self._head_is_late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait_at_most(HEAD_SECONDS)  # the answer to the request before comes first
            return
        self._refuse(408, RequestError(f"the request's headers were not complete within {HEAD_SECONDS:g} s"))

    def _check_body(self) -> None:
        """Close a connection whose body has paused for too long, unless the server itself does not read on."""
        if self.flow.read_paused:
            self._last_data = self.loop.time()
        left = self._last_data + BODY_SECONDS - self.loop.time()
        if left > 0:
            self._wait_at_most(left, self._check_body)
        else:
            self._refuse(408, RequestError(f"nothing of the body has come for {BODY_SECONDS:g} s"))


def _too_long() -> RequestError:
    return RequestError(f"the request's headers are longer than {MAX_HEAD_BYTES} bytes")


def _path_of(url: bytes) -> str:
    return url.partition(b"?")[0][:200].decode("ascii", "replace")
