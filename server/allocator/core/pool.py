"""Free blocks, found by best fit: the smallest that is large enough, of those the one at the lowest address.

Blocks of one size on one stream share a bin, so that a repeated size is found without a search. One free block of a
shelf, its tail, may lie outside the bins: the one that was cut last. What is freed right in front of it is merged with
it in the books only and stays whole, because the next request often has its size and would be cut from that very place.
Whoever wants to see bins or blocks calls ``settle`` first. Knows nothing of sessions or devices.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Any

from server.allocator.core.block import Block
from server.allocator.sessions.ledger import inactive

# After how many more frees of a size it is tried again.
DISAPPOINTMENT = -16


def _descending(block: Block) -> int:
    return -block.pointer


class Bin:
    """The free blocks of one size on one stream, highest address first."""

    __slots__ = ("blocks", "faith", "listed", "shelf", "size")

    def __init__(self, shelf: Shelf, size: int) -> None:
        self.shelf = shelf
        self.size = size
        self.blocks: list[Block] = []
        # Whether the shelf's index names this size. An emptied bin stays named until a search passes it.
        self.listed = False
        # Below 0: a block of this size that was merged in the books only was not wanted back as it was.
        self.faith = 0

    def add(self, block: Block) -> None:
        """Put a block in its place."""
        if not self.listed:
            if self.size == self.shelf.span:
                self.shelf.settle()
            if not self.listed:
                self.listed = True
                insort(self.shelf.sizes, self.size)
        blocks = self.blocks
        if blocks and blocks[-1].pointer < block.pointer:
            insort(blocks, block, key=_descending)
        else:
            blocks.append(block)

    def unlist(self) -> None:
        """Strike an empty bin off the index."""
        self.listed = False
        del self.shelf.sizes[bisect_left(self.shelf.sizes, self.size)]

    def remove(self, block: Block) -> None:
        """Take out this very block."""
        del self.blocks[bisect_left(self.blocks, -block.pointer, key=_descending)]


class Shelf:
    """The free blocks of one pool on one stream, by size; and the tail.

    The tail's ``span`` bytes begin at ``front``, the block that was merged with it last, or the tail itself. All of
    them are idle, one's ``next`` is the other, and they hold the same owner's data. No bin of that size is listed: so
    who finds a block of the size it wants in a bin need not look at the tail.
    """

    __slots__ = ("bins", "front", "pool", "sizes", "span", "stream", "tail")

    # Whether memory can be put behind some of its blocks.
    expands = False

    def __init__(self, pool: Pool, stream: int) -> None:
        self.pool = pool
        self.stream = stream
        self.bins: dict[int, Bin] = {}
        self.sizes: list[int] = []
        self.tail: Block | None = None
        self.front: Block | None = None
        self.span = 0

    def bin(self, size: int) -> Bin:
        """The bin of this size; there is never more than one."""
        found = self.bins.get(size)
        if found is None:
            found = self.bins[size] = Bin(self, size)
        return found

    def best_fit(self, size: int) -> Block | None:
        """The smallest block of at least ``size`` bytes, left where it is."""
        self.settle()
        return self.best_in_bins(size)

    def best_in_bins(self, size: int) -> Block | None:
        """The smallest block of at least ``size`` bytes but for the tail."""
        sizes = self.sizes
        at = bisect_left(sizes, size)
        while at < len(sizes):
            bin = self.bins[sizes[at]]
            if bin.blocks:
                return bin.blocks[-1]
            bin.listed = False
            del sizes[at]
        return None

    def add(self, block: Block) -> None:
        """Make a block available."""
        block.idle = True
        bin = block.bin = self.bins.get(block.size) or self.bin(block.size)
        if bin.listed and not bin.blocks:
            bin.blocks.append(block)
        else:
            bin.add(block)

    def remove(self, block: Block) -> None:
        """Take a block out; it is no longer available."""
        bin: Any = block.bin
        if bin.blocks[-1] is block:
            bin.blocks.pop()
        else:
            bin.remove(block)
        block.idle = False

    def open_tail(self, block: Block) -> None:
        """Make a block that was just taken out and cut the tail."""
        self.settle()
        block.idle = True
        self.tail = self.front = block
        self.resize_tail(block.size)

    def resize_tail(self, span: int) -> None:
        """Let the tail be of ``span`` bytes; settle it if a bin holds blocks of that size."""
        self.span = span
        bin = self.bins.get(span)
        if bin is None or not bin.listed:
            return
        if bin.blocks:
            self.settle()
        else:
            bin.unlist()

    def merge_tail(self) -> None:
        """Make one block of what is one in the books."""
        front, tail = self.front, self.tail
        if front is tail or front is None or tail is None:
            return
        before = front.previous
        tail.offset, tail.pointer, tail.size = front.offset, front.pointer, self.span
        while front is not tail and front is not None:
            if front.bin is not None:
                front.bin.faith = DISAPPOINTMENT
            # They must not keep each other alive.
            front.previous, front.next, front = None, None, front.next
        tail.previous = before
        if before is None:
            tail.segment.first = tail
        else:
            before.next = tail
        self.front = tail

    def settle(self) -> None:
        """Put the tail into its bin."""
        tail = self.tail
        if tail is None:
            return
        self.merge_tail()
        self.tail = self.front = None
        self.span = 0
        self.add(tail)

    def is_beside_tail(self, block: Block) -> bool:
        """Whether the tail is a neighbour of this block."""
        return self.tail is not None and (block.next is self.front or block.previous is self.tail)

    def prune(self, used: set[int]) -> None:
        """Drop the empty bins, but for those used: their ``id``."""
        self.bins = {size: bin for size, bin in self.bins.items() if bin.blocks or id(bin) in used}
        self.sizes = [size for size in self.sizes if size in self.bins]

    def blocks(self) -> Iterator[Block]:
        """All free blocks by size, then address."""
        self.settle()
        for size in list(self.sizes):
            yield from reversed(list(self.bins[size].blocks))


class Pool:
    """The free blocks of one kind: small or large."""

    __slots__ = (
        "identity", "is_small", "left_bytes", "left_count", "new_shelf", "one_byte", "one_count", "searches", "shelves",
    )  # fmt: skip

    def __init__(
        self, is_small: bool, identity: tuple[int, int] = (0, 0), new_shelf: Callable[[Pool, int], Shelf] = Shelf
    ) -> None:
        self.is_small = is_small
        # That of the private pool it belongs to; (0, 0) is the common one.
        self.identity = identity
        self.new_shelf = new_shelf
        self.shelves: dict[int, Shelf] = {}
        # How often a block was looked for; the age of a free segment is counted in it.
        self.searches = 0
        # The charges of one inactive split block and of one byte in one, and how many of each ceased to be.
        self.one_count = inactive(1, 0, is_small)
        self.one_byte = inactive(0, 1, is_small)
        self.left_count = 0
        self.left_bytes = 0

    def shelf(self, stream: int) -> Shelf:
        """The free blocks of one stream."""
        found = self.shelves.get(stream)
        if found is None:
            found = self.shelves[stream] = self.new_shelf(self, stream)
        return found

    def settle(self) -> None:
        """Put the tails of all shelves into their bins."""
        for shelf in self.shelves.values():
            shelf.settle()

    def blocks(self) -> Iterator[Block]:
        """All free blocks by stream, size, address."""
        for stream in sorted(self.shelves):
            yield from self.shelves[stream].blocks()
