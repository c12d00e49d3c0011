"""How blocks are split, merged with their neighbours, and replaced by other blocks in the list of their segment.

Knows addresses and neighbours only; nothing of bins, pools or charges.
"""

from __future__ import annotations

from server.allocator.core.block import Block
from server.allocator.core.ownership import merged_owner


def split_front(block: Block, size: int) -> Block:
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


def join_front(block: Block, front: Block) -> None:
    """Let a block begin where its neighbour does; ``front`` is no longer part of the segment."""
    before = block.previous = front.previous
    if before is None:
        block.segment.first = block
    else:
        before.next = block
    block.offset, block.pointer = front.offset, front.pointer
    block.size += front.size


def coalesce(block: Block, neighbour: Block) -> None:
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
        block.owner = merged_owner(block.owner, neighbour.owner)
    # Shows the mistake when a stale handle is freed once more.
    neighbour.is_free = True


def replace_block(block: Block, other: Block) -> None:
    """Put another block in the place of one, which is no longer part of the segment."""
    before, behind = other.previous, other.next = block.previous, block.next
    if before is None:
        block.segment.first = other
    else:
        before.next = other
    if behind is not None:
        behind.previous = other
    # A replaced block must not keep its neighbours alive.
    block.previous = block.next = None
    block.is_free = True


def replace_by_copy(block: Block) -> Block:
    """Put a new block that is just like this one in its place, and return the new one."""
    other = Block(block.segment, block.offset, block.size, block.stream, block.owner)
    other.bin, other.split, other.requested = block.bin, block.split, block.requested
    other.charge, other.device_charge = block.charge, block.device_charge
    replace_block(block, other)
    return other
