"""Private pools: memory that only the allocations routed to them use, such as those of a captured graph.

Knows pools; nothing of who routes what.
"""

from __future__ import annotations

from server.allocator.core.block import Pool
from server.allocator.core.counters import Stat
from server.allocator.core.ledger import LARGE, SMALL


class MemPool:
    """A small and a large pool that only some allocations use, kept as long as somebody uses the pair."""

    __slots__ = ("id", "owner", "pools", "reserved", "uses")

    def __init__(self, small: Pool, large: Pool, owner: int) -> None:
        self.id = small.identity
        self.pools = (small, large)
        self.owner = owner
        self.uses = 1
        # The bytes obtained for both pools, for the small one, and for the large one.
        self.reserved = (Stat(), Stat(), Stat())

    def count(self, nbytes: int, is_small: bool) -> None:
        """Count bytes that were obtained for one of its pools, or given back where negative."""
        for stat in (self.reserved[0], self.reserved[SMALL if is_small else LARGE]):
            if nbytes >= 0:
                stat.increase(nbytes)
            else:
                stat.decrease(-nbytes)
