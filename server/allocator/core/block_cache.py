"""The core of the allocator: hands out blocks and takes them back, whatever stands in the way.

Keeps every session within its quota, holds blocks back that other streams still use, and makes room when no free block
fits. One thread calls it. It knows nothing of tensors, of the layers above it, or of how statistics are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from server.allocator.core import sizes
from server.allocator.core.account import Account, Books, Request
from server.allocator.core.block import Block, FreeList, Segment, stream_of
from server.allocator.core.events import EventQueue
from server.allocator.core.expandable_list import is_growable
from server.allocator.core.handover import hand_over
from server.allocator.core.heap import Heap
from server.allocator.core.layer import CoreObserver, NoObserver
from server.allocator.core.ledger import GUARDS, in_use
from server.allocator.core.out_of_memory import MemoryUsage, device_exhausted, over_quota
from server.allocator.core.segments import SegmentSource
from telegrad_protocol.errors import ArgumentError, InternalError, OutOfMemoryError


class BlockCache:
    """Blocks of one device for sessions; `Heap` says which block serves a request."""

    def __init__(
        self, heap: Heap, segments: SegmentSource, books: Books, *, device: str, events: EventQueue | None = None
    ) -> None:
        self.device = device
        self.heap = heap
        self.segments = segments
        self.books = books
        self.upstream = heap.upstream
        self.config = heap.config
        self.statistics = heap.statistics
        self.events = EventQueue(heap.upstream) if events is None else events
        # The block of every request for nothing.
        self.null = _null_block()
        # Asked to free something where no free block fits; each says whether it did.
        self.free_memory_callbacks: list[Callable[[], bool]] = []
        # Asked to give up what costs time to make anew, of one session or of all, where there is no room otherwise.
        self.pressure_callbacks: list[Callable[[int | None], bool]] = []
        # Asked for a higher quota by the account and the size that is beyond it; says whether it was raised.
        self.raise_quota: Callable[[Account, int], bool] = _never
        self.observer: CoreObserver = NoObserver()
        # Whether layers above must leave every call to this one, and who is told when that is decided anew.
        self.bypasses = False
        self.bypass_listeners: list[Callable[[bool], None]] = []
        self._ledger = books.ledger
        self._accounts = books.accounts
        # The other streams that use a block, by block in use.
        self._streams: dict[Block, set[int]] = {}
        self._trace: Callable[..., None] | None = None
        self._capacity: int | None = None
        heap.on_ambiguity = self.update_bypass
        if self.config.per_process_memory_fraction < 1.0:
            self.set_memory_fraction(self.config.per_process_memory_fraction)

    def allocate(self, nbytes: int, stream: int, owner: int) -> Block:
        """Return a block of at least ``nbytes`` for use on ``stream``, accounted to session ``owner``.

        Raises OutOfMemoryError when the session's quota or the device has no room.
        """
        if nbytes <= 0:
            return self._allocate_nothing(nbytes)
        account = self._accounts.get(owner) or self.books.account(owner)
        account.select_stream(stream)
        if self.events:
            self._resume_all(self.events.completed())
        request = account.requests.get(nbytes) or self._new_request(nbytes, account)
        if account.quota_bytes is not None:
            self._check_quota(account, request.size)
        size, free_list = request.size, request.free_list
        block = self.heap.cached(size, free_list)
        if block is None and stream != stream_of(stream):
            block = self.segments.obtain(size, free_list)
            if block is None:  # what would lie apart must not displace anything
                return self.allocate(nbytes, stream_of(stream), owner)
        block = block or self._make_room(size, free_list)
        if block is None:
            raise self._exhausted(account, request.size)
        return self._hand_out(block, request, account)

    def _allocate_nothing(self, nbytes: int) -> Block:
        if nbytes < 0:
            raise ArgumentError(f"allocate: {nbytes} bytes")
        return self.null

    def _new_request(self, nbytes: int, account: Account) -> Request:
        size = self.config.round_size(nbytes)
        free_list = self.heap.pool_for(size, account.route).free_list(account.stream)
        request = Request(nbytes, size, free_list, is_oversize=size >= self.config.max_split_size)
        account.remember(request)
        return request

    def _make_room(self, size: int, free_list: FreeList) -> Block | None:
        """Return a block where no free one fits, by the steps of PyTorch's allocator in their order."""
        block = self.heap.cached(size, free_list) if self._reclaim() else None
        if block is None and self.config.garbage_collection_threshold > 0.0:
            self.segments.collect_garbage()
        block = block or self.segments.obtain(size, free_list)
        if block is None and self.segments.release_available(size, free_list):
            block = self.segments.obtain(size, free_list)
        if block is None and self._give_up(None):
            block = self.heap.cached(size, free_list)
        if block is None:
            self.release_cached()
            block = self.segments.obtain(size, free_list, is_retry=True)
        return block

    def _reclaim(self) -> bool:
        """Ask whoever holds memory that it can spare; return whether anybody freed some."""
        has_freed = any([callback() for callback in self.free_memory_callbacks])  # a list: each must be asked
        self.observer.before_inspection()
        return has_freed

    def _give_up(self, owner: int | None) -> bool:
        """Ask whoever holds what can be made anew to give it up; return whether anybody did."""
        has_freed = any([callback(owner) for callback in self.pressure_callbacks])
        self.observer.before_inspection()
        return has_freed

    def _hand_out(self, block: Block, request: Request, account: Account) -> Block:
        """Take a free block, or the front of it, out of its pool and account for it."""
        block, change = self.heap.take(block, request.size, request.free_list)
        charge = request.charge
        if block.size == request.size:
            request.uses += 1
        else:
            charge = in_use(block.size, request.nbytes, request.is_small)
            account.accumulated.add(1, block.size, request.nbytes, request.is_small)
        self._ledger.add(charge + change)
        account.add(charge)
        block.requested = request.nbytes
        block.charge = block.device_charge = charge
        if block.split:
            pool = request.free_list.pool
            block.device_charge = charge - pool.inactive_count_charge - block.size * pool.inactive_byte_charge
        # A block that can grow lies in no bin when it is free.
        block.bin = None if is_growable(block) else request.free_list.bin(block.size)
        if block.owner != account.owner:
            self.heap.generation += 1
            hand_over(block, account.owner, self.upstream)
        if block.size >= self.config.max_split_size:
            self.statistics.oversize_allocations.increase(1)
            block.bin = None
        if self.heap.trace is not None:
            self.heap.trace("alloc", block.pointer, request.nbytes, block.segment.stream, block.owner)
        return block

    def free(self, block: Block) -> None:
        """Take a block back; it is reused once the streams that used it are done with it."""
        if block is self.null:
            return
        if block.is_free or block in self.events:
            raise InternalError(f"allocator: {block} was freed twice")
        if block.size >= self.config.max_split_size:
            self.statistics.oversize_allocations.decrease(1)
        if self.heap.trace is not None:
            self.heap.trace("free_requested", block.pointer, block.requested, block.segment.stream, block.owner)
        if block.bin is None and block in self._streams:
            self._suspend(block)
        else:
            self._trace_completed(block)
            self.complete(block)

    def complete(self, block: Block) -> None:
        """Put a block that no stream uses any more into its pool, and take it off what its session holds."""
        charge = block.charge
        self._accounts[block.owner].now -= charge
        ledger = self._ledger
        ledger.now = now = ledger.now + self.heap.put(block) - charge
        if (ledger.ceiling - now) & GUARDS != GUARDS:
            ledger.take_peaks()

    def record_stream(self, block: Block, stream: int) -> None:
        """Hold the block back, once freed, until what ``stream`` has queued by then is done."""
        if stream == block.segment.stream or block is self.null:
            return
        self._streams.setdefault(block, set()).add(stream)
        block.bin = None

    def _suspend(self, block: Block) -> None:
        """Hold a freed block back until the events of the other streams that use it have passed."""
        charge = in_use(block.size, 0, block.segment.pool.is_small)
        account = self._accounts[block.owner]
        self._ledger.suspend(charge)
        account.suspend(charge)
        hold_back = self.events.insert if account.route is None else self.events.defer
        hold_back(block, self._streams.pop(block))
        self.update_bypass()

    def _resume_all(self, blocks: Iterator[Block]) -> None:
        for block in blocks:
            self._resume(block)
        self.update_bypass()

    def _resume(self, block: Block) -> None:
        """Put a block whose events have passed into its pool."""
        suspended = in_use(block.size, 0, block.segment.pool.is_small)
        self._accounts[block.owner].resume(suspended, -block.charge)
        self._trace_completed(block)
        charge = block.charge
        self._ledger.resume(suspended, self.heap.put(block) - charge)
        self.observer.after_completion(block)

    def poll_events(self) -> None:
        """Put the blocks back whose events have passed."""
        self._resume_all(self.events.completed())

    def await_events(self) -> None:
        """Wait for all events, and put their blocks back."""
        self.statistics.num_sync_all_streams += 1
        self._resume_all(self.events.awaited())

    def empty_cache(self) -> None:
        """Give every segment that is wholly free back to the upstream, and forget the sizes that nothing in use has."""
        self.release_cached()
        for account in self._accounts.values():
            account.forget_requests()
        self.heap.prune()

    def release_cached(self) -> None:
        """Give every segment that is wholly free back to the upstream, after waiting for all events."""
        self.observer.before_release()
        self.await_events()
        self.segments.release_all()
        self.drop_mem_pools()

    def drop_mem_pools(self) -> None:
        """Forget the private pools that nobody uses and that hold nothing."""
        for private in [private for private in self.heap.private.values() if not private.uses]:
            for account in self._accounts.values():
                account.drop_pool(private)
            self.heap.drop_mem_pool(private)

    def set_trace(self, trace: Callable[..., None] | None) -> None:
        """Tell ``trace`` of every allocation, free and segment; None ends it."""
        self._trace = trace
        self.update_bypass()

    def _trace_completed(self, block: Block) -> None:
        if self.heap.trace is not None:
            self.heap.trace("free_completed", block.pointer, block.requested, block.segment.stream, block.owner)

    def update_bypass(self) -> None:
        """Decide whether layers above must leave every call to this one, because its outcome depends on more.

        They must while events are awaited, while garbage is collected by age, while a bin may not hold the best fit,
        and while somebody records every call.
        """
        self.observer.before_bypass_changes()
        self.heap.trace = self._trace
        collects = self.heap.limit_bytes is not None and self.config.garbage_collection_threshold > 0.0
        self.bypasses = bool(self.events) or collects or self.heap.is_ambiguous or self._trace is not None
        for tell in self.bypass_listeners:
            tell(self.bypasses)

    def set_quota(self, owner: int, nbytes: int | None, most: int | None = None) -> None:
        """Limit the bytes in use by one session; None lifts the limit. ``raise_quota`` may raise it to ``most``."""
        account = self.books.account(owner)
        account.quota_bytes = nbytes
        account.most_bytes = nbytes if most is None else most
        account.limit(nbytes)
        self.heap.generation += 1

    def set_memory_fraction(self, fraction: float) -> None:
        """Limit what is obtained from the upstream to a fraction of the device's memory."""
        if not 0.0 <= fraction <= 1.0:
            raise ArgumentError(f"set_per_process_memory_fraction: {fraction} is not between 0 and 1")
        self.heap.limit_bytes = int(fraction * self.upstream.free_and_total()[1])
        self.update_bypass()

    def check_room(self, nbytes: int, owner: int) -> None:
        """Refuse what a session could never hold at once; for work whose size is known before memory is asked for."""
        account = self.books.account(owner)
        if account.most_bytes is not None and nbytes > account.most_bytes:
            raise self._refused(account, nbytes)
        if self._capacity is None:
            self._capacity = self.upstream.free_and_total()[1]
        if nbytes > self._capacity:
            raise self._exhausted(account, nbytes)

    def _check_quota(self, account: Account, size: int) -> None:
        """Refuse ``size`` bytes beyond the session's quota, once all that it freed is off its account."""
        quota = account.quota_bytes
        if quota is None or account.active_bytes + size <= quota:
            return
        if account.pending:
            self.await_events()
        if account.active_bytes + size > quota and self.raise_quota(account, size):
            return
        if account.active_bytes + size > quota and self._give_up(account.owner) and account.pending:
            self.await_events()
        if account.active_bytes + size > quota:
            raise self._refused(account, size)

    def end_session(self, owner: int) -> None:
        """Drop the account of a session that has freed everything."""
        account = self._accounts.get(owner)
        if account is None:
            return
        if account.pending:
            self.await_events()
        if account.active_bytes:
            raise InternalError(f"allocator: session {owner} ended holding {account.active_bytes} bytes")
        self.books.close(owner)

    def _refused(self, account: Account, size: int) -> OutOfMemoryError:
        """Count a request that is beyond a quota; return the error to raise."""
        account.num_rejections += 1
        self.statistics.num_oom_rejections += 1
        return over_quota(self._usage(account, size))

    def _exhausted(self, account: Account, size: int) -> OutOfMemoryError:
        """Count a request that the device has no room for; return the error to raise."""
        self.statistics.num_ooms += 1
        account.num_ooms += 1
        usage = self._usage(account, size)
        if self.heap.trace is not None:
            self.heap.trace("oom", self.upstream.free_and_total()[0], size, stream_of(account.stream), account.owner)
        return device_exhausted(usage)

    def _usage(self, account: Account, wanted: int) -> MemoryUsage:
        self.observer.before_inspection()
        free, total = self.upstream.free_and_total()
        active, reserved = self.books.bytes_in_use(), self.heap.reserved_bytes
        return MemoryUsage(
            device=self.device,
            wanted=wanted,
            owner=account.owner,
            held=account.active_bytes,
            quota=account.most_bytes,
            others=active - account.active_bytes,
            reserved=reserved,
            cached=reserved - active,
            limit=total if self.heap.limit_bytes is None else self.heap.limit_bytes,
            largest=max(self.heap.largest_free(), free),
        )


def _never(account: Account, size: int) -> bool:
    return False


class _NullBlock(Block):
    """The block of nothing: valid to look at, never in a pool."""

    __slots__ = ()

    owns_memory = False


def _null_block() -> Block:
    buffer = np.zeros(sizes.MIN_BLOCK, dtype=np.uint8)
    block = _NullBlock(Segment(0, 0, buffer), 0, 0, stream=0, owner=0)
    block.is_free = True  # to be taken back, it has nothing to give
    return block
