"""What a session may do to the cache that it shares with others, and what goes with it when it ends.

Raw memory by address, private pools, its own limit, its own part of the cache. Knows sessions by number only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from server.allocator.cache.rehearsal import RehearsingCache
from server.allocator.core.block import Block
from server.allocator.core.private import MemPool
from telegrad_protocol.errors import ArgumentError


class SharedCache(RehearsingCache):
    """`RehearsingCache` as sessions use it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._raw: dict[int, Block] = {}
        self._mem_pool_count = 0
        # The operator's limits; a session may only tighten its own.
        self._granted: dict[int, int | None] = {}

    def caching_allocator_alloc(self, nbytes: int, stream: int = 0, owner: int = 0) -> int:
        """The address of a block that nothing but ``caching_allocator_delete`` gives back."""
        if nbytes <= 0:
            raise ArgumentError(f"caching_allocator_alloc: cannot allocate {nbytes} bytes")
        block = self.allocate(nbytes, stream, owner)
        self._raw[block.pointer] = block
        return block.pointer

    def caching_allocator_delete(self, pointer: int, owner: int = 0) -> None:
        """Give back what ``caching_allocator_alloc`` returned to the same session."""
        block = self._raw.get(pointer)
        if block is None or block.owner != owner:
            raise ArgumentError(f"caching_allocator_delete: no memory was allocated at {pointer:#x}")
        del self._raw[pointer]
        self.free(block)

    def new_mem_pool(self, owner: int = 0) -> MemPool:
        """A private pool in use by its maker, until ``release_mem_pool``."""
        self._mem_pool_count += 1
        return self.policy.new_mem_pool((0, self._mem_pool_count), owner)

    def mem_pool(self, id: tuple[int, int], owner: int = 0) -> MemPool:
        """A session's private pool."""
        found = self.policy.private.get(id)
        if found is None or found.owner != owner or not found.uses:
            raise ArgumentError(f"MemPool: there is no pool {id}")
        return found

    def begin_allocate_to_pool(self, pool: MemPool, owner: int = 0) -> None:
        """Serve the session's requests from a private pool."""
        account = self._account(owner)
        if account.route is not None:
            raise ArgumentError(f"use_mem_pool: pool {account.route.id} is in use already")
        self.start_over()
        pool.uses += 1
        account.turn_to_pool(pool)

    def end_allocate_to_pool(self, owner: int = 0) -> None:
        """Serve the session's requests from the common pools again."""
        account = self._account(owner)
        if account.route is not None:
            self.start_over()
            pool = account.route
            account.turn_to_pool(None)
            self._events.insert_deferred(owner)
            self._watch()
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
        self.start_over()
        pool.uses -= 1
        if pool.uses:
            return
        for own in pool.pools:
            self.policy.release_pool(own)
        self._drop_mem_pools()

    def set_quota(self, owner: int, nbytes: int | None) -> None:
        """Limit the bytes in use by one session; None lifts the limit."""
        self._granted[owner] = nbytes
        super().set_quota(owner, nbytes)

    def set_session_fraction(self, fraction: float, owner: int) -> None:
        """Limit the bytes in use by a session to a fraction of the device's memory, within its quota."""
        if not 0.0 <= fraction <= 1.0:
            raise ArgumentError(f"set_per_process_memory_fraction: {fraction} is not between 0 and 1")
        granted = self._granted.get(owner)
        wanted = None if fraction == 1.0 else int(fraction * self.upstream.free_and_total()[1])
        limits = [limit for limit in (granted, wanted) if limit is not None]
        super().set_quota(owner, min(limits, default=None))

    def session_fraction(self, owner: int) -> float:
        """The share of the device's memory that a session may have in use."""
        quota, total = self._account(owner).quota_bytes, self.upstream.free_and_total()[1]
        return 1.0 if quota is None or not total else min(1.0, quota / total)

    def empty_own_cache(self, owner: int, stream: int) -> None:
        """Give back what is wholly free and of no use to others, without waiting for any stream.

        Nobody else can have what was allocated for a session's own stream. Of the stream that all share, number 0, that
        is given back which no other session's data was in.
        """
        self.leave()
        self._complete_all(self._events.completed())
        self.policy.release_where(lambda block: block.stream == stream and (stream != 0 or block.owner == owner))

    def abandon(self, owner: int) -> None:
        """Give back what a session that ends holds besides its tensors; its streams have passed."""
        self.leave()
        self._complete_all(self._events.completed())
        for pointer in [pointer for pointer, block in self._raw.items() if block.owner == owner]:
            self.caching_allocator_delete(pointer, owner)
        self.end_allocate_to_pool(owner)
        for pool in [pool for pool in self.policy.private.values() if pool.owner == owner and pool.uses]:
            self.release_mem_pool(pool)
        self.history.forget(owner)
        self._watch()

    def end_session(self, owner: int) -> None:
        """Drop the account of a session that has freed everything."""
        super().end_session(owner)
        self._granted.pop(owner, None)
