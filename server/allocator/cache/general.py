"""Handing out blocks and taking them back, the general way: events, quotas, running out, changes of hands.

Keeps every session's account, and holds blocks back that other streams still use. One thread calls it. Knows nothing of
tensors, nor of how statistics are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from server.allocator.core import sizes
from server.allocator.core.block import CLEAN, MIXED, Block, Segment
from server.allocator.core.config import AllocatorConfig
from server.allocator.core.events import EventQueue
from server.allocator.core.expandable import ExpandingPolicy, is_edge
from server.allocator.core.policy import CachingPolicy
from server.allocator.core.pool import Shelf
from server.allocator.core.residue import Residue
from server.allocator.reports.history import History
from server.allocator.reports.statistics import Statistics
from server.allocator.sessions.account import Account, Flow, Request
from server.allocator.sessions.ledger import ALL, BYTES, GUARDS, Ledger, field, in_use
from server.allocator.sessions.shortage import Situation, device_exhausted, over_quota
from server.allocator.upstream.base import Upstream
from telegrad_protocol.errors import ArgumentError, InternalError, OutOfMemoryError


class GeneralCache:
    """Blocks of device memory for sessions; see `CachingPolicy` for which block serves a request."""

    def __init__(self, upstream: Upstream, config: AllocatorConfig | None = None, *, device: str = "cpu") -> None:
        self.device = device
        self.upstream = upstream
        self.config = config or AllocatorConfig()
        self.statistics = Statistics()
        self.policy = self._new_policy()
        self.history = History()
        self.free_memory_callbacks: list[Callable[[], bool]] = []
        self._ledger = Ledger()
        self._accounts: dict[int, Account] = {}
        # What sessions allocated that are gone.
        self._flow = Flow()
        self._streams: dict[Block, set[int]] = {}
        self._events = EventQueue(upstream)
        # The accumulated statistics at their last reset.
        self._baselines: dict[int | None, dict[str, int]] = {}
        self._null = _null_block()
        self._oversize = self.config.max_split_size
        self._expands = self.config.expandable_segments
        # Set while something wants to see every call: then nothing takes the short way.
        self._attentive = False
        self._capacity: int | None = None
        if self.config.per_process_memory_fraction < 1.0:
            self.set_memory_fraction(self.config.per_process_memory_fraction)

    def _new_policy(self) -> CachingPolicy:
        if not self.config.expandable_segments:
            return CachingPolicy(self.upstream, self.config, self.statistics)
        policy = ExpandingPolicy(self.upstream, self.config, self.statistics)
        policy.notify = self._watch
        return policy

    def record_stream(self, block: Block, stream: int) -> None:
        """Hold the block back, once freed, until what ``stream`` has queued by then is done."""
        if stream == block.stream or block is self._null:
            return
        self._streams.setdefault(block, set()).add(stream)
        block.bin = None

    def empty_cache(self) -> None:
        """Give every segment that is wholly free back to the upstream."""
        self._release_cached()
        self._prune()

    def set_quota(self, owner: int, nbytes: int | None) -> None:
        """Limit the bytes in use by one session; None lifts the limit."""
        account = self._account(owner)
        account.quota_bytes = nbytes
        account.limit(nbytes)

    def set_memory_fraction(self, fraction: float) -> None:
        """Limit what is obtained from the upstream to a fraction of the device's memory."""
        if not 0.0 <= fraction <= 1.0:
            raise ArgumentError(f"set_per_process_memory_fraction: {fraction} is not between 0 and 1")
        self.policy.allowed = int(fraction * self.upstream.free_and_total()[1])
        self._watch()

    def allocated_bytes(self, owner: int | None = None) -> int:
        """Bytes in use by one session, or by all; those that wait for events included."""
        ledger = self._ledger if owner is None else self._accounts.get(owner)
        return field(ledger.now, ALL, BYTES) if ledger is not None else 0

    def end_session(self, owner: int) -> None:
        """Drop the account of a session that has freed everything."""
        account = self._accounts.get(owner)
        if account is None:
            return
        if account.pending:
            self._await_events()
        if account.active_bytes:
            raise InternalError(f"allocator: session {owner} ended holding {account.active_bytes} bytes")
        account.fold()
        self._flow.add_flow(account.flow)
        del self._accounts[owner]
        self._baselines.pop(owner, None)

    def check_room(self, nbytes: int, owner: int) -> None:
        """Refuse what a session could never hold at once; for work whose size is known before memory is asked for."""
        account = self._account(owner)
        if account.quota_bytes is not None and nbytes > account.quota_bytes:
            account.num_rejections += 1
            self.statistics.num_oom_rejections += 1
            raise over_quota(self._situation(account, nbytes))
        if self._capacity is None:
            self._capacity = self.upstream.free_and_total()[1]
        if nbytes > self._capacity:
            raise self._exhausted(account, nbytes)

    def _account(self, owner: int) -> Account:
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = Account(owner)
        return account

    def _allocate(self, nbytes: int, stream: int, owner: int) -> Block:
        if nbytes <= 0:
            return self._nothing(nbytes)
        account = self._accounts.get(owner) or self._account(owner)
        account.turn_to(stream)
        if self._events:
            self._complete_all(self._events.completed())
        request = account.requests.get(nbytes) or self._request(nbytes, account)
        if account.quota_bytes is not None:
            self._keep_quota(account, request.size)
        block = self.policy.cached(request.size, request.shelf) or self._find(request.size, request.shelf)
        if block is None:
            raise self._exhausted(account, request.size)
        return self._hand_out(block, request, account)

    def _nothing(self, nbytes: int) -> Block:
        if nbytes < 0:
            raise ArgumentError(f"allocate: {nbytes} bytes")
        return self._null

    def _request(self, nbytes: int, account: Account) -> Request:
        size = self.config.round_size(nbytes)
        shelf = self.policy.pool_for(size, account.route).shelf(account.stream)
        request = Request(nbytes, size, shelf, is_oversize=size >= self.config.max_split_size)
        account.remember(request)
        return request

    def _find(self, size: int, shelf: Shelf) -> Block | None:
        """Make room when no free block fits."""
        policy = self.policy
        block = policy.cached(size, shelf) if self._reclaim() else None
        if block is None and self.config.garbage_collection_threshold > 0.0:
            policy.collect_garbage()
        block = block or policy.obtain(size, shelf)
        if block is None and policy.release_available(size, shelf):
            block = policy.obtain(size, shelf)
        if block is None:
            self._release_cached()
            block = policy.obtain(size, shelf, is_retry=True)
        return block

    def _reclaim(self) -> bool:
        """Ask whoever holds memory that it can spare; True if anybody freed some."""
        return any([callback() for callback in self.free_memory_callbacks])  # a list: each must be asked

    def _release_cached(self) -> None:
        self._await_events()
        self.policy.release_all()
        self._drop_mem_pools()

    def _drop_mem_pools(self) -> None:
        """Forget the private pools that nobody uses and that hold nothing."""
        for private in [private for private in self.policy.private.values() if not private.uses]:
            for account in self._accounts.values():
                account.leave_pool(private)
            self.policy.drop_mem_pool(private)

    def _hand_out(self, block: Block, request: Request, account: Account) -> Block:
        block, change = self.policy.take(block, request.size, request.shelf)
        charge = request.charge
        if block.size == request.size:
            request.uses += 1
        else:
            charge = in_use(block.size, request.nbytes, request.is_small)
            account.flow.add(1, block.size, request.nbytes, request.is_small)
        self._ledger.add(charge + change)
        account.add(charge)
        block.requested = request.nbytes
        block.charge = block.device_charge = charge
        if block.split:
            pool = request.shelf.pool
            block.device_charge = charge - pool.one_count - block.size * pool.one_byte
        # What has a gap behind it is no block for a bin.
        block.bin = None if is_edge(block) else request.shelf.bin(block.size)
        if block.owner != account.owner:
            self.policy.changes += 1
            self._change_owner(block, account.owner)
        if block.size >= self.config.max_split_size:
            self.statistics.oversize_allocations.increase(1)
            block.bin = None
        if self.policy.trace is not None:
            self.policy.trace("alloc", block.pointer, request.nbytes, block.stream, block.owner)
        return block

    def _change_owner(self, block: Block, owner: int) -> None:
        """No session sees what another one wrote; the server itself may.

        What remains of a small piece that several had changes hands with the part that was cut from it: it would else
        never be one session's again, and nothing cut from it would go the short way.
        """
        rest = block.next if block.owner == MIXED else None
        self._claim(block, owner)
        if rest is not None and rest.idle and rest.owner == MIXED and rest.size <= sizes.SMALL_SEGMENT:
            self._claim(rest, owner)

    def _claim(self, block: Block, owner: int) -> None:
        segment, before = block.segment, block.owner
        block.owner = owner
        if segment.residue is None:
            if before == CLEAN:
                return
            segment.residue = Residue()
        foreign = segment.residue.claim(block.offset, block.offset + block.size, owner)
        if before != MIXED:
            foreign = [] if before == CLEAN else [(block.offset, block.size)]
        for offset, nbytes in foreign if owner else ():
            self.upstream.zero(segment, offset, nbytes, block.stream)

    def _free(self, block: Block) -> None:
        if block is self._null:
            return
        if block.idle or block in self._events:
            raise InternalError(f"allocator: {block} was freed twice")
        if block.size >= self.config.max_split_size:
            self.statistics.oversize_allocations.decrease(1)
        if self.policy.trace is not None:
            self.policy.trace("free_requested", block.pointer, block.requested, block.stream, block.owner)
        if block.bin is None and block in self._streams:
            self._suspend(block)
        else:
            self._trace_completed(block)
            self._complete(block)

    def _suspend(self, block: Block) -> None:
        charge = in_use(block.size, 0, block.segment.pool.is_small)
        account = self._accounts[block.owner]
        self._ledger.suspend(charge)
        account.suspend(charge)
        hold_back = self._events.insert if account.route is None else self._events.defer
        hold_back(block, self._streams.pop(block))
        self._watch()

    def _complete(self, block: Block) -> None:
        charge = block.charge
        self._accounts[block.owner].now -= charge
        ledger = self._ledger
        ledger.now = now = ledger.now + self.policy.put(block) - charge
        if (ledger.ceiling - now) & GUARDS != GUARDS:
            ledger.take_peaks()

    def _resume(self, block: Block) -> None:
        suspended = in_use(block.size, 0, block.segment.pool.is_small)
        self._accounts[block.owner].resume(suspended, -block.charge)
        self._trace_completed(block)
        charge = block.charge
        self._ledger.resume(suspended, self.policy.put(block) - charge)

    def _trace_completed(self, block: Block) -> None:
        if self.policy.trace is not None:
            self.policy.trace("free_completed", block.pointer, block.requested, block.stream, block.owner)

    def _complete_all(self, blocks: Iterator[Block]) -> None:
        for block in blocks:
            self._resume(block)
        self._watch()

    def _await_events(self) -> None:
        self.statistics.num_sync_all_streams += 1
        self._complete_all(self._events.awaited())

    def _watch(self) -> None:
        """See to it that nothing takes the short way while somebody wants to see every call."""
        self.policy.trace = self.history.record if self.history.is_wanted else None
        collects = self.policy.allowed is not None and self.config.garbage_collection_threshold > 0.0
        self._attentive = bool(self._events) or collects or self.policy.is_ambiguous or self.history.is_wanted

    def _prune(self) -> None:
        """Forget the sizes that nothing in use has."""
        for account in self._accounts.values():
            account.forget_requests()
        self.policy.prune()

    def _keep_quota(self, account: Account, size: int) -> None:
        quota = account.quota_bytes
        if quota is None or account.active_bytes + size <= quota:
            return
        if account.pending:
            self._await_events()
        if account.active_bytes + size > quota:
            account.num_rejections += 1
            self.statistics.num_oom_rejections += 1
            raise over_quota(self._situation(account, size))

    def _exhausted(self, account: Account, size: int) -> OutOfMemoryError:
        self.statistics.num_ooms += 1
        account.num_ooms += 1
        situation = self._situation(account, size)
        if self.policy.trace is not None:
            self.policy.trace("oom", self.upstream.free_and_total()[0], size, account.stream, account.owner)
        return device_exhausted(situation)

    def _situation(self, account: Account, wanted: int) -> Situation:
        free, total = self.upstream.free_and_total()
        active, reserved = self.allocated_bytes(), self.policy.total
        return Situation(
            device=self.device,
            wanted=wanted,
            owner=account.owner,
            held=account.active_bytes,
            quota=account.quota_bytes,
            others=active - account.active_bytes,
            reserved=reserved,
            cached=reserved - active,
            limit=total if self.policy.allowed is None else self.policy.allowed,
            largest=max(self.policy.largest_free(), free),
        )


def _null_block() -> Block:
    """The block of nothing: valid to look at, never in a pool."""
    buffer = np.zeros(sizes.MIN_BLOCK, dtype=np.uint8)
    return Block(Segment(0, 0, buffer), 0, 0, stream=0, owner=0)
