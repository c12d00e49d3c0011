"""TLS: handshakes, which count as connections and may not take long."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

from server.gateway.unix_socket import peer_of

from .connections import Connections, Place
from .http_protocol import LimitedProtocol

HANDSHAKE_SECONDS: Final = 10.0


class _Begun:
    """The rest of a coroutine that has run to its first wait."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._coroutine, self._waits_for = coroutine, waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        try:
            while True:
                try:
                    value = yield waits_for
                except BaseException as error:
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(value)
        except StopIteration as end:
            return end.value


class TlsProtocol(asyncio.Protocol):
    """A connection until its handshake is done; then ``make`` gives the protocol that goes on.

    Over a Unix socket, which nobody reads on the way, there is none, and ``make_plain`` gives the protocol.
    """

    def __init__(
        self, context: ssl.SSLContext, connections: Connections, make: Callable[[Place], LimitedProtocol],
        make_plain: Callable[[], LimitedProtocol],
    ) -> None:  # fmt: skip
        self._context, self._connections, self._make = context, connections, make
        self._early = bytearray()
        self._make_plain = make_plain
        self._place: Place | None = None
        self._handshake: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        if peer_of(transport) is not None:
            plain = self._make_plain()
            transport.set_protocol(plain)
            plain.connection_made(transport)
            return
        peer = transport.get_extra_info("peername")
        self._place = self._connections.admit(peer[0] if isinstance(peer, tuple) else "", transport.abort)
        if self._place is None:
            transport.abort()
            return
        loop = asyncio.get_running_loop()
        handshake = loop.start_tls(
            transport, self, self._context, server_side=True, ssl_handshake_timeout=HANDSHAKE_SECONDS
        )
        # Up to its first wait it runs now: uvloop reads at once, and what comes belongs to the handshake.
        begun = _Begun(handshake, handshake.send(None))
        self._handshake = loop.create_task(self._shake_hands(transport, self._place, begun))

    def data_received(self, data: bytes) -> None:
        """Keep what came with the end of the handshake."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        if self._place is not None:
            self._place.release()

    async def _shake_hands(self, transport: Any, place: Place, handshake: _Begun) -> None:
        try:
            secure: Any = await handshake
        except (OSError, ssl.SSLError):
            transport.abort()
            place.release()
            return
        if secure is None or secure.is_closing():
            place.release()
            return
        place.close = secure.abort
        protocol = self._make(place)
        secure.set_protocol(protocol)
        protocol.connection_made(secure)
        if self._early:
            protocol.data_received(bytes(self._early))
