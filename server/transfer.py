"""Bytes of tensors on their way in and out of a session, in chunks."""

from __future__ import annotations

from telegrad_protocol import messages, wire
from telegrad_protocol.errors import ProtocolError

from .engine.value import Value


class Incoming:
    """An upload: chunks in order, written straight to where the tensor lives."""

    __slots__ = ("_sink", "_size", "_written", "id")

    def __init__(self, id: int, value: Value) -> None:
        self.id = id
        self._size = value.meta.nbytes
        self._written = 0
        self._sink = value.backend.open_upload(value)

    @property
    def is_complete(self) -> bool:
        return self._written == self._size

    def write(self, offset: int, data: memoryview) -> None:
        """Store ``data``, which must begin where the last chunk ended."""
        end = offset + len(data)
        if offset != self._written or end > self._size:
            raise ProtocolError(f"bytes {offset} to {end} of an upload of {self._size} bytes, of which {self._written} are here")
        self._sink.write(offset, data)
        self._written = end

    def require_complete(self) -> None:
        """Refuse inline data that is shorter than the tensor."""
        if not self.is_complete:
            raise ProtocolError(f"upload of {self._size} bytes is {self._size - self._written} short")


class Outgoing:
    """A read: a host copy that the device may still be filling, then a message and its chunks."""

    __slots__ = ("_copy", "_meta", "request")

    def __init__(self, request: int, value: Value) -> None:
        self.request = request
        self._meta = value.meta
        self._copy = value.backend.open_download(value)

    def is_ready(self) -> bool:
        """Whether the elements have arrived in host memory."""
        return self._copy.is_ready()

    def frames(self) -> tuple[messages.Data, list[tuple[int, list[bytes | memoryview]]]]:
        """The announcing message, with the data inline where it is small, and chunks otherwise."""
        data = self._copy.bytes()
        meta = self._meta
        inline = bytes(data) if len(data) <= messages.INLINE_BYTES else None
        message = messages.Data(self.request, meta.dtype.code, meta.shape, len(data), inline)
        if inline is not None:
            return message, []
        size = messages.CHUNK_BYTES
        starts = range(0, len(data), size)
        return message, [(wire.CHUNK, [wire.CHUNK_HEADER.pack(self.request, s), data[s : s + size]]) for s in starts]
