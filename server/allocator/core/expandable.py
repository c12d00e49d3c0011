"""Expandable segments: one long stretch of addresses per stream and pool, with memory behind the part that is needed.

A segment grows where it ends instead of being joined by another one, so that free pieces of it can merge. The rules are
those of PyTorch's CUDA allocator with ``expandable_segments:True``. Knows what `policy` knows.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from functools import partial

from server.allocator.core import sizes
from server.allocator.core.block import Block, FreeList, Pool, UnmappedBlock
from server.allocator.core.ownership import CLEAN, MIXED, merged_owner
from server.allocator.core.policy import CachingPolicy
from server.allocator.core.splitting import coalesce, split_front


def _size_and_address(block: Block) -> tuple[int, int]:
    return block.size, block.pointer


def _address(block: Block) -> int:
    return block.pointer


def is_growable(block: Block) -> bool:
    """Whether memory can be put right behind the block."""
    return block.next is not None and not block.next.mapped


def _growable_size(growable: Block) -> int:
    """How large an growable can grow."""
    return growable.size + (growable.next.size if growable.next is not None else 0)


class ExpandableFreeList(FreeList):
    """A free_list that keeps growable blocks apart: what can grow is for larger requests, if anything else fits."""

    __slots__ = ("_notify", "growable", "is_ambiguous", "unmapped")

    expands = True

    def __init__(self, pool: Pool, stream: int, notify: Callable[[], None]) -> None:
        super().__init__(pool, stream)
        self.growable: list[Block] = []
        self.unmapped: list[UnmappedBlock] = []
        # Edges of one size may outrank each other, so that a bin of this size does not tell what fits best.
        self.is_ambiguous = False
        self._notify = notify

    def add(self, block: Block) -> None:
        """Make a block available."""
        if not is_growable(block):
            super().add(block)
            return
        block.is_free = True
        block.bin = None
        insort(self.growable, block, key=_size_and_address)
        self._compare_edges()

    def remove(self, block: Block) -> None:
        """Take a block out; it is no longer available."""
        if block.bin is not None:
            super().remove(block)
            return
        block.is_free = False
        self.growable.remove(block)
        self._compare_edges()

    def _compare_edges(self) -> None:
        is_ambiguous = len({growable.size for growable in self.growable}) < len(self.growable)
        if is_ambiguous != self.is_ambiguous:
            self.is_ambiguous = is_ambiguous
            self._notify()

    def best_fit(self, size: int) -> Block | None:
        """The smallest block of at least ``size`` bytes; of successive growable blocks, the one that can grow least."""
        self.coalesce_deferred()
        inner = self.best_in_bins(size)
        chosen: Block | None = None
        for growable in self.growable:
            if growable.size < size:
                continue
            if inner is not None and _size_and_address(inner) < _size_and_address(growable):
                break
            if chosen is not None and _growable_size(growable) >= _growable_size(chosen):
                return chosen
            chosen = growable
        if inner is None or (chosen is not None and inner.size >= _growable_size(chosen)):
            return chosen
        return inner

    def cut_from(self, size: int) -> Block | None:
        """What ``best_fit`` would find, the remainder left as it is; None where that takes a longer look."""
        remainder, growable = self.remainder, self.growable[0] if self.growable else None
        remainder_grows = remainder is not None and is_growable(remainder)
        if len(self.growable) + remainder_grows > 1:
            return None
        inner = self.best_in_bins(size)
        if self.remainder_size >= size and not remainder_grows and (inner is None or inner.size > self.remainder_size):
            inner = remainder
        grown = remainder if remainder_grows else growable
        if inner is None or grown is None:
            return inner or grown
        return inner if self._size(inner) < self._size(grown) + _growable_size(grown) - grown.size else None

    def _size(self, block: Block) -> int:
        return self.remainder_size if block is self.remainder else block.size

    def blocks(self) -> Iterator[Block]:
        """All free blocks by size, then address."""
        yield from sorted([*super().blocks(), *self.growable], key=_size_and_address)


class ExpandingPolicy(CachingPolicy):
    """`CachingPolicy` on expandable segments."""

    def new_pool(self, is_small: bool, identity: tuple[int, int] = (0, 0)) -> Pool:
        """A pool whose free blocks never count as inactive split ones: whole pages of them can be given back."""
        pool = Pool(is_small, identity, partial(ExpandableFreeList, notify=lambda: self.notify()))
        pool.inactive_count_charge = pool.inactive_byte_charge = 0
        return pool

    @property
    def is_ambiguous(self) -> bool:
        """Whether growable blocks of one size lie on one free_list."""
        return any(free_list.is_ambiguous for free_list in self._free_lists())

    def _free_lists(self) -> Iterator[ExpandableFreeList]:
        for pool in self.pools():
            yield from pool.free_lists.values()  # type: ignore[misc]  # they are all of this kind

    def _should_split(self, size: int, remaining: int, pool: Pool) -> bool:
        return remaining >= sizes.MIN_BLOCK

    def obtain(self, size: int, free_list: FreeList, *, is_retry: bool = False) -> Block | None:
        """A free block of at least ``size`` bytes in its pool, made by putting memory behind addresses."""
        assert isinstance(free_list, ExpandableFreeList)
        if is_retry:
            self.statistics.num_alloc_retries += 1
        if self.limit_bytes is not None and self.reserved_bytes + sizes.segment_size(size) > self.limit_bytes:
            return None
        block = self._stretch(size, free_list)
        if block is not None and not block.mapped:
            block = self._map(block, min(block.size, size), free_list)
        while block is not None and block.size < size:
            unmapped = block.next
            if unmapped is None:
                return None
            block = self._map(unmapped, min(unmapped.size, size - block.size), free_list)
        return block

    def _stretch(self, size: int, free_list: ExpandableFreeList) -> Block | None:
        """The lowest unmapped block at which ``size`` bytes can become free; one of a new segment if need be."""
        for unmapped in free_list.unmapped:
            before = unmapped.previous
            start = before if before is not None and before.is_free else unmapped
            if _reaches(start, size):
                return start
        return self._reserve(free_list)

    def _reserve(self, free_list: ExpandableFreeList) -> UnmappedBlock | None:
        """A new segment: addresses for an eighth more than the device has, for pages that move to the end."""
        page = sizes.SMALL_SEGMENT if free_list.pool.is_small else sizes.LARGE_SEGMENT
        total = self.upstream.free_and_total()[1]
        segment = self.upstream.reserve(sizes.round_up(total + total // 8, page), page, free_list.stream)
        if segment is None:
            return None
        segment.stream, segment.pool = free_list.stream, free_list.pool
        unmapped = UnmappedBlock(segment, 0, segment.size, free_list.stream, CLEAN)
        segment.first = unmapped
        self.segments[segment.pointer] = segment
        insort(free_list.unmapped, unmapped, key=_address)
        return unmapped

    def _map(self, unmapped: Block, nbytes: int, free_list: ExpandableFreeList) -> Block | None:
        """Put memory behind the first pages of an unmapped block, and make it available with its free neighbours."""
        segment, pool = unmapped.segment, free_list.pool
        assert isinstance(unmapped, UnmappedBlock)
        nbytes = sizes.round_up(nbytes, segment.page_size)
        if not self.upstream.map(segment, unmapped.offset, nbytes):
            return None
        block = split_front(unmapped, nbytes)
        block.owner = CLEAN if self.upstream.is_zeroed else self.returned_owner
        if not unmapped.size:
            _unlink(unmapped)
            free_list.unmapped.remove(unmapped)
        self.reserved_bytes += nbytes
        self.generation += 1
        self.statistics.map(nbytes, pool.is_small)
        self.count_private(pool, nbytes)
        if self.trace is not None:
            self.trace("segment_map", block.pointer, nbytes, block.stream, 0)
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
        self.upstream.unmap(segment, begin, nbytes)
        if segment.owners is not None:
            segment.owners.claim(begin, begin + nbytes, MIXED)
        self._forget(block, nbytes)
        unmapped = _unmap_part(block, begin, nbytes, free_list)
        if self.trace is not None:
            self.trace("segment_unmap", segment.pointer + begin, nbytes, block.stream, 0)
        _coalesce_unmapped(unmapped, free_list)
        self._release_addresses(free_list)

    def _release_addresses(self, free_list: FreeList) -> None:
        """Give back the segments without any memory."""
        assert isinstance(free_list, ExpandableFreeList)
        for unmapped in [unmapped for unmapped in free_list.unmapped if unmapped.size == unmapped.segment.size]:
            free_list.unmapped.remove(unmapped)
            del self.segments[unmapped.segment.pointer]
            self.upstream.give_back(unmapped.segment)

    def _forget(self, block: Block, nbytes: int) -> None:
        self.reserved_bytes -= nbytes
        self.generation += 1
        self.returned_owner = merged_owner(self.returned_owner, block.owner)
        self.statistics.unmap(nbytes, block.segment.pool.is_small)
        self.count_private(block.segment.pool, -nbytes)

    def release_available(self, size: int, free_list: FreeList) -> bool:
        """Nothing: oversize blocks are no segments of their own here."""
        return False

    def release_pool(self, pool: Pool) -> None:
        """Give back every page of a pool that is wholly free."""
        super().release_pool(pool)
        for free_list in pool.free_lists.values():
            self._release_addresses(free_list)

    def is_releasable(self, block: Block) -> bool:
        """Whether a free block is something that the upstream can take back; `release` finds its whole pages."""
        return True

    def collect_garbage(self) -> None:
        """Nothing: only segments that are wholly free are garbage."""


def _reaches(start: Block | None, size: int) -> bool:
    """Whether free blocks and gaps from ``start`` on make up ``size`` bytes."""
    found = 0
    while found < size and start is not None and (start.is_free or not start.mapped):
        found += start.size
        start = start.next
    return found >= size


def _unmap_part(block: Block, begin: int, nbytes: int, free_list: ExpandableFreeList) -> UnmappedBlock:
    """Replace a piece of a block that was taken out by a unmapped; what is left on its sides is free."""
    before = split_front(block, begin - block.offset) if begin > block.offset else None
    piece = split_front(block, nbytes) if block.size > nbytes else block
    unmapped = _substitute(piece)
    insort(free_list.unmapped, unmapped, key=_address)
    if before is not None:
        free_list.add(before)
    elif unmapped.previous is not None and unmapped.previous.mapped:
        # In use now, an growable once it is free: not for a bin.
        unmapped.previous.bin = None
    if piece is not block:
        free_list.add(block)
    return unmapped


def _substitute(block: Block) -> UnmappedBlock:
    """Put a unmapped in the place of a block."""
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
    for neighbour in (unmapped.previous, unmapped.next):
        if isinstance(neighbour, UnmappedBlock):
            free_list.unmapped.remove(neighbour)
            coalesce(unmapped, neighbour)


def _unlink(unmapped: Block) -> None:
    """Take an empty unmapped, which has a neighbour before it, out of its segment."""
    before, after = unmapped.previous, unmapped.next
    if before is not None:
        before.next = after
    if after is not None:
        after.previous = before
