"""The bytes of large answers, put together from the chunks in which they arrive. Knows no transport."""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad_protocol import wire
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.messages import Data

from .host_buffers import buffers


class ChunkedData:
    """The bytes of one ``Data`` message, which may be awaited before that has come.

    Chunks arrive in order; one that an interrupt cut short arrives again. A transport may write the bytes of a chunk
    where they belong before the chunk has its turn, which counts once it has.
    """

    __slots__ = ("_arrived", "_placed", "buffer", "message", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.message: Data | None = None
        self.nbytes = nbytes
        self.buffer: Any = buffers.take(nbytes)
        self._arrived = self._placed = 0

    @property
    def is_complete(self) -> bool:
        """Tell whether all bytes have arrived."""
        return self._arrived == self.nbytes

    def place(self, begin: int, end: int) -> Any:
        """Return the memory of some bytes, for whoever writes them there before ``take_placed``.

        None where there are no such bytes, bytes before them are missing, or all have arrived: then the memory may be
        the program's.
        """
        if begin > max(self._arrived, self._placed) or end > self.nbytes or self.is_complete:
            return None
        self._placed = max(self._placed, end)
        return self.buffer[begin:end]

    def take_placed(self, begin: int, end: int) -> None:
        """Count bytes as arrived that were written to their place."""
        self._check(begin, end, self._placed)
        self._arrived = max(self._arrived, end)

    def write(self, offset: int, data: memoryview) -> None:
        """Store a chunk that begins at byte ``offset`` of the message."""
        end = offset + len(data)
        self._check(offset, end, self.nbytes)
        self.buffer[offset:end] = np.frombuffer(data, np.uint8)
        self._arrived = max(self._arrived, end)

    def _check(self, begin: int, end: int, most: int) -> None:
        if self.message is None:
            raise ProtocolError(f"bytes {begin} to {end} of an answer that was not announced")
        if begin > self._arrived or end > most:
            raise ProtocolError(f"bytes {begin} to {end} of {self.nbytes}, of which {self._arrived} are here")


class Downloads(dict[int, ChunkedData]):
    """The large answers that are awaited, by the number of the request. Who asked takes them out."""

    def expect(self, request: int, nbytes: int) -> None:
        """Have the memory for an answer of so many bytes ready when its first chunk comes."""
        self[request] = ChunkedData(nbytes)

    def announce(self, message: Data) -> None:
        """Note what an answer is whose chunks follow."""
        download = self.get(message.request)
        if download is None:
            download = self[message.request] = ChunkedData(message.nbytes)
        if download.nbytes != message.nbytes:
            raise ProtocolError(f"{message.nbytes} bytes are announced of a tensor that has {download.nbytes}")
        download.message = message

    def place_of(self, request: int, begin: int, end: int) -> Any:
        """Return what ``ChunkedData.place`` returns; None where nobody waits for the answer."""
        download = self.get(request)
        return None if download is None else download.place(begin, end)

    def take(self, kind: int, body: memoryview) -> tuple[int, ChunkedData | None]:
        """Take a ``CHUNK`` or a ``PLACED``: return the request, and its answer unless its thread was interrupted."""
        if kind == wire.CHUNK:
            request, offset, data = wire.split_chunk(body)
            download = self.get(request)
            if download is not None:
                download.write(offset, data)
        else:
            request, begin, end = wire.PLACED_CHUNK.unpack(body)
            download = self.get(request)
            if download is not None:
                download.take_placed(begin, end)
        return request, download
