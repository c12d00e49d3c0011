"""Segments of a GPU's memory, and pinned memory of its host, from CUDA's runtime through CuPy.

Knows one device; nothing of blocks or sessions. Streams are raw ``cudaStream_t`` values.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from cuda.bindings import driver
from cupy.cuda import runtime

from server.allocator.core.block import Segment

if TYPE_CHECKING:
    from server.allocator.upstream.virtual import VirtualMemory

_OUT_OF_MEMORY = 2
_NOT_READY = 600
_DISABLE_TIMING = 2
_RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


class CudaUpstream:
    """``cudaMalloc`` and ``cudaFree`` on one device, and events to know when a stream has passed."""

    # The driver clears memory between processes, but may return to this process what it gave back, as it was.
    is_zeroed = False

    def __init__(
        self, index: int = 0, *, registers_pinned: bool = False, flush: Callable[[], None] = lambda: None
    ) -> None:
        self.index = index
        # Called before memory is taken from streams, to launch the kernels that still wait to be launched on them.
        self._flush = flush
        # Whether pinned memory is the operating system's, locked afterwards: ``pinned_use_cuda_host_register``.
        self._registers_pinned = registers_pinned
        self._registered: dict[int, mmap.mmap] = {}
        self._unused_events: list[int] = []
        self._virtual_memory: VirtualMemory | None = None

    def obtain(self, nbytes: int, stream: int) -> Segment | None:
        with self._device(), uncaptured():
            try:
                return Segment(int(runtime.malloc(nbytes)), nbytes)
            except runtime.CUDARuntimeError as error:
                if error.status != _OUT_OF_MEMORY:
                    raise
                return None

    def give_back(self, segment: Segment) -> None:
        self._flush()
        with self._device(), uncaptured():
            if segment.page_size:
                self._virtual().release(segment.pointer, segment.size)
            else:
                runtime.free(segment.pointer)

    def reserve(self, nbytes: int, page: int, stream: int) -> Segment | None:
        with self._device(), uncaptured():
            pointer = self._virtual().reserve(nbytes)
        return None if pointer is None else Segment(pointer, nbytes, page=page)

    def map(self, segment: Segment, offset: int, nbytes: int) -> bool:
        with self._device(), uncaptured():
            return self._virtual().map(segment.pointer + offset, nbytes, segment.page_size)

    def unmap(self, segment: Segment, offset: int, nbytes: int) -> None:
        self._flush()
        with self._device(), uncaptured():
            # Unlike cudaFree, unmapping waits for nobody; and other streams than the segment's may have used it.
            runtime.deviceSynchronize()
            self._virtual().unmap(segment.pointer + offset, nbytes, segment.page_size)

    def _virtual(self) -> VirtualMemory:
        if self._virtual_memory is None:
            from server.allocator.upstream.virtual import VirtualMemory

            self._virtual_memory = VirtualMemory(self.index)
        return self._virtual_memory

    def obtain_pinned(self, nbytes: int) -> int | None:
        with self._device(), uncaptured():
            try:
                return self._register(nbytes) if self._registers_pinned else int(runtime.hostAlloc(nbytes, 0))
            except runtime.CUDARuntimeError as error:
                if error.status != _OUT_OF_MEMORY:
                    raise
                return None

    def _register(self, nbytes: int) -> int | None:
        try:
            arena = mmap.mmap(-1, nbytes)
        except (OSError, ValueError, OverflowError):
            return None
        pointer = int(np.frombuffer(arena, np.uint8).ctypes.data)
        runtime.hostRegister(pointer, nbytes, 0)
        self._registered[pointer] = arena
        return pointer

    def give_back_pinned(self, pointer: int) -> None:
        with self._device(), uncaptured():
            if pointer in self._registered:
                runtime.hostUnregister(pointer)
                del self._registered[pointer]
            else:
                runtime.freeHost(pointer)

    def zero(self, segment: Segment, offset: int, nbytes: int, stream: int) -> None:
        self._flush()
        with self._device():
            if runtime.streamIsCapturing(stream):
                self._zero_now(segment.pointer + offset, nbytes)
            else:
                runtime.memsetAsync(segment.pointer + offset, 0, nbytes, stream)

    def _zero_now(self, pointer: int, nbytes: int) -> None:
        """Clear memory that nobody uses at once, because a graph that is being captured may never run."""
        with uncaptured():
            stream = runtime.streamCreateWithFlags(runtime.streamNonBlocking)
            try:
                runtime.memsetAsync(pointer, 0, nbytes, stream)
                runtime.streamSynchronize(stream)
            finally:
                runtime.streamDestroy(stream)

    def free_and_total(self) -> tuple[int, int]:
        with self._device():
            free, total = runtime.memGetInfo()
        return int(free), int(total)

    def fault(self) -> str:
        """Return what the driver answers to every call once a kernel has destroyed the context."""
        try:
            self.free_and_total()
        except runtime.CUDARuntimeError as error:
            return str(error)
        return ""

    def record_event(self, stream: int) -> int:
        self._flush()
        with self._device():
            event = self._unused_events.pop() if self._unused_events else runtime.eventCreateWithFlags(_DISABLE_TIMING)
            runtime.eventRecord(event, stream)
        return int(event)

    def is_done(self, event: int) -> bool:
        status = runtime.eventQuery(event)
        if status == _NOT_READY:
            return False
        if status:
            raise runtime.CUDARuntimeError(status)
        self._unused_events.append(event)
        return True

    def wait_for(self, event: int) -> None:
        runtime.eventSynchronize(event)
        self._unused_events.append(event)

    @contextmanager
    def _device(self) -> Iterator[None]:
        current: Any = runtime.getDevice()
        if current != self.index:
            runtime.setDevice(self.index)
        try:
            yield
        finally:
            if current != self.index:
                runtime.setDevice(current)


@contextmanager
def uncaptured() -> Iterator[None]:
    """Allow this thread's calls that are no part of a graph while a stream of it is being captured."""
    status, before = driver.cuThreadExchangeStreamCaptureMode(_RELAXED)
    try:
        yield
    finally:
        # It fails where nothing was asked of the driver yet, and so nothing is being captured.
        if status == driver.CUresult.CUDA_SUCCESS:
            driver.cuThreadExchangeStreamCaptureMode(before)
