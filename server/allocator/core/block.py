"""The memory of a device in pieces: segments, the blocks that tile them, and the free blocks in bins by size.

A free block is found by best fit: the smallest that is large enough, and of those the one at the lowest address. Blocks
of one size on one stream share a bin, so that a repeated size is found without a search. The five classes refer to each
other and so share this file. It knows nothing of sessions, devices, or of which block serves a request.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Any

from server.allocator.core.config import UNBOUNDED
from server.allocator.core.ledger import inactive
from server.allocator.core.ownership import OwnerMap
from server.allocator.core.sizes import MIN_BLOCK

# How many frees of a size are coalesced at once after deferring that did not pay; then it is tried again.
EAGER_FREES = 16


_APART = 1 << 62
"""A bit that no stream's number has: addresses have fewer bits."""
_AREA_SHIFT = 59
AREAS = 1 << 3
"""So many areas of a stream may lie apart from each other, too; their numbers are in bits that no address has."""


def apart(stream: int, area: int = 0) -> int:
    """Return the number on which memory of a stream is asked for that is to lie apart, in one of its areas.

    It is in free lists, and so in segments, that serve nothing else on that stream. Blocks and free lists have this
    number; segments have that of the stream, which is the one for work and for people.
    """
    return stream | _APART | area << _AREA_SHIFT


def stream_of(number: int) -> int:
    """Return the stream whose memory is asked for on a number."""
    return number & (1 << _AREA_SHIFT) - 1


class Segment:
    """One piece of memory from an upstream, tiled without gaps by its blocks."""

    __slots__ = (
        "buffer", "first", "freed_at_search", "handle", "owners", "page_size", "pointer", "pool", "size", "stream",
    )  # fmt: skip

    pool: Pool
    first: Block

    def __init__(self, pointer: int, size: int, buffer: Any = None, handle: Any = None, page: int = 0) -> None:
        self.pointer = pointer
        self.size = size
        # The bytes of a page of an expandable segment, which gets and loses memory page by page; 0 for other segments.
        self.page_size = page
        self.buffer = buffer
        self.handle = handle
        self.stream = 0
        # The pool's count of searches at the time when the whole segment became free.
        self.freed_at_search = 0
        # Whose data the parts of the segment may hold; None as long as at most one session has used it.
        self.owners: OwnerMap | None = None

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks in the order of their addresses."""
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.next


class Block:
    """A piece of a segment: the engine's handle on memory.

    ``owner`` is the session that a block in use is accounted to; of a free block it is the session whose data the block
    may still hold. ``bin`` is where a free block lies, and where a block in use returns to if it is not merged; a block
    in use without a bin is freed by the core. ``split`` says that the block is only a part of its segment.

    A block that ``is_stable`` represents its piece of memory whenever that piece is in use, and is never free itself.
    The allocator recognizes a piece in use by its ``key``. Users of a stable block keep the array that they last made
    of it in ``array``, and the shape and type of that array in ``meta``.
    """

    __slots__ = (
        "array", "bin", "charge", "device_charge", "is_free", "is_stable", "key", "meta", "next", "offset", "owner",
        "pointer", "previous", "requested", "segment", "size", "split", "stream",
    )  # fmt: skip

    # Whether there is memory behind the addresses.
    mapped = True
    # Whether the block is the memory's own, which it gives back when it is freed.
    owns_memory = True

    def __init__(self, segment: Segment, offset: int, size: int, stream: int, owner: int) -> None:
        self.segment = segment
        self.offset = offset
        self.pointer = segment.pointer + offset
        self.size = size
        self.stream = stream
        self.owner = owner
        self.previous: Block | None = None
        self.next: Block | None = None
        self.requested = self.charge = self.device_charge = 0
        self.split = self.is_free = self.is_stable = False
        self.key = 0
        self.array: Any = None
        self.meta: Any = None
        self.bin: Bin | None = None

    def __repr__(self) -> str:
        state = "free" if self.is_free else "in use"
        return f"<Block {self.pointer:#x} {self.size} bytes, {state}, stream {self.stream}, owner {self.owner}>"


class UnmappedBlock(Block):
    """Addresses of an expandable segment without memory behind them; never free, because nobody can have them."""

    __slots__ = ()

    mapped = False


def _descending(block: Block) -> int:
    return -block.pointer


class Bin:
    """The free blocks of one size on one stream, highest address first."""

    __slots__ = ("blocks", "eager_frees", "free_list", "listed", "size")

    def __init__(self, free_list: FreeList, size: int) -> None:
        self.free_list = free_list
        self.size = size
        self.blocks: list[Block] = []
        # Whether the free list's index has this size. A bin that becomes empty stays listed until a search passes it.
        self.listed = False
        # How many more frees of this size are coalesced at once, because a deferred one was not wanted back as it was.
        self.eager_frees = 0

    def add(self, block: Block) -> None:
        """Insert a block in the order of addresses."""
        if not self.listed:
            if self.size == self.free_list.remainder_size:
                self.free_list.coalesce_deferred()
            if not self.listed:
                self.listed = True
                insort(self.free_list.sizes, self.size)
        blocks = self.blocks
        if blocks and blocks[-1].pointer < block.pointer:
            insort(blocks, block, key=_descending)
        else:
            blocks.append(block)

    def unlist(self) -> None:
        """Remove the empty bin from the free list's index."""
        self.listed = False
        del self.free_list.sizes[bisect_left(self.free_list.sizes, self.size)]

    def remove(self, block: Block) -> None:
        """Remove a block from the bin, wherever it lies in it."""
        del self.blocks[bisect_left(self.blocks, -block.pointer, key=_descending)]


