"""A tensor's bytes as they arrive in chunks."""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.messages import Data


class ChunkedData:
    """The bytes of one ``Data`` message; chunks come in order, and one may come again."""

    __slots__ = ("_arrived", "buffer", "message")

    def __init__(self, message: Data) -> None:
        self.message = message
        self.buffer: Any = np.empty(message.nbytes, np.uint8)
        self._arrived = 0

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are here."""
        return self._arrived == self.message.nbytes

    def write(self, offset: int, data: memoryview) -> None:
        """Put a chunk in its place."""
        end = offset + len(data)
        if offset > self._arrived or end > self.message.nbytes:
            raise ProtocolError(f"bytes {offset} to {end} of {self.message.nbytes}, of which {self._arrived} are here")
        self.buffer[offset:end] = np.frombuffer(data, np.uint8)
        self._arrived = max(self._arrived, end)
