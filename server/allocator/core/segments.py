"""Segments of fixed size: when they are obtained from the upstream, and when they are given back.

The rules are those of PyTorch's CUDA allocator, in the same order. Knows nothing of sessions, quotas or events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from server.allocator.core import sizes
from server.allocator.core.block import Block, FreeList, Pool, Segment, stream_of
from server.allocator.core.config import UNBOUNDED
from server.allocator.core.heap import Heap
from server.allocator.core.ownership import CLEAN, merged_owner


class SegmentSource(Protocol):
    """Where the segments of a heap come from, and how they go back."""

    def obtain(self, size: int, free_list: FreeList, *, is_retry: bool = False) -> Block | None:
        """Return a free block of at least ``size`` bytes, in its pool, of memory that is new; None if there is none."""

    def release_available(self, size: int, free_list: FreeList) -> bool:
        """Give back oversize blocks of this stream, just enough for ``size``; False if there are not enough."""

    def release_all(self) -> None:
        """Give back all memory that is wholly free."""

    def release_pool(self, pool: Pool) -> None:
        """Give back all memory of a pool that is wholly free."""

    def release_where(self, is_meant: Callable[[Block], bool]) -> None:
        """Give back the memory that is wholly free and whose block is meant."""

    def collect_garbage(self) -> None:
        """Give back what was unused for longest, until the garbage collection threshold is kept."""


class FixedSegments:
    """A segment for every request that no free block serves."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._upstream = heap.upstream
        self._max_split_size = heap.config.max_split_size

    def obtain(self, size: int, free_list: FreeList, *, is_retry: bool = False) -> Block | None:
        """Return a new segment that holds ``size`` bytes, as one free block in its pool; None if there is no room."""
        nbytes = sizes.segment_size(size)
        if is_retry:
            self._heap.statistics.num_alloc_retries += 1
        if self._heap.exceeds_limit(nbytes):
            return None
        segment = self._upstream.obtain(nbytes, stream_of(free_list.stream))
        return self._adopt(segment, free_list) if segment is not None else None

    def _adopt(self, segment: Segment, free_list: FreeList) -> Block:
        stream, pool = segment.stream, segment.pool = stream_of(free_list.stream), free_list.pool
        owner = CLEAN if self._upstream.is_zeroed else self._heap.returned_owner
        block = segment.first = Block(segment, 0, segment.size, free_list.stream, owner)
        self._heap.segments[segment.pointer] = segment
        self._heap.reserved_bytes += segment.size
        self._heap.generation += 1
        self._heap.statistics.add_segment(segment.size, pool.is_small, segment.size >= self._max_split_size)
        self._heap.count_private(pool, segment.size)
        if self._heap.trace is not None:
            self._heap.trace("segment_alloc", segment.pointer, segment.size, stream, 0)
        segment.freed_at_search = pool.searches
        free_list.add(block)
        return block

    def release(self, block: Block) -> None:
        """Give the segment of a free block that tiles it alone back to the upstream."""
        segment = block.segment
        pool = segment.pool
        pool.free_lists[block.stream].remove(block)
        del self._heap.segments[segment.pointer]
        self._heap.reserved_bytes -= segment.size
        self._heap.generation += 1
        self._heap.returned_owner = merged_owner(self._heap.returned_owner, block.owner)
        self._heap.statistics.remove_segment(segment.size, pool.is_small, segment.size >= self._max_split_size)
        self._heap.count_private(pool, -segment.size)
        if self._heap.trace is not None:
            self._heap.trace("segment_free", segment.pointer, segment.size, segment.stream, 0)
        self._upstream.give_back(segment)

    def release_available(self, size: int, free_list: FreeList) -> bool:
        """Give back oversize blocks of this stream, just enough for ``size``; False if there are not enough."""
        limit = self._max_split_size
        if limit == UNBOUNDED or free_list.pool not in self._heap.releasable():
            return False
        wanted = max(size, limit)
        enough = free_list.best_fit(wanted)
        if enough is not None:
            self.release(enough)
            return True
        released = 0
        for block in reversed([block for block in free_list.blocks() if block.size >= limit]):
            if released >= wanted:
                break
            released += block.size
            self.release(block)
        return released >= wanted

    def release_all(self) -> None:
        """Give back every segment that is wholly free."""
        for pool in self._heap.releasable():
            self.release_pool(pool)

    def release_pool(self, pool: Pool) -> None:
        """Give back every segment of a pool that is wholly free."""
        for block in list(pool.blocks()):
            if not block.split:
                self.release(block)

    def release_where(self, is_meant: Callable[[Block], bool]) -> None:
        """Give back the wholly free segments whose block is meant."""
        for pool in self._heap.releasable():
            for block in list(pool.blocks()):
                if not block.split and is_meant(block):
                    self.release(block)

    def collect_garbage(self) -> None:
        """Give back the large free segments that were unused for longest, until the threshold is kept."""
        heap = self._heap
        if heap.limit_bytes is None:
            return
        wanted = heap.reserved_bytes - int(heap.config.garbage_collection_threshold * heap.limit_bytes)
        free = [block for block in heap.large.blocks() if not block.split]
        reclaimed, searches = 0, heap.large.searches
        while free and reclaimed < wanted:
            average = sum(searches - block.segment.freed_at_search for block in free) / len(free)
            old = [block for block in free if searches - block.segment.freed_at_search >= average]
            if not old:
                break
            reclaimed += sum(block.size for block in old)
            for block in old:
                self.release(block)
            free = [block for block in free if block not in old]
