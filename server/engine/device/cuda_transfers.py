"""Copies between the host and a GPU through pinned memory, in the order of a stream."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from server.allocator.cache.pinned import PinnedBuffer, PinnedCache
from server.engine.value import Value

_TO_DEVICE = cp.cuda.runtime.memcpyHostToDevice
_TO_HOST = cp.cuda.runtime.memcpyDeviceToHost


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
