"""Bytes of tensors on their way in and out of a session, in chunks, and other answers that wait for a device.

Used by the instruction stream and by control requests alike; knows no sockets and no sessions.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from server.engine import functional as F
from server.engine.device.interface import Download, Mark
from server.engine.value import Backend, Value
from telegrad_protocol import messages, wire
from telegrad_protocol.dtypes import DType, bool_
from telegrad_protocol.errors import ArgumentError, ProtocolError, UnknownIdError
from telegrad_protocol.layout import contiguous_strides
from telegrad_protocol.meta import Meta

Frame: TypeAlias = tuple[int, list[bytes | memoryview]]

_NAP_SECONDS = 50e-6
UNCOUNTED_BYTES = 64 << 20
"""Tensors that expand their storage may be read up to this size without the copy being counted as the session's."""


def new_value(backend: Backend, shape: tuple[int, ...], dtype: DType) -> Value:
    """A row-major value of uninitialised memory for elements to come."""
    if min(shape, default=0) < 0:
        raise ArgumentError(f"upload: negative size in {list(shape)}")
    return backend.empty(Meta.of(shape, dtype, backend.device))


class Chunk:
    """A piece of an upload, as it waits in the inbox."""

    __slots__ = ("data", "offset", "owner")

    def __init__(self, owner: int, offset: int, data: memoryview) -> None:
        self.owner = owner
        self.offset = offset
        self.data = data


class Incoming:
    """An upload: chunks in order, written straight to where the tensor lives; nobody sees it before it is complete."""

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
        """Store ``data``, which must begin where the last chunk ended."""
        end = offset + len(data)
        if offset != self._written or end > self._size:
            raise ProtocolError(
                f"bytes {offset} to {end} of an upload of {self._size} bytes, of which {self._written} are here"
            )
        self._sink.write(offset, memoryview(data))
        self._written = end

    def finish(self) -> Value:
        """The tensor; ``ProtocolError`` where bytes are missing."""
        if not self.is_complete:
            raise ProtocolError(f"upload of {self._size} bytes is {self._size - self._written} short")
        if self._value.dtype is bool_:
            _make_boolean(self._value)
        return self._value


def _make_boolean(value: Value) -> None:
    """Any byte may come; a bool that is neither 0 nor 1 makes kernels count differently from how they copy."""
    xp, array = value.backend.xp, value.array
    xp.not_equal(array.view(xp.uint8), 0, out=array)


def open_copy(value: Value) -> Download:
    """Begin to copy a value's elements to the host, row-major."""
    meta = value.meta
    if meta.nbytes > max(value.storage.nbytes, UNCOUNTED_BYTES):
        value = F._in_layout(value.alias(), contiguous_strides(meta.shape))
    return value.backend.open_download(value)


class Outgoing:
    """A read: a host copy that the device may still be filling, then a message and its chunks."""

    __slots__ = ("_copy", "_meta", "is_live", "request")

    def __init__(self, request: int, value: Value) -> None:
        self.request = request
        self._meta = value.meta
        window = value.backend.open_window(value) if value.meta.nbytes > messages.INLINE_BYTES else None
        self.is_live = window is not None
        """Whether the frames show the tensor's own memory, which nothing may write to until they have left."""
        self._copy = window or open_copy(value)

    @property
    def nbytes(self) -> int:
        return self._meta.nbytes

    def is_ready(self) -> bool:
        """Whether the elements have arrived in host memory."""
        return self._copy.is_ready()

    def wait(self) -> None:
        """Until they have."""
        self._copy.bytes()

    def frames(self) -> tuple[messages.Reply, list[Frame]]:
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


class Barrier:
    """An answer, such as that to ``synchronize``, that is due when devices have run what they were given before."""

    __slots__ = ("_answer", "_marks", "request")

    nbytes = 0
    is_live = False

    def __init__(self, request: int, marks: list[Mark], answer: Callable[[], Any]) -> None:
        self.request = request
        self._marks = marks
        self._answer = answer

    def is_ready(self) -> bool:
        """Whether all devices have come this far."""
        return all(mark.is_ready() for mark in self._marks)

    def wait(self) -> None:
        """Until all devices have come this far."""
        while not self.is_ready():
            time.sleep(_NAP_SECONDS)

    def frames(self) -> tuple[messages.Reply, list[Frame]]:
        """The answer; waits for nothing."""
        return messages.Answer(self.request, self._answer()), []


Pending: TypeAlias = Outgoing | Barrier


class Reading:
    """The elements of a tensor as they were, read piece by piece."""

    __slots__ = ("_copy", "nbytes")

    def __init__(self, value: Value) -> None:
        self.nbytes = value.meta.nbytes
        self._copy = open_copy(value)

    def piece(self, offset: int, size: int) -> memoryview | None:
        """``size`` bytes at ``offset``; None while the device has not delivered them."""
        if not (0 <= offset <= offset + size <= self.nbytes and size <= messages.CHUNK_BYTES):
            raise ArgumentError(f"read: {size} bytes at {offset} of a tensor of {self.nbytes} bytes")
        return self._copy.bytes()[offset : offset + size] if self._copy.is_ready() else None


class Transfers:
    """Uploads and reads by handle, beside the instruction stream."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._uploads: dict[int, Incoming] = {}
        self._readings: dict[int, Reading] = {}

    def begin_upload(self, incoming: Incoming) -> int:
        """Keep an upload under a new handle."""
        number = next(self._numbers)
        self._uploads[number] = incoming
        return number

    def upload(self, number: int) -> Incoming:
        """The upload of a handle."""
        found = self._uploads.get(number)
        if found is None:
            raise UnknownIdError(f"the session has no upload number {number}")
        return found

    def end_upload(self, number: int) -> Incoming | None:
        """Let go of an upload, if it is there."""
        return self._uploads.pop(number, None)

    def begin_reading(self, reading: Reading) -> int:
        """Keep a read under a new handle."""
        number = next(self._numbers)
        self._readings[number] = reading
        return number

    def reading(self, number: int) -> Reading:
        """The read of a handle."""
        found = self._readings.get(number)
        if found is None:
            raise UnknownIdError(f"the session has no read number {number}")
        return found

    def end_reading(self, number: int) -> None:
        """Let go of a read, if it is there."""
        self._readings.pop(number, None)

    def close(self) -> None:
        """Drop everything that is on its way."""
        self._uploads.clear()
        self._readings.clear()
