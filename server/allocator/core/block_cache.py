"""Handing out blocks and taking them back, the general way: events, quotas, running out, changes of hands.

Keeps every session's account, and holds blocks back that other streams still use. One thread calls it. Knows nothing of
tensors, nor of how statistics are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from server.allocator.core import sizes
from server.allocator.core.account import Account, Books, Request
from server.allocator.core.block import Block, FreeList, Segment
from server.allocator.core.events import EventQueue
from server.allocator.core.expandable_list import is_growable
from server.allocator.core.heap import Heap
from server.allocator.core.layer import NoObserver, Observer
from server.allocator.core.ledger import GUARDS, in_use
from server.allocator.core.out_of_memory import MemoryUsage, device_exhausted, over_quota
from server.allocator.core.ownership import CLEAN, MIXED, OwnerMap
from server.allocator.core.segments import SegmentSource
from telegrad_protocol.errors import ArgumentError, InternalError, OutOfMemoryError


class BlockCache:
    """Blocks of device memory for sessions; see `Heap` for which block serves a request."""

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
        self.null = _null_block()
        self.free_memory_callbacks: list[Callable[[], bool]] = []
        self.observer: Observer = NoObserver()
        # Told when every call must be carried out here, because somebody wants to see it, and when no longer.
        self.bypass_listeners: list[Callable[[bool], None]] = []
        self.bypasses = False
        self._ledger = books.ledger
        self._accounts = books.accounts
        self._streams: dict[Block, set[int]] = {}
        self._trace: Callable[..., None] | None = None
        self._capacity: int | None = None
        heap.on_ambiguity = self.update_bypass
        if self.config.per_process_memory_fraction < 1.0:
            self.set_memory_fraction(self.config.per_process_memory_fraction)

    def record_stream(self, block: Block, stream: int) -> None:
        """Hold the block back, once freed, until what ``stream`` has queued by then is done."""
        if stream == block.stream or block is self.null:
            return
        self._streams.setdefault(block, set()).add(stream)
        block.bin = None

    def empty_cache(self) -> None:
        """Give every segment that is wholly free back to the upstream."""
        self.release_cached()
        self._prune()

    def set_quota(self, owner: int, nbytes: int | None) -> None:
        """Limit the bytes in use by one session; None lifts the limit."""
        account = self.books.account(owner)
        account.quota_bytes = nbytes
        account.limit(nbytes)

    def set_memory_fraction(self, fraction: float) -> None:
        """Limit what is obtained from the upstream to a fraction of the device's memory."""
        if not 0.0 <= fraction <= 1.0:
            raise ArgumentError(f"set_per_process_memory_fraction: {fraction} is not between 0 and 1")
        self.heap.limit_bytes = int(fraction * self.upstream.free_and_total()[1])
        self.update_bypass()

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

    def check_room(self, nbytes: int, owner: int) -> None:
        """Refuse what a session could never hold at once; for work whose size is known before memory is asked for."""
        account = self.books.account(owner)
        if account.quota_bytes is not None and nbytes > account.quota_bytes:
            account.num_rejections += 1
            self.statistics.num_oom_rejections += 1
            raise over_quota(self._usage(account, nbytes))
        if self._capacity is None:
            self._capacity = self.upstream.free_and_total()[1]
        if nbytes > self._capacity:
            raise self._exhausted(account, nbytes)

    def allocate(self, nbytes: int, stream: int, owner: int) -> Block:
        """Return a block of at least ``nbytes`` for use on ``stream``, accounted to session ``owner``."""
        if nbytes <= 0:
            return self._nothing(nbytes)
        account = self._accounts.get(owner) or self.books.account(owner)
        account.select_stream(stream)
        if self.events:
            self._complete_all(self.events.completed())
        request = account.requests.get(nbytes) or self._request(nbytes, account)
        if account.quota_bytes is not None:
            self._keep_quota(account, request.size)
        block = self.heap.cached(request.size, request.free_list) or self._find(request.size, request.free_list)
        if block is None:
            raise self._exhausted(account, request.size)
        return self._hand_out(block, request, account)

    def _nothing(self, nbytes: int) -> Block:
        if nbytes < 0:
            raise ArgumentError(f"allocate: {nbytes} bytes")
        return self.null

    def _request(self, nbytes: int, account: Account) -> Request:
        size = self.config.round_size(nbytes)
        free_list = self.heap.pool_for(size, account.route).free_list(account.stream)
        request = Request(nbytes, size, free_list, is_oversize=size >= self.config.max_split_size)
        account.remember(request)
        return request

    def _find(self, size: int, free_list: FreeList) -> Block | None:
        """Make room when no free block fits."""
        block = self.heap.cached(size, free_list) if self._reclaim() else None
        if block is None and self.config.garbage_collection_threshold > 0.0:
            self.segments.collect_garbage()
        block = block or self.segments.obtain(size, free_list)
        if block is None and self.segments.release_available(size, free_list):
            block = self.segments.obtain(size, free_list)
        if block is None:
            self.release_cached()
            block = self.segments.obtain(size, free_list, is_retry=True)
        return block

    def _reclaim(self) -> bool:
        """Ask whoever holds memory that it can spare; True if anybody freed some."""
        return any([callback() for callback in self.free_memory_callbacks])  # a list: each must be asked

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

    def _hand_out(self, block: Block, request: Request, account: Account) -> Block:
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
        # What has a unmapped behind it is no block for a bin.
        block.bin = None if is_growable(block) else request.free_list.bin(block.size)
        if block.owner != account.owner:
            self.heap.generation += 1
            self._change_owner(block, account.owner)
        if block.size >= self.config.max_split_size:
            self.statistics.oversize_allocations.increase(1)
            block.bin = None
        if self.heap.trace is not None:
            self.heap.trace("alloc", block.pointer, request.nbytes, block.stream, block.owner)
        return block

    def _change_owner(self, block: Block, owner: int) -> None:
        """No session sees what another one wrote; the server itself may.

        What remains of a small piece that several had changes hands with the part that was cut from it: it would else
        never be one session's again, and nothing cut from it would go the short way.
        """
        rest = block.next if block.owner == MIXED else None
        self._claim(block, owner)
        if rest is not None and rest.is_free and rest.owner == MIXED and rest.size <= sizes.SMALL_SEGMENT:
            self._claim(rest, owner)

    def _claim(self, block: Block, owner: int) -> None:
        segment, before = block.segment, block.owner
        block.owner = owner
        if segment.owners is None:
            if before == CLEAN:
                return
            segment.owners = OwnerMap()
        foreign = segment.owners.claim(block.offset, block.offset + block.size, owner)
        if before != MIXED:
            foreign = [] if before == CLEAN else [(block.offset, block.size)]
        for offset, nbytes in foreign if owner else ():
            self.upstream.zero(segment, offset, nbytes, block.stream)

    def free(self, block: Block) -> None:
        """Take a block back; it is reused once the streams that used it are done with it."""
        if block is self.null:
            return
        if block.is_free or block in self.events:
            raise InternalError(f"allocator: {block} was freed twice")
        if block.size >= self.config.max_split_size:
            self.statistics.oversize_allocations.decrease(1)
        if self.heap.trace is not None:
            self.heap.trace("free_requested", block.pointer, block.requested, block.stream, block.owner)
        if block.bin is None and block in self._streams:
            self._suspend(block)
        else:
            self._trace_completed(block)
            self.complete(block)

    def _suspend(self, block: Block) -> None:
        charge = in_use(block.size, 0, block.segment.pool.is_small)
        account = self._accounts[block.owner]
        self._ledger.suspend(charge)
        account.suspend(charge)
        hold_back = self.events.insert if account.route is None else self.events.defer
        hold_back(block, self._streams.pop(block))
        self.update_bypass()

    def complete(self, block: Block) -> None:
        """Put a block back that no stream uses, and take it off what its session holds."""
        charge = block.charge
        self._accounts[block.owner].now -= charge
        ledger = self._ledger
        ledger.now = now = ledger.now + self.heap.put(block) - charge
        if (ledger.ceiling - now) & GUARDS != GUARDS:
            ledger.take_peaks()

    def _resume(self, block: Block) -> None:
        suspended = in_use(block.size, 0, block.segment.pool.is_small)
        self._accounts[block.owner].resume(suspended, -block.charge)
        self._trace_completed(block)
        charge = block.charge
        self._ledger.resume(suspended, self.heap.put(block) - charge)
        self.observer.after_completion(block)

    def _trace_completed(self, block: Block) -> None:
        if self.heap.trace is not None:
            self.heap.trace("free_completed", block.pointer, block.requested, block.stream, block.owner)

    def _complete_all(self, blocks: Iterator[Block]) -> None:
        for block in blocks:
            self._resume(block)
        self.update_bypass()

    def poll_events(self) -> None:
        """Put the blocks back whose events have passed."""
        self._complete_all(self.events.completed())

    def await_events(self) -> None:
        """Wait for all events, and put their blocks back."""
        self.statistics.num_sync_all_streams += 1
        self._complete_all(self.events.awaited())

    def set_trace(self, trace: Callable[..., None] | None) -> None:
        """Tell ``trace`` of every allocation, free and segment; None ends it."""
        self._trace = trace
        self.update_bypass()

    def update_bypass(self) -> None:
        """See to it that nothing takes the short way while somebody wants to see every call."""
        self.observer.before_bypass_changes()
        self.heap.trace = self._trace
        collects = self.heap.limit_bytes is not None and self.config.garbage_collection_threshold > 0.0
        bypasses = bool(self.events) or collects or self.heap.is_ambiguous or self._trace is not None
        self.bypasses = bypasses
        for listener in self.bypass_listeners:
            listener(bypasses)

    def _prune(self) -> None:
        """Forget the sizes that nothing in use has."""
        for account in self._accounts.values():
            account.forget_requests()
        self.heap.prune()

    def _keep_quota(self, account: Account, size: int) -> None:
        quota = account.quota_bytes
        if quota is None or account.active_bytes + size <= quota:
            return
        if account.pending:
            self.await_events()
        if account.active_bytes + size > quota:
            account.num_rejections += 1
            self.statistics.num_oom_rejections += 1
            raise over_quota(self._usage(account, size))

    def _exhausted(self, account: Account, size: int) -> OutOfMemoryError:
        self.statistics.num_ooms += 1
        account.num_ooms += 1
        usage = self._usage(account, size)
        if self.heap.trace is not None:
            self.heap.trace("oom", self.upstream.free_and_total()[0], size, account.stream, account.owner)
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
            quota=account.quota_bytes,
            others=active - account.active_bytes,
            reserved=reserved,
            cached=reserved - active,
            limit=total if self.heap.limit_bytes is None else self.heap.limit_bytes,
            largest=max(self.heap.largest_free(), free),
        )


def _null_block() -> Block:
    """The block of nothing: valid to look at, never in a pool."""
    buffer = np.zeros(sizes.MIN_BLOCK, dtype=np.uint8)
    return Block(Segment(0, 0, buffer), 0, 0, stream=0, owner=0)
