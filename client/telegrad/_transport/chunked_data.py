"""The bytes of a large answer, put together from the chunks in which they arrive. Knows no transport."""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.messages import Data

from .host_buffers import buffers


class ChunkedData:
    """The bytes of one ``Data`` message. Chunks arrive in order; one that an interrupt cut short arrives again."""

    __slots__ = ("_arrived", "buffer", "message")

    def __init__(self, message: Data) -> None:
        self.message = message
        self.buffer: Any = buffers.take(message.nbytes)
        self._arrived = 0

    @property
    def is_complete(self) -> bool:
        """Tell whether all bytes have arrived."""
        return self._arrived == self.message.nbytes

    def write(self, offset: int, data: memoryview) -> None:
        """Store a chunk that begins at byte ``offset`` of the message."""
        end = offset + len(data)
        if offset > self._arrived or end > self.message.nbytes:
            raise ProtocolError(f"bytes {offset} to {end} of {self.message.nbytes}, of which {self._arrived} are here")
        self.buffer[offset:end] = np.frombuffer(data, np.uint8)
        self._arrived = max(self._arrived, end)
