"""Expandable segments: one long stretch of addresses per stream and pool, with memory behind the part that is needed.

A segment grows where it ends instead of being joined by another one, so that free pieces of it can merge. The rules are
those of PyTorch's CUDA allocator with ``expandable_segments:True``. Knows nothing of sessions, quotas or events.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

from server.allocator.core import sizes
from server.allocator.core.block import Block, FreeList, Pool, UnmappedBlock, stream_of
from server.allocator.core.expandable_list import ExpandableFreeList, address_of
from server.allocator.core.heap import Heap
from server.allocator.core.ownership import CLEAN, MIXED, merged_owner
from server.allocator.core.splitting import coalesce, split_front


class ExpandableSegments:
    """One growing segment per stream and pool."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._upstream = heap.upstream

    def obtain(self, size: int, free_list: FreeList, *, is_retry: bool = False) -> Block | None:
        """Return a free block of at least ``size`` bytes, in its pool, made by mapping memory; None without room."""
        assert isinstance(free_list, ExpandableFreeList)
        if is_retry:
            self._heap.statistics.num_alloc_retries += 1
        if self._heap.exceeds_limit(sizes.segment_size(size)):
            return None
        block = self._find_room(size, free_list)
        if block is not None and not block.mapped:
            block = self._map(block, min(block.size, size), free_list)
        while block is not None and block.size < size:
            unmapped = block.next
            if unmapped is None:
                return None
            block = self._map(unmapped, min(unmapped.size, size - block.size), free_list)
        return block

    def _find_room(self, size: int, free_list: ExpandableFreeList) -> Block | None:
        """Return the lowest block from which ``size`` bytes can become free; in a new segment if there is none."""
        for unmapped in free_list.unmapped:
            before = unmapped.previous
            start = before if before is not None and before.is_free else unmapped
            if _reaches(start, size):
                return start
        return self._reserve(free_list)

    def _reserve(self, free_list: ExpandableFreeList) -> UnmappedBlock | None:
        """Reserve a new segment: addresses for an eighth more than the device has, for pages that move to the end."""
        page = sizes.SMALL_SEGMENT if free_list.pool.is_small else sizes.LARGE_SEGMENT
        total = self._upstream.free_and_total()[1]
        segment = self._upstream.reserve(sizes.round_up(total + total // 8, page), page, stream_of(free_list.stream))
        if segment is None:
            return None
        segment.stream, segment.pool = stream_of(free_list.stream), free_list.pool
        unmapped = UnmappedBlock(segment, 0, segment.size, free_list.stream, CLEAN)
        segment.first = unmapped
        self._heap.segments[segment.pointer] = segment
        insort(free_list.unmapped, unmapped, key=address_of)
        return unmapped

    def _map(self, unmapped: Block, nbytes: int, free_list: ExpandableFreeList) -> Block | None:
        """Put memory behind the first pages of an unmapped block, and make it available with its free neighbours."""
        segment, pool = unmapped.segment, free_list.pool
        assert isinstance(unmapped, UnmappedBlock)
        nbytes = sizes.round_up(nbytes, segment.page_size)
        if not self._upstream.map(segment, unmapped.offset, nbytes):
            return None
        block = split_front(unmapped, nbytes)
        block.owner = CLEAN if self._upstream.is_zeroed else self._heap.returned_owner
        if not unmapped.size:
            _unlink(unmapped)
            free_list.unmapped.remove(unmapped)
        self._heap.reserved_bytes += nbytes
        self._heap.generation += 1
        self._heap.statistics.map(nbytes, pool.is_small)
        self._heap.count_private(pool, nbytes)
        if self._heap.trace is not None:
            self._heap.trace("segment_map", block.pointer, nbytes, segment.stream, 0)
        for neighbour in (block.previous, block.next):
            if neighbour is not None and neighbour.is_free:
                free_list.remove(neighbour)
                coalesce(block, neighbour)
        free_list.add(block)
        return block

    def release(self, block: Block) -> None:
        """Give the whole pages of a free block back to the upstream."""
        segment = block.segment
        free_list = segment.pool.free_lists[block.stream]
        assert isinstance(free_list, ExpandableFreeList)
        begin = sizes.round_up(block.offset, segment.page_size)
        nbytes = (block.offset + block.size) // segment.page_size * segment.page_size - begin
        if nbytes <= 0:
            return
        free_list.remove(block)
        self._upstream.unmap(segment, begin, nbytes)
        if segment.owners is not None:
            segment.owners.claim(begin, begin + nbytes, MIXED)
        self._count_unmapped(block, nbytes)
        unmapped = _unmap_part(block, begin, nbytes, free_list)
        if self._heap.trace is not None:
            self._heap.trace("segment_unmap", segment.pointer + begin, nbytes, segment.stream, 0)
        _coalesce_unmapped(unmapped, free_list)
        self._release_addresses(free_list)

    def _release_addresses(self, free_list: FreeList) -> None:
        """Give back the addresses of segments without any memory."""
        assert isinstance(free_list, ExpandableFreeList)
        for unmapped in [unmapped for unmapped in free_list.unmapped if unmapped.size == unmapped.segment.size]:
            free_list.unmapped.remove(unmapped)
            del self._heap.segments[unmapped.segment.pointer]
            self._upstream.give_back(unmapped.segment)

    def _count_unmapped(self, block: Block, nbytes: int) -> None:
        self._heap.reserved_bytes -= nbytes
        self._heap.generation += 1
        self._heap.returned_owner = merged_owner(self._heap.returned_owner, block.owner)
        self._heap.statistics.unmap(nbytes, block.segment.pool.is_small)
        self._heap.count_private(block.segment.pool, -nbytes)

    def release_available(self, size: int, free_list: FreeList) -> bool:
        """Do nothing, because oversize blocks are no segments of their own here."""
        return False

    def release_all(self) -> None:
        """Give back every page that is wholly free."""
        for pool in self._heap.releasable():
            self.release_pool(pool)

    def release_pool(self, pool: Pool) -> None:
        """Give back every page of a pool that is wholly free, and the addresses of segments without memory."""
        for block in list(pool.blocks()):
            self.release(block)
        for free_list in pool.free_lists.values():
            self._release_addresses(free_list)

    def release_where(self, is_meant: Callable[[Block], bool]) -> None:
        """Give back the wholly free pages of the blocks that are meant."""
        for pool in self._heap.releasable():
            for block in list(pool.blocks()):
                if is_meant(block):
                    self.release(block)

    def collect_garbage(self) -> None:
        """Do nothing, because only segments that are wholly free are garbage."""


def _reaches(start: Block | None, size: int) -> bool:
    """Whether the free and unmapped blocks from ``start`` on make up ``size`` bytes."""
    total = 0
    while total < size and start is not None and (start.is_free or not start.mapped):
        total += start.size
        start = start.next
    return total >= size


def _unmap_part(block: Block, begin: int, nbytes: int, free_list: ExpandableFreeList) -> UnmappedBlock:
    """Replace a part of a block that was taken out of its list by an unmapped block; the rest of it becomes free."""
    before = split_front(block, begin - block.offset) if begin > block.offset else None
    piece = split_front(block, nbytes) if block.size > nbytes else block
    unmapped = _substitute(piece)
    insort(free_list.unmapped, unmapped, key=address_of)
    if before is not None:
        free_list.add(before)
    elif unmapped.previous is not None and unmapped.previous.mapped:
        # The block in use in front can grow from now on, so it lies in no bin once it is free.
        unmapped.previous.bin = None
    if piece is not block:
        free_list.add(block)
    return unmapped


def _substitute(block: Block) -> UnmappedBlock:
    """Put an unmapped block in the place of a block."""
    unmapped = UnmappedBlock(block.segment, block.offset, block.size, block.stream, block.owner)
    unmapped.previous, unmapped.next, unmapped.split = block.previous, block.next, block.split
    if unmapped.previous is None:
        block.segment.first = unmapped
    else:
        unmapped.previous.next = unmapped
    if unmapped.next is not None:
        unmapped.next.previous = unmapped
    return unmapped


def _coalesce_unmapped(unmapped: UnmappedBlock, free_list: ExpandableFreeList) -> None:
    """Merge an unmapped block with the unmapped ones beside it."""
    for neighbour in (unmapped.previous, unmapped.next):
        if isinstance(neighbour, UnmappedBlock):
            free_list.unmapped.remove(neighbour)
            coalesce(unmapped, neighbour)


def _unlink(unmapped: Block) -> None:
    """Take an empty unmapped block, which has a neighbour in front of it, out of its segment."""
    before, after = unmapped.previous, unmapped.next
    if before is not None:
        before.next = after
    if after is not None:
        after.previous = before