class FreeList:
    """The free blocks of one pool on one stream, by size; and the last remainder.

    The last remainder is the free block that was split last. It lies in no bin, and its coalescing is deferred: what is
    freed right in front of it counts as part of it and stays a block of its own until somebody needs one block. Its
    ``remainder_size`` bytes begin at ``remainder_front``, the block that was freed in front of it last, or the
    remainder itself. All blocks from there to the remainder are free, follow one another, and hold the same owner's
    data. No bin of exactly ``remainder_size`` is listed, so that whoever finds a block of the size it wants in a bin
    need not look at the remainder.
    """

    __slots__ = ("bins", "pool", "remainder", "remainder_front", "remainder_size", "sizes", "stream")

    # Whether memory can be put behind some of its blocks.
    expands = False
    # Whether a bin of the wanted size may not hold the block that fits best.
    is_ambiguous = False

    def __init__(self, pool: Pool, stream: int) -> None:
        self.pool = pool
        self.stream = stream
        self.bins: dict[int, Bin] = {}
        self.sizes: list[int] = []
        self.remainder: Block | None = None
        self.remainder_front: Block | None = None
        self.remainder_size = 0

    def bin(self, size: int) -> Bin:
        """Return the only bin of this size, which is made if need be."""
        bin = self.bins.get(size)
        if bin is None:
            bin = self.bins[size] = Bin(self, size)
        return bin

    def best_fit(self, size: int) -> Block | None:
        """Return the smallest free block of at least ``size`` bytes, and leave it in the list."""
        self.coalesce_deferred()
        return self.best_in_bins(size)

    def best_in_bins(self, size: int) -> Block | None:
        """Return the smallest block of at least ``size`` bytes in any bin; the last remainder is in none."""
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
        block.is_free = True
        bin = block.bin = self.bins.get(block.size) or self.bin(block.size)
        if bin.listed and not bin.blocks:
            bin.blocks.append(block)
        else:
            bin.add(block)

    def remove(self, block: Block) -> None:
        """Take a block out of its bin; it is no longer available."""
        bin: Any = block.bin
        if bin.blocks[-1] is block:
            bin.blocks.pop()
        else:
            bin.remove(block)
        block.is_free = False

    def open_remainder(self, block: Block) -> None:
        """Make a block that was just taken out of its bin the last remainder."""
        self.coalesce_deferred()
        block.is_free = True
        self.remainder = self.remainder_front = block
        self.resize_remainder(block.size)

    def resize_remainder(self, remainder_size: int) -> None:
        """Set the size of the last remainder, and put it into a bin if there are blocks of the same size."""
        self.remainder_size = remainder_size
        bin = self.bins.get(remainder_size)
        if bin is None or not bin.listed:
            return
        if bin.blocks:
            self.coalesce_deferred()
        else:
            bin.unlist()

    def coalesce_remainder(self) -> None:
        """Carry out the deferred coalescing: make one block of the last remainder and what was freed in front of it."""
        front, remainder = self.remainder_front, self.remainder
        if front is remainder or front is None or remainder is None:
            return
        before = front.previous
        remainder.offset, remainder.pointer, remainder.size = front.offset, front.pointer, self.remainder_size
        while front is not remainder and front is not None:
            if front.bin is not None:
                front.bin.eager_frees = EAGER_FREES
            # Merged blocks must not keep each other alive.
            front.previous, front.next, front = None, None, front.next
        remainder.previous = before
        if before is None:
            remainder.segment.first = remainder
        else:
            before.next = remainder
        self.remainder_front = remainder

    def coalesce_deferred(self) -> None:
        """Carry out the deferred coalescing, and put the last remainder into its bin."""
        remainder = self.remainder
        if remainder is None:
            return
        self.coalesce_remainder()
        self.remainder = self.remainder_front = None
        self.remainder_size = 0
        self.add(remainder)

    def is_beside_remainder(self, block: Block) -> bool:
        """Whether the last remainder is a neighbour of this block."""
        return self.remainder is not None and (block.next is self.remainder_front or block.previous is self.remainder)

    def prune(self, used: set[int]) -> None:
        """Drop the empty bins whose ``id`` is not among ``used``."""
        self.bins = {size: bin for size, bin in self.bins.items() if bin.blocks or id(bin) in used}
        self.sizes = [size for size in self.sizes if size in self.bins]

    def blocks(self) -> Iterator[Block]:
        """Yield all free blocks, ordered by size and address."""
        self.coalesce_deferred()
        for size in list(self.sizes):
            yield from reversed(list(self.bins[size].blocks))


