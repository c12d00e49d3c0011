"""A device that exists only as addresses, for tests and studies.

Knows no blocks. Its events have passed when the test says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from server.allocator.core.block import Segment


class SimulatedUpstream:
    """A device of ``size`` bytes whose segments lie one behind the other."""

    def __init__(self, size: int, *, first_address: int = 1 << 40, is_zeroed: bool = False) -> None:
        self.size = size
        self.is_zeroed = is_zeroed
        self.live: dict[int, int] = {}
        self.reserved: dict[int, int] = {}
        self.zeroed: list[tuple[int, int, int]] = []
        self.unfinished: set[int] = set()
        self.pinned: dict[int, np.ndarray[Any, Any]] = {}
        self.pinned_size = 1 << 30
        self.broken = ""
        self._used = 0
        self._next_address = first_address
        self._events = 0

    def obtain(self, nbytes: int, stream: int) -> Segment | None:
        if self._used + nbytes > self.size:
            return None
        pointer = self._next_address
        self._next_address += nbytes
        self._used += nbytes
        self.live[pointer] = nbytes
        return Segment(pointer, nbytes)

    def give_back(self, segment: Segment) -> None:
        if segment.page_size and self.reserved.pop(segment.pointer, None) == segment.size:
            return
        if self.live.pop(segment.pointer, None) != segment.size:
            raise RuntimeError(f"simulated device: {segment.pointer:#x} was not obtained from it")
        self._used -= segment.size

    def reserve(self, nbytes: int, page: int, stream: int) -> Segment:
        pointer = self._next_address
        self._next_address += nbytes
        self.reserved[pointer] = nbytes
        return Segment(pointer, nbytes, page=page)

    def map(self, segment: Segment, offset: int, nbytes: int) -> bool:
        if self._used + nbytes > self.size:
            return False
        for page in self._pages(segment, offset, nbytes):
            if page in self.live:
                raise RuntimeError(f"simulated device: {page:#x} has memory already")
            self.live[page] = segment.page_size
        self._used += nbytes
        return True

    def unmap(self, segment: Segment, offset: int, nbytes: int) -> None:
        for page in self._pages(segment, offset, nbytes):
            del self.live[page]
        self._used -= nbytes

    def _pages(self, segment: Segment, offset: int, nbytes: int) -> range:
        if offset % segment.page_size or nbytes % segment.page_size:
            raise RuntimeError(
                f"simulated device: {nbytes} bytes at {offset} are not whole pages of {segment.page_size}"
            )
        return range(segment.pointer + offset, segment.pointer + offset + nbytes, segment.page_size)

    def zero(self, segment: Segment, offset: int, nbytes: int, stream: int) -> None:
        self.zeroed.append((segment.pointer + offset, nbytes, stream))

    def free_and_total(self) -> tuple[int, int]:
        return self.size - self._used, self.size

    def obtain_pinned(self, nbytes: int) -> int | None:
        if nbytes > self.pinned_size - sum(map(len, self.pinned.values())):
            return None
        memory = np.zeros(nbytes, np.uint8)
        self.pinned[memory.ctypes.data] = memory
        return int(memory.ctypes.data)

    def give_back_pinned(self, pointer: int) -> None:
        del self.pinned[pointer]

    def record_event(self, stream: int) -> int:
        self._events += 1
        self.unfinished.add(self._events)
        return self._events

    def is_done(self, event: int) -> bool:
        return event not in self.unfinished

    def wait_for(self, event: int) -> None:
        self.unfinished.discard(event)

    def fault(self) -> str:
        return self.broken

    def finish_events(self) -> None:
        """Let all events have passed."""
        self.unfinished.clear()
