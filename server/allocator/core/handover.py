"""Blocks that pass from one session to another: nobody reads what somebody else wrote.

Knows blocks and whose data they may hold; nothing of accounts or charges.
"""

from __future__ import annotations

from server.allocator.core import sizes
from server.allocator.core.block import Block
from server.allocator.core.ownership import CLEAN, MIXED, OwnerMap
from server.allocator.core.upstream import Upstream


def hand_over(block: Block, owner: int, upstream: Upstream) -> None:
    """Make a block that is about to be handed out a session's own, and zero what others may have written there.

    What remains of a small piece that several sessions had changes hands with the part that was split off it. Otherwise
    it would never be one session's again, and nothing split off it would be served by the fast bins.
    """
    rest = block.next if block.owner == MIXED else None
    _claim(block, owner, upstream)
    if rest is not None and rest.is_free and rest.owner == MIXED and rest.size <= sizes.SMALL_SEGMENT:
        _claim(rest, owner, upstream)


def _claim(block: Block, owner: int, upstream: Upstream) -> None:
    segment, before = block.segment, block.owner
    block.owner = owner
    if segment.owners is None:
        if before == CLEAN:
            return
        segment.owners = OwnerMap()
    foreign = segment.owners.claim(block.offset, block.offset + block.size, owner)
    if before != MIXED:
        foreign = [] if before == CLEAN else [(block.offset, block.size)]
    # The server itself, number 0, may see everything.
    for offset, nbytes in foreign if owner else ():
        upstream.zero(segment, offset, nbytes, segment.stream)
