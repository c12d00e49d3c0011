"""The memory that was obtained for one device: its segments, and the pools of free blocks in them.

Says which block serves a request, splits it, and merges it with its neighbours when it comes back, by the rules of
PyTorch's CUDA allocator. Knows nothing of sessions, quotas or events, nor of how segments are obtained.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from server.allocator.core import sizes
from server.allocator.core.block import Block, FreeList, Pool, Segment
from server.allocator.core.config import AllocatorConfig
from server.allocator.core.counters import Statistics
from server.allocator.core.expandable_list import ExpandableFreeList
from server.allocator.core.mem_pool import MemPool
from server.allocator.core.ownership import CLEAN
from server.allocator.core.splitting import coalesce, split_front
from server.allocator.core.upstream import Upstream


class Heap:
    """The pools of free blocks of one device and the segments that they lie in."""

    __slots__ = ("__dict__", "__weakref__", "generation")  # what every call reads is a slot

    def __init__(self, upstream: Upstream, config: AllocatorConfig, statistics: Statistics) -> None:
        self.upstream = upstream
        self.config = config
        self.statistics = statistics
        self.small = self.new_pool(True)
        self.large = self.new_pool(False)
        self.private: dict[tuple[int, int], MemPool] = {}
        self.segments: dict[int, Segment] = {}
        self.reserved_bytes = 0
        # How often segments came or went, or memory changed hands.
        self.generation = 0
        self.limit_bytes: int | None = None
        # Whose data lies in memory that went back to the upstream.
        self.returned_owner = CLEAN
        # Told of every allocation, free and segment while somebody records them.
        self.trace: Callable[..., None] | None = None
        # Called when ``is_ambiguous`` may have changed.
        self.on_ambiguity: Callable[[], None] = lambda: None

    @property
    def is_ambiguous(self) -> bool:
        """Whether a bin of the wanted size may not hold the block that fits best."""
        if not self.config.expandable_segments:
            return False
        return any(free_list.is_ambiguous for pool in self.pools() for free_list in pool.free_lists.values())

    def new_pool(self, is_small: bool, identity: tuple[int, int] = (0, 0)) -> Pool:
        """Make an empty pool, whose blocks are split as the kind of its segments allows."""
        if self.config.expandable_segments:
            pool = Pool(is_small, identity, partial(ExpandableFreeList, notify=lambda: self.on_ambiguity()))
            # Whole pages of free blocks can be given back, so none of them counts as an inactive split one.
            pool.inactive_count_charge = pool.inactive_byte_charge = 0
            return pool
        pool = Pool(is_small, identity)
        if not is_small:
            pool.min_remainder, pool.split_below = sizes.SMALL_REQUEST + 1, self.config.max_split_size
        return pool

    def exceeds_limit(self, nbytes: int) -> bool:
        """Whether ``nbytes`` more would be beyond what may be obtained from the upstream."""
        return self.limit_bytes is not None and self.reserved_bytes + nbytes > self.limit_bytes

    def pools(self) -> tuple[Pool, ...]:
        """Return the common pools and all private ones."""
        private = [pool for mem_pool in self.private.values() for pool in mem_pool.pools]
        return self.small, self.large, *private

    def releasable(self) -> tuple[Pool, ...]:
        """Return the pools whose free memory may be given back: not those of captured graphs, which replay on it."""
        unused = [pool for mem_pool in self.private.values() if not mem_pool.uses for pool in mem_pool.pools]
        return self.large, self.small, *unused

    def coalesce_deferred(self) -> None:
        """Carry out all deferred coalescing, for whoever looks at segments block by block."""
        for pool in self.pools():
            pool.coalesce_deferred()

    def pool_for(self, size: int, route: MemPool | None = None) -> Pool:
        """Return the pool that serves requests of this rounded size."""
        small, large = (self.small, self.large) if route is None else route.pools
        return small if size <= sizes.SMALL_REQUEST else large

    def cached(self, size: int, free_list: FreeList) -> Block | None:
        """Return the free block that fits best, and leave it in its pool; None if there is none."""
        free_list.pool.searches += 1
        block = free_list.best_fit(size)
        if block is None or block.size < self.config.max_split_size:
            return block
        return block if self._may_use_oversize(block, size) else None

    def _may_use_oversize(self, block: Block, size: int) -> bool:
        if size < self.config.max_split_size:
            return False
        return block.size < size + self.config.max_non_split_rounding

    def take(self, block: Block, size: int, free_list: FreeList) -> tuple[Block, int]:
        """Take a free block, or the front of it, out of its pool.

        Returns it, and by how much the charge of the inactive split blocks changes.
        """
        pool, was_split = free_list.pool, block.split
        free_list.remove(block)
        if block.size - size >= pool.min_remainder and size < pool.split_below:
            front = split_front(block, size)
            free_list.add(block)
            if not was_split:
                return front, pool.inactive_count_charge + block.size * pool.inactive_byte_charge
            pool.ended_inactive_bytes += size
            return front, -size * pool.inactive_byte_charge
        if not was_split:
            return block, 0
        pool.ended_inactive_count += 1
        pool.ended_inactive_bytes += block.size
        return block, -pool.inactive_count_charge - block.size * pool.inactive_byte_charge

    def put(self, block: Block) -> int:
        """Merge a block with its free neighbours and make it available.

        Returns by how much the charge of the inactive split blocks changes.
        """
        pool = block.segment.pool
        free_list = pool.free_lists[block.stream]
        if free_list.remainder is not None and free_list.is_beside_remainder(block):
            free_list.coalesce_deferred()
        count = nbytes = 0
        for neighbour in (block.previous, block.next):
            if neighbour is not None and neighbour.is_free:
                count -= 1
                nbytes -= neighbour.size
                self.generation += block.owner != neighbour.owner
                free_list.remove(neighbour)
                coalesce(block, neighbour)
        if block.previous is not None or block.next is not None:
            count += 1
            nbytes += block.size
        else:
            block.split = False
            block.segment.freed_at_search = pool.searches
        free_list.add(block)
        if count < 0:
            pool.ended_inactive_count -= count
        if nbytes < 0:
            pool.ended_inactive_bytes -= nbytes
        return count * pool.inactive_count_charge + nbytes * pool.inactive_byte_charge

    def count_private(self, pool: Pool, nbytes: int) -> None:
        """Count the bytes that a private pool obtained, or gave back where negative."""
        private = self.private.get(pool.identity)
        if private is not None:
            private.count(nbytes, pool.is_small)

    def new_mem_pool(self, identity: tuple[int, int], owner: int) -> MemPool:
        """Make a private pool."""
        mem_pool = MemPool(self.new_pool(True, identity), self.new_pool(False, identity), owner)
        self.private[identity] = mem_pool
        return mem_pool

    def drop_mem_pool(self, private: MemPool) -> bool:
        """Forget a private pool that nobody uses and that has no memory; return False if it cannot be."""
        if private.uses or any(segment.pool in private.pools for segment in self.segments.values()):
            return False
        for common, pool in zip((self.small, self.large), private.pools):
            common.ended_inactive_count += pool.ended_inactive_count
            common.ended_inactive_bytes += pool.ended_inactive_bytes
        del self.private[private.id]
        return True

    def largest_free(self) -> int:
        """Return the size of the largest free block, in bytes."""
        return max((block.size for pool in self.pools() for block in pool.blocks()), default=0)

    def prune(self) -> None:
        """Drop the bins that no block lies in or will return to."""
        self.coalesce_deferred()
        blocks = (block for segment in self.segments.values() for block in segment.blocks())
        used = {id(block.bin) for block in blocks if block.bin is not None}
        for pool in self.pools():
            for free_list in pool.free_lists.values():
                free_list.prune(used)
