"""Free blocks, found by best fit: the smallest that is large enough, of those the one at the lowest address.

Blocks of one size on one stream share a bin, so that a repeated size is found without a search. Knows nothing of
sessions or devices.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

from server.allocator.block import Block
from server.allocator.ledger import inactive


def _descending(block: Block) -> int:
    return -block.pointer


class Bin:
    """The free blocks of one size on one stream, highest address first."""

    __slots__ = ("blocks", "listed", "shelf", "size")

    def __init__(self, shelf: Shelf, size: int) -> None:
        self.shelf = shelf
        self.size = size
        self.blocks: list[Block] = []
        # Whether the shelf's index names this size. An emptied bin stays named until a search passes it.
        self.listed = False

    def add(self, block: Block) -> None:
        """Put a block in its place."""
        if not self.listed:
            self.listed = True
            insort(self.shelf.sizes, self.size)
        blocks = self.blocks
        if blocks and blocks[-1].pointer < block.pointer:
            insort(blocks, block, key=_descending)
        else:
            blocks.append(block)

    def remove(self, block: Block) -> None:
        """Take out this very block."""
        del self.blocks[bisect_left(self.blocks, -block.pointer, key=_descending)]


class Shelf:
    """The free blocks of one pool on one stream, by size."""

    __slots__ = ("bins", "pool", "sizes", "stream")

    def __init__(self, pool: Pool, stream: int) -> None:
        self.pool = pool
        self.stream = stream
        self.bins: dict[int, Bin] = {}
        self.sizes: list[int] = []

    def bin(self, size: int) -> Bin:
        """The bin of this size; there is never more than one."""
        found = self.bins.get(size)
        if found is None:
            found = self.bins[size] = Bin(self, size)
        return found

    def best_fit(self, size: int) -> Block | None:
        """The smallest block of at least ``size`` bytes, left where it is."""
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

    def prune(self, used: set[int]) -> None:
        """Drop the empty bins, but for those used: their ``id``."""
        self.bins = {size: bin for size, bin in self.bins.items() if bin.blocks or id(bin) in used}
        self.sizes = [size for size in self.sizes if size in self.bins]

    def blocks(self) -> Iterator[Block]:
        """All free blocks by size, then address."""
        for size in list(self.sizes):
            yield from reversed(list(self.bins[size].blocks))


class Pool:
    """The free blocks of one kind: small or large."""

    __slots__ = ("identity", "is_small", "left_bytes", "left_count", "one_byte", "one_count", "searches", "shelves")

    def __init__(self, is_small: bool, identity: tuple[int, int] = (0, 0)) -> None:
        self.is_small = is_small
        # That of the private pool it belongs to; (0, 0) is the common one.
        self.identity = identity
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
            found = self.shelves[stream] = Shelf(self, stream)
        return found

    def blocks(self) -> Iterator[Block]:
        """All free blocks by stream, size, address."""
        for stream in sorted(self.shelves):
            yield from self.shelves[stream].blocks()
