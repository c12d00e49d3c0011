"""Blocks, the segments they tile, and how they split and merge.

Knows addresses and neighbours only; nothing of pools, policy, statistics or devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from server.allocator.core.pool import Bin, Pool
    from server.allocator.core.residue import Residue

CLEAN = -1  # memory that was never handed out, or is known to be zero
MIXED = -2  # memory that more than one session has written


class Segment:
    """One piece of memory from an upstream, tiled without gaps by its blocks."""

    __slots__ = ("age", "buffer", "first", "handle", "page", "pointer", "pool", "residue", "size", "stream")

    pool: Pool
    first: Block

    def __init__(self, pointer: int, size: int, buffer: Any = None, handle: Any = None, page: int = 0) -> None:
        self.pointer = pointer
        self.size = size
        # Memory comes and goes in pages of this size where the segment is only addresses; 0: all of it is memory.
        self.page = page
        self.buffer = buffer
        self.handle = handle
        self.stream = 0
        # The pool's search count when all of it became free.
        self.age = 0
        # Whose data its parts may hold, once more than one session has had some of it.
        self.residue: Residue | None = None

    def blocks(self) -> Iterator[Block]:
        """The blocks in address order."""
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.next


class Block:
    """A piece of a segment: the engine's handle on memory.

    ``owner`` is, while the block is in use, the session it is accounted to; while it is free, whose data it may
    still hold. ``idle`` says that it lies in its pool, in ``bin``; to that bin it returns if it need not be merged. A
    block in use without a bin is freed the general way. A ``lasting`` one stands for its piece of memory whenever
    that is in use and is never free itself; ``key`` is what `recall` tells a piece in use by.
    ``array`` and ``meta`` are for whoever uses a lasting block: the array that was last made of it, and of what form.
    """

    __slots__ = (
        "array", "bin", "charge", "device_charge", "idle", "key", "lasting", "meta", "next", "offset", "owner",
        "pointer", "previous", "requested", "segment", "size", "split", "stream",
    )  # fmt: skip

    # Whether there is memory behind it.
    mapped = True

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
        self.split = self.idle = self.lasting = False
        self.key = 0
        self.array: Any = None
        self.meta: Any = None
        self.bin: Bin | None = None

    def __repr__(self) -> str:
        state = "idle" if self.idle else "in use"
        return f"<Block {self.pointer:#x} {self.size} bytes, {state}, stream {self.stream}, owner {self.owner}>"


class Gap(Block):
    """Addresses of an expandable segment without memory behind them; never idle, because nobody can have them."""

    __slots__ = ()

    mapped = False


def carve(block: Block, size: int) -> Block:
    """Split the first ``size`` bytes off as a new block; ``block`` becomes the remainder."""
    front = Block(block.segment, block.offset, size, block.stream, block.owner)
    previous = block.previous
    if previous is None:
        block.segment.first = front
    else:
        front.previous = previous
        previous.next = front
    front.next = block
    block.previous = front
    block.offset += size
    block.pointer += size
    block.size -= size
    front.split = block.split = True
    return front


def extend(block: Block, front: Block) -> None:
    """Let a block begin where its neighbour does; ``front`` is no longer part of the segment."""
    before = block.previous = front.previous
    if before is None:
        block.segment.first = block
    else:
        before.next = block
    block.offset, block.pointer = front.offset, front.pointer
    block.size += front.size


def absorb(block: Block, neighbour: Block) -> None:
    """Merge an adjacent free block into ``block``; ``neighbour`` is no longer part of the segment."""
    if neighbour is block.next:
        beyond = block.next = neighbour.next
        if beyond is not None:
            beyond.previous = block
    else:
        block.offset, block.pointer = neighbour.offset, neighbour.pointer
        before = block.previous = neighbour.previous
        if before is not None:
            before.next = block
        else:
            block.segment.first = block
    block.size += neighbour.size
    if block.owner != neighbour.owner:
        block.owner = blend(block.owner, neighbour.owner)
    # Shows the mistake when a stale handle is freed once more.
    neighbour.idle = True


def exchange(block: Block, other: Block) -> None:
    """Put another block in the place of one, which is no longer part of the segment."""
    before, behind = other.previous, other.next = block.previous, block.next
    if before is None:
        block.segment.first = other
    else:
        before.next = other
    if behind is not None:
        behind.previous = other
    # They must not keep each other alive.
    block.previous = block.next = None
    block.idle = True


def stand_in(block: Block) -> Block:
    """A block just like this one, in its place."""
    other = Block(block.segment, block.offset, block.size, block.stream, block.owner)
    other.bin, other.split, other.requested = block.bin, block.split, block.requested
    other.charge, other.device_charge = block.charge, block.device_charge
    exchange(block, other)
    return other


def blend(one: int, other: int) -> int:
    """Whose data a piece of memory may hold that is made of two pieces."""
    if one == other or other == CLEAN:
        return one
    return other if one == CLEAN else MIXED
