"""How kernels report an index out of range without stopping anybody: a record per stream, and its CUDA text.

The first launch that meets such an index writes its tag and the index into the record and into pinned host memory,
where ``Checks.poll`` reads it after an event; kernels that change what the client sees look at the record first. See
``docs/decisions``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from server.engine import context
from server.engine.checks import DeferredCheck, Finding
from server.engine.device.cupy_module import cp
from server.engine.value import Storage

if TYPE_CHECKING:
    from server.engine.device.cuda_backend import CudaBackend

FAULTS = r"""
struct fault_mirror { u64 tag; i64 index, place; };
struct fault_record { u64 tag; fault_mirror* mirror; };

// Writes an index out of range down, unless something went wrong before; tag 0 is a launch that nobody asks about.
__device__ __noinline__ void report(fault_record* record, u64 tag, i64 index, int place) {
    if (!tag || atomicCAS(&record->tag, 0ull, tag)) return;
    fault_mirror* mirror = record->mirror;
    mirror->index = index;
    mirror->place = place;
    __threadfence_system();
    mirror->tag = tag;
}

// Whether a launch must leave everything as it is: an earlier one on its stream, or its own check, has failed.
__device__ __forceinline__ bool is_void(const fault_record* record) { return *(volatile const u64*)&record->tag != 0; }
"""
_MIRROR_WORDS = 3
_RECORD_BYTES = 16


class FaultRecord:
    """The record of one stream: 16 bytes on the device, their mirror and their clean image in pinned memory."""

    __slots__ = ("_backend", "_event", "_pinned", "_storage", "_stream", "_words", "pointer")

    def __init__(self, backend: CudaBackend, stream: int) -> None:
        with backend.exclusive_allocator() as allocator:
            block = allocator.allocate(_RECORD_BYTES, stream)
        self._backend = backend
        self._storage = Storage(backend, block, _RECORD_BYTES)
        self.pointer = block.pointer
        self._pinned = backend.pinned.allocate(8 * _MIRROR_WORDS + _RECORD_BYTES)
        self._words = self._pinned.array().view(np.int64)
        self._words[:] = (0,) * _MIRROR_WORDS + (0, self._pinned.pointer)
        self._event = cp.cuda.Event(disable_timing=True)
        self._stream = stream
        self._clean()

    def _clean(self) -> None:
        self._backend.flush()
        source = self._pinned.pointer + 8 * _MIRROR_WORDS
        to_device = cp.cuda.runtime.memcpyHostToDevice
        cp.cuda.runtime.memcpyAsync(self.pointer, source, _RECORD_BYTES, to_device, self._stream)
        self._pinned.record_stream(self._stream)

    def mark(self) -> None:
        """Everything that was launched so far is what ``reached`` asks about; what is captured runs later."""
        if self._backend.is_capturing:
            return
        cp.cuda.runtime.eventRecord(self._event.ptr, self._stream)

    def reached(self, wait: bool) -> bool:
        """Whether the device has run all that was marked; waits for it if asked to."""
        if wait:
            self._event.synchronize()
        return bool(self._event.done)

    def finding(self) -> Finding | None:
        """What was written since the last time, forgotten with this call."""
        tag, index, place = self._words[:_MIRROR_WORDS].tolist()
        if not tag:
            return None
        self._words[0] = 0
        self._clean()
        return Finding(tag, index, place)


def record_of(backend: Any) -> FaultRecord:
    """The record of the current session's stream."""
    records = context.current.checks.records
    record = records.get(backend.stream)
    if record is None:
        record = records[backend.stream] = FaultRecord(backend, backend.stream)
    return record  # type: ignore[return-value]


def expect(check: DeferredCheck, undo: Callable[[], None] | None = None) -> int:
    """The tag of a launch that makes ``check``."""
    ctx = context.current
    return ctx.checks.expect(check, ctx.generators.values(), undo)
