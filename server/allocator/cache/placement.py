"""Putting blocks into segments whose free blocks hold their place, once the calls that took them are carried out.

Knows segments, blocks and free lists; nothing of charges or sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any

from server.allocator.core.block import Block, Segment
from server.allocator.core.expandable_list import is_growable
from server.allocator.core.splitting import replace_block, split_front


def place_blocks(blocks: Iterable[Block]) -> None:
    """Put blocks that are in use where there are free ones that hold them."""
    for segment, group in groupby(sorted(blocks, key=attrgetter("pointer")), attrgetter("segment")):
        _place_in_segment(segment, group)


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
