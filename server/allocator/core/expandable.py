"""Expandable segments: one long stretch of addresses per stream and pool, with memory behind the part that is needed.

A segment grows where it ends instead of being joined by another one, so that free pieces of it can merge. The rules are
those of PyTorch's CUDA allocator with ``expandable_segments:True``. Knows what `policy` knows.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from functools import partial

from server.allocator.core import sizes
from server.allocator.core.block import CLEAN, MIXED, Block, Gap, absorb, blend, carve
from server.allocator.core.config import AllocatorConfig
from server.allocator.core.policy import CachingPolicy
from server.allocator.core.pool import Pool, Shelf
from server.allocator.reports.statistics import Statistics
from server.allocator.upstream.base import Upstream


def _size_and_address(block: Block) -> tuple[int, int]:
    return block.size, block.pointer


def _address(block: Block) -> int:
    return block.pointer


def is_edge(block: Block) -> bool:
    """Whether memory can be put right behind the block."""
    return block.next is not None and not block.next.mapped


def _room(edge: Block) -> int:
    """How large an edge can grow."""
    return edge.size + (edge.next.size if edge.next is not None else 0)


class ExpandableShelf(Shelf):
    """A shelf that keeps edges apart: what can grow is for larger requests, if anything else fits."""

    __slots__ = ("_notify", "edges", "gaps", "is_ambiguous")

    expands = True

    def __init__(self, pool: Pool, stream: int, notify: Callable[[], None]) -> None:
        super().__init__(pool, stream)
        self.edges: list[Block] = []
        self.gaps: list[Gap] = []
        # Edges of one size may outrank each other, so that a bin of this size does not tell what fits best.
        self.is_ambiguous = False
        self._notify = notify

    def add(self, block: Block) -> None:
        """Make a block available."""
        if not is_edge(block):
            super().add(block)
            return
        block.idle = True
        block.bin = None
        insort(self.edges, block, key=_size_and_address)
        self._compare_edges()

    def remove(self, block: Block) -> None:
        """Take a block out; it is no longer available."""
        if block.bin is not None:
            super().remove(block)
            return
        block.idle = False
        self.edges.remove(block)
        self._compare_edges()

    def _compare_edges(self) -> None:
        is_ambiguous = len({edge.size for edge in self.edges}) < len(self.edges)
        if is_ambiguous != self.is_ambiguous:
            self.is_ambiguous = is_ambiguous
            self._notify()

    def best_fit(self, size: int) -> Block | None:
        """The smallest block of at least ``size`` bytes; of edges, while the next is one that can grow less, that."""
        self.settle()
        inner = self.best_in_bins(size)
        chosen: Block | None = None
        for edge in self.edges:
            if edge.size < size:
                continue
            if inner is not None and _size_and_address(inner) < _size_and_address(edge):
                break
            if chosen is not None and _room(edge) >= _room(chosen):
                return chosen
            chosen = edge
        if inner is None or (chosen is not None and inner.size >= _room(chosen)):
            return chosen
        return inner

    def cut_from(self, size: int) -> Block | None:
        """What ``best_fit`` would find, the tail left as it is; None where that takes a longer look."""
        tail, edge = self.tail, self.edges[0] if self.edges else None
        tail_grows = tail is not None and is_edge(tail)
        if len(self.edges) + tail_grows > 1:
            return None
        inner = self.best_in_bins(size)
        if self.span >= size and not tail_grows and (inner is None or inner.size > self.span):
            inner = tail
        grown = tail if tail_grows else edge
        if inner is None or grown is None:
            return inner or grown
        return inner if self._size(inner) < self._size(grown) + _room(grown) - grown.size else None

    def _size(self, block: Block) -> int:
        return self.span if block is self.tail else block.size

    def blocks(self) -> Iterator[Block]:
        """All free blocks by size, then address."""
        yield from sorted([*super().blocks(), *self.edges], key=_size_and_address)


class ExpandingPolicy(CachingPolicy):
    """`CachingPolicy` on expandable segments."""

    def __init__(self, upstream: Upstream, config: AllocatorConfig, statistics: Statistics) -> None:
        # Told when a shelf becomes ambiguous, or is no longer.
        self.notify: Callable[[], None] = lambda: None
        super().__init__(upstream, config, statistics)

    def new_pool(self, is_small: bool, identity: tuple[int, int] = (0, 0)) -> Pool:
        """A pool whose free blocks never count as inactive split ones: whole pages of them can be given back."""
        pool = Pool(is_small, identity, partial(ExpandableShelf, notify=lambda: self.notify()))
        pool.one_count = pool.one_byte = 0
        return pool

    @property
    def is_ambiguous(self) -> bool:
        """Whether edges of one size lie on one shelf."""
        return any(shelf.is_ambiguous for shelf in self._shelves())

    def _shelves(self) -> Iterator[ExpandableShelf]:
        for pool in self.pools():
            yield from pool.shelves.values()  # type: ignore[misc]  # they are all of this kind

    def _should_split(self, size: int, remaining: int, pool: Pool) -> bool:
        return remaining >= sizes.MIN_BLOCK

    def obtain(self, size: int, shelf: Shelf, *, is_retry: bool = False) -> Block | None:
        """A free block of at least ``size`` bytes in its pool, made by putting memory behind addresses."""
        assert isinstance(shelf, ExpandableShelf)
        if is_retry:
            self.statistics.num_alloc_retries += 1
        if self.allowed is not None and self.total + sizes.segment_size(size) > self.allowed:
            return None
        block = self._stretch(size, shelf)
        if block is not None and not block.mapped:
            block = self._map(block, min(block.size, size), shelf)
        while block is not None and block.size < size:
            gap = block.next
            if gap is None:
                return None
            block = self._map(gap, min(gap.size, size - block.size), shelf)
        return block

    def _stretch(self, size: int, shelf: ExpandableShelf) -> Block | None:
        """The lowest gap before which, or in which, ``size`` bytes can become free; in a new segment if need be."""
        for gap in shelf.gaps:
            before = gap.previous
            start = before if before is not None and before.idle else gap
            if _reaches(start, size):
                return start
        return self._reserve(shelf)

    def _reserve(self, shelf: ExpandableShelf) -> Gap | None:
        """A new segment: addresses for an eighth more than the device has, for pages that move to the end."""
        page = sizes.SMALL_SEGMENT if shelf.pool.is_small else sizes.LARGE_SEGMENT
        total = self.upstream.free_and_total()[1]
        segment = self.upstream.reserve(sizes.round_up(total + total // 8, page), page, shelf.stream)
        if segment is None:
            return None
        segment.stream, segment.pool = shelf.stream, shelf.pool
        gap = Gap(segment, 0, segment.size, shelf.stream, CLEAN)
        segment.first = gap
        self.segments[segment.pointer] = segment
        insort(shelf.gaps, gap, key=_address)
        return gap

    def _map(self, gap: Block, nbytes: int, shelf: ExpandableShelf) -> Block | None:
        """Put memory behind the first pages of a gap, merge it with its free neighbours; the free block in its pool."""
        segment, pool = gap.segment, shelf.pool
        assert isinstance(gap, Gap)
        nbytes = sizes.round_up(nbytes, segment.page)
        if not self.upstream.map(segment, gap.offset, nbytes):
            return None
        block = carve(gap, nbytes)
        block.owner = CLEAN if self.upstream.scrubbed else self.returned_owner
        if not gap.size:
            _unlink(gap)
            shelf.gaps.remove(gap)
        self.total += nbytes
        self.changes += 1
        self.statistics.map(nbytes, pool.is_small)
        self.count_private(pool, nbytes)
        if self.trace is not None:
            self.trace("segment_map", block.pointer, nbytes, block.stream, 0)
        for neighbour in (block.previous, block.next):
            if neighbour is not None and neighbour.idle:
                shelf.remove(neighbour)
                absorb(block, neighbour)
        shelf.add(block)
        return block

    def release(self, block: Block) -> None:
        """Give the whole pages of a free block back to the upstream."""
        segment = block.segment
        shelf = segment.pool.shelves[block.stream]
        assert isinstance(shelf, ExpandableShelf)
        begin = sizes.round_up(block.offset, segment.page)
        nbytes = (block.offset + block.size) // segment.page * segment.page - begin
        if nbytes <= 0:
            return
        shelf.remove(block)
        self.upstream.unmap(segment, begin, nbytes)
        if segment.residue is not None:
            segment.residue.claim(begin, begin + nbytes, MIXED)
        self._forget(block, nbytes)
        gap = _open_gap(block, begin, nbytes, shelf)
        if self.trace is not None:
            self.trace("segment_unmap", segment.pointer + begin, nbytes, block.stream, 0)
        _merge_gaps(gap, shelf)
        self._release_addresses(shelf)

    def _release_addresses(self, shelf: Shelf) -> None:
        """Give back the segments without any memory."""
        assert isinstance(shelf, ExpandableShelf)
        for gap in [gap for gap in shelf.gaps if gap.size == gap.segment.size]:
            shelf.gaps.remove(gap)
            del self.segments[gap.segment.pointer]
            self.upstream.give_back(gap.segment)

    def _forget(self, block: Block, nbytes: int) -> None:
        self.total -= nbytes
        self.changes += 1
        self.returned_owner = blend(self.returned_owner, block.owner)
        self.statistics.unmap(nbytes, block.segment.pool.is_small)
        self.count_private(block.segment.pool, -nbytes)

    def release_available(self, size: int, shelf: Shelf) -> bool:
        """Nothing: oversize blocks are no segments of their own here."""
        return False

    def release_pool(self, pool: Pool) -> None:
        """Give back every page of a pool that is wholly free."""
        super().release_pool(pool)
        for shelf in pool.shelves.values():
            self._release_addresses(shelf)

    def is_releasable(self, block: Block) -> bool:
        """Whether a free block is something that the upstream can take back; `release` finds its whole pages."""
        return True

    def collect_garbage(self) -> None:
        """Nothing: only segments that are wholly free are garbage."""


def _reaches(start: Block | None, size: int) -> bool:
    """Whether free blocks and gaps from ``start`` on make up ``size`` bytes."""
    found = 0
    while found < size and start is not None and (start.idle or not start.mapped):
        found += start.size
        start = start.next
    return found >= size


def _open_gap(block: Block, begin: int, nbytes: int, shelf: ExpandableShelf) -> Gap:
    """Replace a piece of a block that was taken out by a gap; what is left on its sides is free."""
    before = carve(block, begin - block.offset) if begin > block.offset else None
    piece = carve(block, nbytes) if block.size > nbytes else block
    gap = _substitute(piece)
    insort(shelf.gaps, gap, key=_address)
    if before is not None:
        shelf.add(before)
    elif gap.previous is not None and gap.previous.mapped:
        # In use now, an edge once it is free: not for a bin.
        gap.previous.bin = None
    if piece is not block:
        shelf.add(block)
    return gap


def _substitute(block: Block) -> Gap:
    """Put a gap in the place of a block."""
    gap = Gap(block.segment, block.offset, block.size, block.stream, block.owner)
    gap.previous, gap.next, gap.split = block.previous, block.next, block.split
    if gap.previous is None:
        block.segment.first = gap
    else:
        gap.previous.next = gap
    if gap.next is not None:
        gap.next.previous = gap
    return gap


def _merge_gaps(gap: Gap, shelf: ExpandableShelf) -> None:
    for neighbour in (gap.previous, gap.next):
        if isinstance(neighbour, Gap):
            shelf.gaps.remove(neighbour)
            absorb(gap, neighbour)


def _unlink(gap: Block) -> None:
    """Take an empty gap, which has a neighbour before it, out of its segment."""
    before, after = gap.previous, gap.next
    if before is not None:
        before.next = after
    if after is not None:
        after.previous = before
