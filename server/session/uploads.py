"""Tensors whose elements come from outside, in chunks and in order: from the stream of instructions or over HTTP.

This module writes the bytes to where the tensor lives. It knows neither sessions nor the messages that bring the bytes.
"""

from __future__ import annotations

from server.engine.programs.indices import note_upload
from server.engine.value import Backend, Value
from telegrad_protocol.dtypes import DType, bool_
from telegrad_protocol.errors import ArgumentError, ProtocolError
from telegrad_protocol.meta import Meta


def new_value(backend: Backend, shape: tuple[int, ...], dtype: DType) -> Value:
    """Return a row-major value of uninitialised memory, which an upload then fills."""
    if min(shape, default=0) < 0:
        raise ArgumentError(f"upload: negative size in {list(shape)}")
    return backend.empty(Meta.of(shape, dtype, backend.device))


class Chunk:
    """A piece of an upload as it waits in a session's inbox; ``owner`` is the id of the tensor, ``offset`` in bytes."""

    __slots__ = ("data", "offset", "owner")

    def __init__(self, owner: int, offset: int, data: memoryview) -> None:
        self.owner = owner
        self.offset = offset
        self.data = data


class TensorUpload:
    """A tensor that is being filled. The session does not show it under its id before all bytes are written."""

    __slots__ = ("_sink", "_size", "_value", "_written", "id")

    def __init__(self, id: int, value: Value) -> None:
        self.id = id
        self._value = value
        self._size = value.meta.nbytes
        self._written = 0
        self._sink = value.backend.open_upload(value)

    @property
    def is_complete(self) -> bool:
        return self._written == self._size

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Store ``data``, which must begin where the last chunk ended; ``offset`` is in bytes."""
        end = offset + len(data)
        if offset != self._written or end > self._size:
            raise ProtocolError(
                f"bytes {offset} to {end} of an upload of {self._size} bytes, of which {self._written} are here"
            )
        self._sink.write(offset, memoryview(data))
        if not offset and end == self._size:
            note_upload(self._value, memoryview(data))
        self._written = end

    def finish(self) -> Value:
        """Return the tensor; raise ``ProtocolError`` where bytes are missing."""
        if not self.is_complete:
            raise ProtocolError(f"upload of {self._size} bytes is {self._size - self._written} short")
        if self._value.dtype is bool_:
            _make_boolean(self._value)
        return self._value


def _make_boolean(value: Value) -> None:
    """Turn every byte of a bool tensor into 0 or 1: any byte may come, and kernels disagree about the others."""
    xp, array = value.backend.xp, value.array
    with value.backend.as_current():
        xp.not_equal(array.view(xp.uint8), 0, out=array)