class Pool:
    """The free blocks for small requests, or those for large ones, on all streams."""

    __slots__ = (
        "ended_inactive_bytes", "ended_inactive_count", "free_lists", "identity", "inactive_byte_charge",
        "inactive_count_charge", "is_small", "min_remainder", "new_free_list", "searches", "split_below",
    )  # fmt: skip

    def __init__(
        self,
        is_small: bool,
        identity: tuple[int, int] = (0, 0),
        new_free_list: Callable[[Pool, int], FreeList] = FreeList,
    ) -> None:
        self.is_small = is_small
        # The identity of the private pool that this is a part of; (0, 0) stands for the common pools.
        self.identity = identity
        self.new_free_list = new_free_list
        self.free_lists: dict[int, FreeList] = {}
        # A block is split if at least so many bytes remain, for requests below ``split_below`` bytes.
        self.min_remainder = MIN_BLOCK
        self.split_below = UNBOUNDED
        # How often a block was looked for; the age of a free segment is counted in searches.
        self.searches = 0
        # The charges of one inactive split block and of one byte in one, and how many of each ceased to be.
        self.inactive_count_charge = inactive(1, 0, is_small)
        self.inactive_byte_charge = inactive(0, 1, is_small)
        self.ended_inactive_count = 0
        self.ended_inactive_bytes = 0

    def free_list(self, stream: int) -> FreeList:
        """Return the free blocks of one stream."""
        free_list = self.free_lists.get(stream)
        if free_list is None:
            free_list = self.free_lists[stream] = self.new_free_list(self, stream)
        return free_list

    def coalesce_deferred(self) -> None:
        """Carry out the deferred coalescing on all streams."""
        for free_list in self.free_lists.values():
            free_list.coalesce_deferred()

    def blocks(self) -> Iterator[Block]:
        """Yield all free blocks, ordered by stream, size and address."""
        for stream in sorted(self.free_lists):
            yield from self.free_lists[stream].blocks()
