"""What goes with a session when it ends, and which part of the cache is its own.

Knows sessions by number only.
"""

from __future__ import annotations

from server.allocator.core.cache_layer import CacheLayer
from server.allocator.sessions.limits import SessionLimits
from server.allocator.sessions.mem_pools import SessionPools
from server.allocator.sessions.raw_memory import RawMemory


class Sessions:
    """The sessions that share a cache: their limits, their private pools, and their memory by address."""

    def __init__(self, below: CacheLayer) -> None:
        self._below = below
        self.limits = SessionLimits(below)
        self.pools = SessionPools(below)
        self.raw = RawMemory(below)

    def empty_own_cache(self, owner: int, stream: int) -> None:
        """Give back what is wholly free and of no use to others, without waiting for any stream.

        Nobody else can have what was allocated for a session's own stream. Of the stream that all share, number 0, that
        is given back which no other session's data was in.
        """
        self._below.detach()
        self._below.core.poll_events()
        self._below.core.segments.release_where(
            lambda block: block.segment.stream == stream and (stream != 0 or block.owner == owner)
        )

    def abandon(self, owner: int) -> None:
        """Give back what a session that ends holds besides its tensors; its streams have passed."""
        self._below.detach()
        self._below.core.poll_events()
        self.raw.delete_all(owner)
        self.pools.release_all(owner)

    def end_session(self, owner: int) -> None:
        """Drop the account of a session that has freed everything."""
        self._below.end_session(owner)
        self.limits.forget(owner)
