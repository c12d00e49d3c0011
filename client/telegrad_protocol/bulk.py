"""Memory for large payloads: buffers that are used again, and a WebSocket reader that receives into them.

Touching pages that the operating system has just handed out costs more than all copying of a payload, on either end of
the wire. Knows nothing of what is in a payload.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Generator
from typing import Final

from websockets.streams import StreamReader

from .messages import CHUNK_BYTES

LARGE_BYTES: Final = 1 << 16
"""Reads of at least this many bytes go into a buffer of the pool; for smaller ones a fresh one is cheaper."""
BUFFER_BYTES: Final = CHUNK_BYTES + 64
"""Bytes of a buffer: a chunk and the headers before it."""
KEPT_BUFFERS: Final = 16
"""Buffers that a pool keeps at most."""


class BufferPool:
    """Lends buffers, and lends a buffer again when nothing refers to it any more."""

    def __init__(self, kept: int = KEPT_BUFFERS) -> None:
        self._kept = kept
        self._buffers: deque[bytearray] = deque()

    def take(self, length: int) -> memoryview:
        """Return memory of ``length`` bytes with undefined contents."""
        if not LARGE_BYTES <= length <= BUFFER_BYTES:
            return memoryview(bytearray(length))
        return memoryview(self._free_buffer())[:length]

    def _free_buffer(self) -> bytearray:
        if self._buffers:
            self._buffers.rotate(-1)
            buffer = self._buffers[-1]
            if sys.getrefcount(buffer) <= _REFERENCES_OF_A_FREE_BUFFER:
                return buffer
        buffer = bytearray(BUFFER_BYTES)
        if len(self._buffers) < self._kept:
            self._buffers.append(buffer)
        return buffer


def _references_of_a_free_buffer() -> int:
    buffers = deque([bytearray()])
    buffer = buffers[-1]
    return sys.getrefcount(buffer)


_REFERENCES_OF_A_FREE_BUFFER: Final = _references_of_a_free_buffer()

pool: Final = BufferPool()


class BulkReader(StreamReader):
    """A reader that replaces that of a ``websockets`` protocol, and lets large reads be received into their buffer.

    ``place`` is the memory for the next bytes during a large read; whoever received bytes into it calls ``placed`` and
    then ``receive_data(b"")`` of the protocol. With ``scratch`` all large reads share one buffer, which suits an end
    that copies a message while unmasking it.
    """

    def __init__(self, scratch: bool = False) -> None:
        super().__init__()
        self._scratch = memoryview(bytearray(BUFFER_BYTES)) if scratch else None
        self._target: memoryview | None = None
        self._filled = 0

    @property
    def place(self) -> memoryview | None:
        target = self._target
        return None if target is None or self._filled == len(target) else target[self._filled :]

    def placed(self, count: int) -> None:
        """Count ``count`` bytes as received into ``place``."""
        self._filled += count

    def release(self) -> None:
        """Give the memory up: nothing more is received."""
        self._scratch = self._target = None

    def feed_data(self, data: bytes | bytearray | memoryview) -> None:
        place = self.place
        if place is None:
            super().feed_data(data)  # type: ignore[arg-type]  # it is appended to a bytearray
            return
        count = min(len(place), len(data))
        place[:count] = data[:count]
        self._filled += count
        if count < len(data):
            super().feed_data(memoryview(data)[count:])  # type: ignore[arg-type]

    def read_exact(self, n: int) -> Generator[None, None, bytearray]:
        if n < LARGE_BYTES or len(self.buffer) >= n:
            return (yield from super().read_exact(n))
        return (yield from self._read_in_place(n))

    def _read_in_place(self, n: int) -> Generator[None, None, bytearray]:
        target = self._scratch[:n] if self._scratch is not None and n <= len(self._scratch) else pool.take(n)
        self._filled = len(self.buffer)
        target[: self._filled] = self.buffer
        self.buffer.clear()
        self._target = target
        try:
            while self._filled < n:
                if self.eof:
                    raise EOFError(f"stream ends after {self._filled} bytes, expected {n} bytes")
                yield
        finally:
            self._target = None
        return target  # type: ignore[return-value]  # as good as a bytearray to whoever reads it
