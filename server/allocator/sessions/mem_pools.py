"""Private pools of sessions: made, used for a while, and released.

Knows sessions by number only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from server.allocator.core.cache_layer import CacheLayer
from server.allocator.core.mem_pool import MemPool
from telegrad_protocol.errors import ArgumentError


class SessionPools:
    """The private pools that sessions have made; requests of a session may be routed to one of its pools."""

    def __init__(self, below: CacheLayer) -> None:
        self._below = below
        self._core = below.core
        self._heap = below.core.heap
        self._count = 0

    def new_mem_pool(self, owner: int = 0) -> MemPool:
        """Make a private pool, in use by its maker until ``release_mem_pool``."""
        self._count += 1
        return self._heap.new_mem_pool((0, self._count), owner)

    def mem_pool(self, id: tuple[int, int], owner: int = 0) -> MemPool:
        """Return a session's private pool."""
        pool = self._heap.private.get(id)
        if pool is None or pool.owner != owner or not pool.uses:
            raise ArgumentError(f"MemPool: there is no pool {id}")
        return pool

    def begin_allocate_to_pool(self, pool: MemPool, owner: int = 0) -> None:
        """Serve the session's requests from a private pool."""
        account = self._core.books.account(owner)
        if account.route is not None:
            raise ArgumentError(f"use_mem_pool: pool {account.route.id} is in use already")
        self._below.invalidate()
        pool.uses += 1
        account.route_to(pool)

    def end_allocate_to_pool(self, owner: int = 0) -> None:
        """Serve the session's requests from the common pools again."""
        account = self._core.books.account(owner)
        if account.route is not None:
            self._below.invalidate()
            pool = account.route
            account.route_to(None)
            self._core.events.insert_deferred(owner)
            self._core.update_bypass()
            self.release_mem_pool(pool)

    @contextmanager
    def use_mem_pool(self, pool: MemPool, owner: int = 0) -> Iterator[None]:
        """Serve the session's requests from a private pool within the block."""
        self.begin_allocate_to_pool(pool, owner)
        try:
            yield
        finally:
            self.end_allocate_to_pool(owner)

    def release_mem_pool(self, pool: MemPool) -> None:
        """End one use of a private pool; after the last its memory goes back as it becomes free."""
        self._below.invalidate()
        pool.uses -= 1
        if pool.uses:
            return
        for own in pool.pools:
            self._core.segments.release_pool(own)
        self._core.drop_mem_pools()

    def release_all(self, owner: int) -> None:
        """End all uses that a session makes of private pools."""
        self.end_allocate_to_pool(owner)
        for pool in [pool for pool in self._heap.private.values() if pool.owner == owner and pool.uses]:
            self.release_mem_pool(pool)
