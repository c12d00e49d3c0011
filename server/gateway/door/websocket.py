"""uvicorn's WebSocket protocol with limits of what carries nothing: pings, pongs, fragments of messages.

Messages themselves pass none of this.
"""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame

from .connections import Place

POLICY: Final = 1008
"""The code with which a WebSocket is closed that exceeds a limit (RFC 6455, 7.4.1)."""
MAX_FRAGMENTS: Final = 1024
"""Fragments of one message. Clients of telegrad send none; proxies may."""
SMALL_FRAGMENT_BYTES: Final = 1024
MAX_SMALL_FRAMES: Final = 256
"""Pings, pongs and small fragments that a client may send within a second: each takes as long as a message."""
MAX_UNREAD_BYTES: Final = 1 << 16
"""While more than this waits to be sent, pings are not answered."""


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that closes a connection which sends too many frames without a message.

    ``place`` is its place among the connections.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.place: Place | None = None
        self._small_frames, self._second = 0, 0.0

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.place is not None:
            self.place.release()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MAX_FRAGMENTS:
            self._drop(f"a message in more than {MAX_FRAGMENTS} fragments")
        elif event.fin or len(event.data) >= SMALL_FRAGMENT_BYTES or self._counts_small_frame():
            super().handle_cont(event)

    def handle_ping(self) -> None:
        pong = b"".join(self.conn.data_to_send())
        if self._counts_small_frame() and self.transport.get_write_buffer_size() <= MAX_UNREAD_BYTES:
            self.transport.write(pong)

    def handle_pong(self, event: Frame) -> None:
        if self._counts_small_frame():
            super().handle_pong(event)

    def _counts_small_frame(self) -> bool:
        """Count a frame that carries nothing; False, and the connection is closed, where they are too many."""
        now = self.loop.time()
        if now - self._second > 1:
            self._second, self._small_frames = now, 0
        self._small_frames += 1
        if self._small_frames > MAX_SMALL_FRAMES:
            self._drop(f"more than {MAX_SMALL_FRAMES} pings, pongs and small fragments within a second")
        return self._small_frames <= MAX_SMALL_FRAMES

    def _drop(self, reason: str) -> None:
        """Close the connection, and read nothing more of it."""
        self.frames = []
        if self.close_sent or self.transport.is_closing():
            return
        self.close_sent = True
        try:
            self.conn.send_close(POLICY, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
        except InvalidState:
            pass
        self.transport.close()
