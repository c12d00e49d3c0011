"""Putting blocks into segments whose free blocks hold their place, and taking them out: what logged calls amount to.

Knows segments, blocks and free lists; nothing of charges or sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any

from server.allocator.core.block import Block, Segment
from server.allocator.core.expandable_list import is_growable
from server.allocator.core.heap import Heap
from server.allocator.core.splitting import replace_block, replace_by_copy, split_front


def place_blocks(blocks: Iterable[Block]) -> None:
    """Put blocks that are in use where there are free ones that hold them."""
    for segment, group in groupby(sorted(blocks, key=attrgetter("pointer")), attrgetter("segment")):
        _place_in_segment(segment, group)


def put_back(heap: Heap, block: Block) -> None:
    """Make the memory of a block in use available; what that changes in the totals has been counted."""
    pool = block.segment.pool
    counted = pool.ended_inactive_count, pool.ended_inactive_bytes
    heap.put(replace_by_copy(block))
    pool.ended_inactive_count, pool.ended_inactive_bytes = counted


def _place_in_segment(segment: Segment, blocks: Iterable[Block]) -> None:
    """Put blocks, in the order of their addresses, into one segment."""
    room: Any = segment.first
    for block in blocks:
        while room.offset + room.size <= block.offset:
            room = room.next
        free_list = segment.pool.free_lists[block.stream]
        free_list.remove(room)
        if room.offset < block.offset:
            free_list.add(split_front(room, block.offset - room.offset))
        block.split = room.split or room.size > block.size
        if room.size > block.size:
            replace_block(split_front(room, block.size), block)
            free_list.add(room)
        else:
            replace_block(room, block)
        block.is_free = False
        block.bin = None if is_growable(block) else free_list.bin(block.size)
        room = block
