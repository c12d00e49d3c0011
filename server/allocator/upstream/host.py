"""Segments of the host's memory, so that the CPU backend runs on the very same policy.

Knows the operating system; nothing of blocks or sessions.
"""

from __future__ import annotations

import mmap

import numpy as np

from server.allocator.core.block import Segment

from .machine import physical_memory

most_bytes: int | None = None
"""Bytes that arenas may have, where less than the machine has; a worker sets it."""


class HostUpstream:
    """Arenas of the operating system's memory; untouched pages cost nothing and are zero."""

    is_zeroed = True

    def __init__(self, limit: int | None = None) -> None:
        self.limit = min(physical_memory(), most_bytes or physical_memory()) if limit is None else limit
        self.obtained = 0

    def obtain(self, nbytes: int, stream: int) -> Segment | None:
        if self.obtained + nbytes > self.limit:
            return None
        try:
            arena = mmap.mmap(-1, nbytes)
        except (OSError, ValueError, OverflowError):
            return None
        if nbytes >= _HUGE_PAGE:
            arena.madvise(mmap.MADV_HUGEPAGE)  # one page fault instead of 512
        self.obtained += nbytes
        buffer = np.frombuffer(arena, dtype=np.uint8)
        return Segment(buffer.ctypes.data, nbytes, buffer)

    def give_back(self, segment: Segment) -> None:
        # The mapping goes with its last array: one that the engine still holds stays valid.
        segment.buffer = segment.handle = None
        if not segment.page_size:
            self.obtained -= segment.size

    def reserve(self, nbytes: int, page: int, stream: int) -> Segment | None:
        try:
            arena = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        except (OSError, ValueError, OverflowError):
            return None
        buffer = np.frombuffer(arena, dtype=np.uint8)
        return Segment(buffer.ctypes.data, nbytes, buffer, arena, page)

    def map(self, segment: Segment, offset: int, nbytes: int) -> bool:
        if self.obtained + nbytes > self.limit:
            return False
        self.obtained += nbytes
        return True

    def unmap(self, segment: Segment, offset: int, nbytes: int) -> None:
        # The pages are gone at once, and zero when they are touched again.
        segment.handle.madvise(mmap.MADV_DONTNEED, offset, nbytes)
        self.obtained -= nbytes

    def zero(self, segment: Segment, offset: int, nbytes: int, stream: int) -> None:
        segment.buffer[offset : offset + nbytes] = 0

    def free_and_total(self) -> tuple[int, int]:
        return self.limit - self.obtained, self.limit

    def record_event(self, stream: int) -> None:
        """A host has no streams: what was called is done."""

    def is_done(self, event: None) -> bool:
        return True

    def wait_for(self, event: None) -> None:
        return None

    def fault(self) -> str:
        return ""


_HUGE_PAGE = 2 << 20
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # of Linux; Python has its name from 3.13 on
