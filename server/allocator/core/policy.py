"""Which block serves a request, and when memory is obtained from and given back to the upstream.

The rules are those of PyTorch's CUDA allocator, in the same order. Knows pools, segments and the upstream; nothing of
sessions, quotas or events.
"""

from __future__ import annotations

from collections.abc import Callable

from server.allocator.core import sizes
from server.allocator.core.block import Block, FreeList, Pool, Segment
from server.allocator.core.config import UNBOUNDED, AllocatorConfig
from server.allocator.core.counters import Statistics
from server.allocator.core.mem_pool import MemPool
from server.allocator.core.ownership import CLEAN, merged_owner
from server.allocator.core.splitting import coalesce, split_front
from server.allocator.core.upstream import Upstream


class CachingPolicy:
    """The pools of free blocks of one device and the segments that they lie in."""

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
        self.trace: Callable[..., None] | None = None
        # Told when ``is_ambiguous`` changes.
        self.notify: Callable[[], None] = lambda: None

    @property
    def is_ambiguous(self) -> bool:
        """Whether a bin of the wanted size may not hold what fits best."""
        return False

    def new_pool(self, is_small: bool, identity: tuple[int, int] = (0, 0)) -> Pool:
        """An empty pool."""
        return Pool(is_small, identity)

    def pools(self) -> tuple[Pool, ...]:
        """All pools."""
        private = [pool for each in self.private.values() for pool in each.pools]
        return self.small, self.large, *private

    def releasable(self) -> tuple[Pool, ...]:
        """The pools whose free memory may be given back: not that of captured graphs, which replay on it."""
        unused = [pool for each in self.private.values() if not each.uses for pool in each.pools]
        return self.large, self.small, *unused

    def coalesce_deferred(self) -> None:
        """Carry out what was merged in the books only, for who looks at segments block by block."""
        for pool in self.pools():
            pool.coalesce_deferred()

    def pool_for(self, size: int, route: MemPool | None = None) -> Pool:
        """The pool that serves requests of this rounded size."""
        small, large = (self.small, self.large) if route is None else route.pools
        return small if size <= sizes.SMALL_REQUEST else large

    def cached(self, size: int, free_list: FreeList) -> Block | None:
        """The free block that fits best, left in its pool, or None."""
        free_list.pool.searches += 1
        block = free_list.best_fit(size)
        if block is None or block.size < self.config.max_split_size:
            return block
        return block if self._may_use_oversize(block, size) else None

    def _may_use_oversize(self, block: Block, size: int) -> bool:
        if size < self.config.max_split_size:
            return False
        return block.size < size + self.config.max_non_split_rounding

    def _should_split(self, size: int, remaining: int, pool: Pool) -> bool:
        """Whether what remains is worth keeping apart."""
        if pool.is_small:
            return remaining >= sizes.MIN_BLOCK
        return size < self.config.max_split_size and remaining > sizes.SMALL_REQUEST

    def take(self, block: Block, size: int, free_list: FreeList) -> tuple[Block, int]:
        """Take a free block, or the front of it; also the charge of the inactive blocks' change."""
        pool, was_split = free_list.pool, block.split
        free_list.remove(block)
        if self._should_split(size, block.size - size, pool):
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
        """Merge a block with its free neighbours and make it available; the charge of the inactive blocks' change."""
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

    def obtain(self, size: int, free_list: FreeList, *, is_retry: bool = False) -> Block | None:
        """A new segment that holds ``size`` bytes, as one free block in its pool."""
        nbytes = sizes.segment_size(size)
        if is_retry:
            self.statistics.num_alloc_retries += 1
        if self.limit_bytes is not None and self.reserved_bytes + nbytes > self.limit_bytes:
            return None
        segment = self.upstream.obtain(nbytes, free_list.stream)
        return self._adopt(segment, free_list) if segment is not None else None

    def _adopt(self, segment: Segment, free_list: FreeList) -> Block:
        stream, pool = segment.stream, segment.pool = free_list.stream, free_list.pool
        owner = CLEAN if self.upstream.is_zeroed else self.returned_owner
        block = segment.first = Block(segment, 0, segment.size, stream, owner)
        self.segments[segment.pointer] = segment
        self.reserved_bytes += segment.size
        self.generation += 1
        self.statistics.add_segment(segment.size, pool.is_small, segment.size >= self.config.max_split_size)
        self.count_private(pool, segment.size)
        if self.trace is not None:
            self.trace("segment_alloc", segment.pointer, segment.size, stream, 0)
        segment.freed_at_search = pool.searches
        free_list.add(block)
        return block

    def count_private(self, pool: Pool, nbytes: int) -> None:
        """Note bytes that a private pool obtained or gave back."""
        private = self.private.get(pool.identity)
        if private is not None:
            private.count(nbytes, pool.is_small)

    def release(self, block: Block) -> None:
        """Give the segment of a free block that is all of it back to the upstream."""
        segment = block.segment
        pool = segment.pool
        pool.free_lists[block.stream].remove(block)
        del self.segments[segment.pointer]
        self.reserved_bytes -= segment.size
        self.generation += 1
        self.returned_owner = merged_owner(self.returned_owner, block.owner)
        self.statistics.remove_segment(segment.size, pool.is_small, segment.size >= self.config.max_split_size)
        self.count_private(pool, -segment.size)
        if self.trace is not None:
            self.trace("segment_free", segment.pointer, segment.size, segment.stream, 0)
        self.upstream.give_back(segment)

    def release_available(self, size: int, free_list: FreeList) -> bool:
        """Give back oversize blocks of this stream, just enough for ``size``; False if there are not enough."""
        limit = self.config.max_split_size
        if limit == UNBOUNDED:
            return False
        wanted = max(size, limit)
        enough = free_list.best_fit(wanted)
        if enough is not None:
            self.release(enough)
            return True
        released = 0
        for block in reversed([block for block in free_list.blocks() if block.size >= limit]):
            if released >= wanted:
                break
            released += block.size
            self.release(block)
        return released >= wanted

    def release_all(self) -> None:
        """Give back every segment that is wholly free."""
        for pool in self.releasable():
            self.release_pool(pool)

    def release_pool(self, pool: Pool) -> None:
        """Give back every segment of a pool that is wholly free."""
        for block in list(pool.blocks()):
            if self.is_releasable(block):
                self.release(block)

    def release_where(self, is_meant: Callable[[Block], bool]) -> None:
        """Give back the wholly free segments whose block is meant."""
        for pool in self.releasable():
            for block in list(pool.blocks()):
                if self.is_releasable(block) and is_meant(block):
                    self.release(block)

    def is_releasable(self, block: Block) -> bool:
        """Whether a free block is something that the upstream can take back."""
        return not block.split

    def collect_garbage(self) -> None:
        """Give back the large free segments that were unused for longest, until the threshold is kept."""
        if self.limit_bytes is None:
            return
        wanted = self.reserved_bytes - int(self.config.garbage_collection_threshold * self.limit_bytes)
        idle = [block for block in self.large.blocks() if not block.split]
        reclaimed, searches = 0, self.large.searches
        while idle and reclaimed < wanted:
            average = sum(searches - block.segment.freed_at_search for block in idle) / len(idle)
            old = [block for block in idle if searches - block.segment.freed_at_search >= average]
            if not old:
                break
            reclaimed += sum(block.size for block in old)
            for block in old:
                self.release(block)
            idle = [block for block in idle if block not in old]

    def new_mem_pool(self, identity: tuple[int, int], owner: int) -> MemPool:
        """A private pool."""
        found = MemPool(self.new_pool(True, identity), self.new_pool(False, identity), owner)
        self.private[identity] = found
        return found

    def drop_mem_pool(self, private: MemPool) -> bool:
        """Let go of a private pool that nobody uses and that has no memory; False if it has."""
        if private.uses or any(segment.pool in private.pools for segment in self.segments.values()):
            return False
        for common, pool in zip((self.small, self.large), private.pools):
            common.ended_inactive_count += pool.ended_inactive_count
            common.ended_inactive_bytes += pool.ended_inactive_bytes
        del self.private[private.id]
        return True

    def largest_free(self) -> int:
        """The size of the largest free block."""
        return max((block.size for pool in self.pools() for block in pool.blocks()), default=0)

    def prune(self) -> None:
        """Drop the bins that no block lies in or will return to."""
        self.coalesce_deferred()
        blocks = (block for segment in self.segments.values() for block in segment.blocks())
        used = {id(block.bin) for block in blocks if block.bin is not None}
        for pool in self.pools():
            for free_list in pool.free_lists.values():
                free_list.prune(used)
