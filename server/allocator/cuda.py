"""Segments of a GPU's memory, and pinned memory of its host, from CUDA's runtime through CuPy.

Knows one device; nothing of blocks or sessions. Streams are raw ``cudaStream_t`` values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cupy.cuda import runtime

from server.allocator.block import Segment

if TYPE_CHECKING:
    from server.allocator.virtual import VirtualMemory

_OUT_OF_MEMORY = 2
_NOT_READY = 600
_DISABLE_TIMING = 2


class CudaUpstream:
    """``cudaMalloc`` and ``cudaFree`` on one device, and events to know when a stream has passed."""

    # The driver clears memory between processes; what this process gave back, it may get again as it was.
    scrubbed = False

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self._idle_events: list[int] = []
        self._virtual_memory: VirtualMemory | None = None

    def obtain(self, nbytes: int, stream: int) -> Segment | None:
        with self._device():
            try:
                return Segment(int(runtime.malloc(nbytes)), nbytes)
            except runtime.CUDARuntimeError as error:
                if error.status != _OUT_OF_MEMORY:
                    raise
                return None

    def give_back(self, segment: Segment) -> None:
        with self._device():
            if segment.page:
                self._virtual().release(segment.pointer, segment.size)
            else:
                runtime.free(segment.pointer)

    def reserve(self, nbytes: int, page: int, stream: int) -> Segment | None:
        with self._device():
            pointer = self._virtual().reserve(nbytes)
        return None if pointer is None else Segment(pointer, nbytes, page=page)

    def map(self, segment: Segment, offset: int, nbytes: int) -> bool:
        with self._device():
            return self._virtual().map(segment.pointer + offset, nbytes, segment.page)

    def unmap(self, segment: Segment, offset: int, nbytes: int) -> None:
        with self._device():
            # Unlike cudaFree, unmapping waits for nobody.
            runtime.streamSynchronize(segment.stream)
            self._virtual().unmap(segment.pointer + offset, nbytes, segment.page)

    def _virtual(self) -> VirtualMemory:
        if self._virtual_memory is None:
            from server.allocator.virtual import VirtualMemory

            self._virtual_memory = VirtualMemory(self.index)
        return self._virtual_memory

    def obtain_pinned(self, nbytes: int) -> int | None:
        try:
            return int(runtime.hostAlloc(nbytes, 0))
        except runtime.CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY:
                raise
            return None

    def give_back_pinned(self, pointer: int) -> None:
        runtime.freeHost(pointer)

    def zero(self, segment: Segment, offset: int, nbytes: int, stream: int) -> None:
        with self._device():
            runtime.memsetAsync(segment.pointer + offset, 0, nbytes, stream)

    def free_and_total(self) -> tuple[int, int]:
        with self._device():
            free, total = runtime.memGetInfo()
        return int(free), int(total)

    def record_event(self, stream: int) -> int:
        with self._device():
            event = self._idle_events.pop() if self._idle_events else runtime.eventCreateWithFlags(_DISABLE_TIMING)
            runtime.eventRecord(event, stream)
        return int(event)

    def is_done(self, event: int) -> bool:
        status = runtime.eventQuery(event)
        if status == _NOT_READY:
            return False
        if status:
            raise runtime.CUDARuntimeError(status)
        self._idle_events.append(event)
        return True

    def wait_for(self, event: int) -> None:
        runtime.eventSynchronize(event)
        self._idle_events.append(event)

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
