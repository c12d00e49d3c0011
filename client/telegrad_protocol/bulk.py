"""Large payloads without fresh memory: buffers that are used again, and a WebSocket reader that receives into them.

Pages that the kernel has just handed out cost more to touch than all the copying of a payload, on either end of the
wire. Knows nothing of what is in a payload.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Generator
from typing import Final

from websockets.streams import StreamReader

from .messages import CHUNK_BYTES

LARGE_BYTES: Final = 1 << 16
BUFFER_BYTES: Final = CHUNK_BYTES + 64
"""A chunk and the headers before it."""
KEPT_BUFFERS: Final = 16


class BufferPool:
    """Hands out buffers, and hands one out again when nothing refers to it any more."""

    def __init__(self, kept: int = KEPT_BUFFERS) -> None:
        self._kept = kept
        self._buffers: deque[bytearray] = deque()

    def take(self, length: int) -> memoryview:
        """Memory of this length with anything in it."""
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
    """The reader of a ``websockets`` protocol, to be put in place of its own; large reads go straight to their place.

    ``place`` is where the next bytes belong while a large read goes on; who received them there says so to ``placed``
    and wakes the protocol with ``receive_data(b"")``. With ``scratch``, for a side that copies what it read while
    unmasking it, all large reads share one buffer.
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
        """Take note that ``count`` bytes were received into ``place``."""
        self._filled += count

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
