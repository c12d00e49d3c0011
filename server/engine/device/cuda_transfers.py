"""Copies between the host and a GPU through pinned memory, in the order of a stream."""

from __future__ import annotations

from typing import Any, Final

import cupy as cp
import numpy as np

from server.allocator.cache.pinned import PinnedBuffer, PinnedCache
from server.engine.value import Value

_TO_DEVICE = cp.cuda.runtime.memcpyHostToDevice
_TO_HOST = cp.cuda.runtime.memcpyDeviceToHost
SMALL_BYTES: Final = 4096
"""Copies of so few bytes to the host go through memory that is kept for them."""


class PinnedMemory:
    """A pinned host buffer as CuPy holds it, until the copy through it is done."""

    __slots__ = ("buffer", "ptr", "size")

    def __init__(self, buffer: PinnedBuffer) -> None:
        self.buffer = buffer
        self.ptr = buffer.pointer
        self.size = buffer.nbytes


class CudaUpload:
    """Writes into device memory through pinned memory, so that the source may be reused when a write returns."""

    __slots__ = ("_pinned", "_pointer", "_stream", "_value")

    def __init__(self, value: Value, stream: int, pinned: PinnedCache) -> None:
        self._value = value  # keeps the storage alive
        self._pointer = value.storage.block.pointer
        self._stream = stream
        self._pinned = pinned

    def write(self, offset: int, data: memoryview) -> None:
        if not len(data):
            return
        buffer = self._pinned.allocate(len(data))
        buffer.array()[:] = np.frombuffer(data, np.uint8)
        cp.cuda.runtime.memcpyAsync(self._pointer + offset, buffer.pointer, len(data), _TO_DEVICE, self._stream)
        buffer.record_stream(self._stream)


class KeptCopy:
    """Pinned memory of a few bytes and an event, which one copy to the host after the other goes through."""

    __slots__ = ("buffer", "event", "view")

    def __init__(self, pinned: PinnedCache) -> None:
        self.buffer = pinned.allocate(SMALL_BYTES)
        self.view = self.buffer.array().data
        self.event = cp.cuda.Event(disable_timing=True)


class SmallDownload:
    """A copy of a contiguous value of at most ``SMALL_BYTES``, through what earlier copies have left in ``kept``.

    What it goes through is left there again once its bytes were taken. Dropped before that, it leaves nothing: the copy
    may be under way, and the memory is held back until the stream has passed.
    """

    __slots__ = ("_bytes", "_kept", "_nbytes", "_through", "_value")

    def __init__(self, value: Value, stream: int, pinned: PinnedCache, kept: list[KeptCopy]) -> None:
        meta = value.meta
        itemsize = meta.dtype.itemsize
        self._value: Value | None = value  # its memory is not given away before the copy is made
        self._nbytes = nbytes = meta.numel * itemsize
        self._kept = kept
        self._bytes: bytes | None = None
        self._through = through = kept.pop() if kept else KeptCopy(pinned)
        through.buffer.record_stream(stream)
        pointer = value.storage.block.pointer + meta.offset * itemsize
        cp.cuda.runtime.memcpyAsync(through.buffer.pointer, pointer, nbytes, _TO_HOST, stream)
        cp.cuda.runtime.eventRecord(through.event.ptr, stream)

    def is_ready(self) -> bool:
        return self._bytes is not None or bool(self._through.event.done)

    def bytes(self) -> memoryview:
        if self._bytes is None:
            through = self._through
            through.event.synchronize()
            self._bytes = through.view[: self._nbytes].tobytes()
            through.buffer.has_passed()
            self._value = None
            del self._through
            self._kept.append(through)
        return memoryview(self._bytes)


class CudaDownload:
    """A copy into pinned memory, and the event that is recorded after it.

    Events that have passed are kept in ``events`` for later copies, which then need not make one.
    """

    __slots__ = ("_buffer", "_event", "_events", "_source")

    def __init__(self, array: Any, stream: Any, pinned: PinnedCache, events: list[Any]) -> None:
        self._source = array if array.flags.c_contiguous else cp.ascontiguousarray(array)
        self._buffer = pinned.allocate(array.nbytes)
        if array.nbytes:
            cp.cuda.runtime.memcpyAsync(self._buffer.pointer, self._source.data.ptr, array.nbytes, _TO_HOST, stream.ptr)
            # This object may be dropped while the copy is under way.
            self._buffer.record_stream(stream.ptr)
        self._events = events
        self._event = events.pop() if events else cp.cuda.Event(disable_timing=True)
        self._event.record(stream)

    def is_ready(self) -> bool:
        return self._event is None or bool(self._event.done)

    def bytes(self) -> memoryview:
        if self._event is not None:
            self._event.synchronize()
            self._events.append(self._event)
            self._event = self._source = None
            self._buffer.has_passed()
        return self._buffer.array().data
