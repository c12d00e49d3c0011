"""Receiving large WebSocket messages: bytes go from the socket to where they belong, without a copy in between."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, Final

from websockets.server import ServerProtocol

from telegrad_protocol.bulk import BulkReader

READ_BYTES: Final = 1 << 16


class BulkProtocol(ServerProtocol):
    """The protocol of ``websockets`` with a reader that receives large messages where they stay."""

    bulk: BulkReader

    def parse(self) -> Generator[None, None, None]:
        self.reader = self.bulk = BulkReader(scratch=True)
        yield from super().parse()

    def release(self) -> None:
        """Give the memory up: the connection is lost. Garbage is not collected before many have come and gone."""
        self.parser.close()
        self.bulk.release()


class Receiver(asyncio.BufferedProtocol):
    """What the loop sees of ``stream``, a WebSocket of a session: bytes are received where they belong."""

    def __init__(self, stream: Any, bulk: BulkReader) -> None:
        self._stream, self._bulk = stream, bulk
        self._small = memoryview(bytearray(READ_BYTES))
        self._place: memoryview | None = None
        self.eof_received = stream.eof_received  # type: ignore[method-assign]
        self.pause_writing = stream.pause_writing  # type: ignore[method-assign]
        self.resume_writing = stream.resume_writing  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        self._small, self._place = memoryview(bytearray()), None
        self._stream.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        self._place = self._bulk.place
        return self._small if self._place is None else self._place

    def buffer_updated(self, count: int) -> None:
        if self._place is None:
            self._stream.data_received(self._small[:count])  # it is copied at once
        else:
            self._bulk.placed(count)
            self._stream.data_received(b"")
