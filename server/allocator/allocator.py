"""The caching allocator of one device, put together: a core that caches blocks, and the layers around it.

This is the only place that knows all layers. A call of the engine enters the layer that answers it directly.
"""

from __future__ import annotations

from server.allocator import native_calls
from server.allocator.cache.call_sequences import CallSequences
from server.allocator.cache.fast_bins import FastBins
from server.allocator.cache.recalling_cache import RecallingCache
from server.allocator.core.account import Books
from server.allocator.core.block_cache import BlockCache
from server.allocator.core.config import AllocatorConfig
from server.allocator.core.counters import Statistics
from server.allocator.core.events import EventQueue
from server.allocator.core.expandable import ExpandableSegments
from server.allocator.core.heap import Heap
from server.allocator.core.segments import FixedSegments
from server.allocator.core.upstream import Upstream
from server.allocator.reports.reports import Reports
from server.allocator.sessions.sessions import Sessions


class CachingAllocator:
    """The stack of layers that serves one device; the layers' methods are its own, so that it adds no call to them.

    ``events`` replaces the queue of events, for tests that decide the order in which streams are asked.
    """

    def __init__(
        self, upstream: Upstream, config: AllocatorConfig | None = None, *, device: str = "cpu",
        events: EventQueue | None = None,
    ) -> None:  # fmt: skip
        self.upstream, self.config, self.device = upstream, config or AllocatorConfig(), device
        self.heap = Heap(upstream, self.config, Statistics())
        segments = ExpandableSegments if self.config.expandable_segments else FixedSegments
        self.core = BlockCache(self.heap, segments(self.heap), Books(), device=device, events=events)
        self.bins = FastBins(self.core)
        self.recall = RecallingCache(native_calls.bins_layer(self.bins), self.core, native_calls.ways_of)
        self.sequences = CallSequences(self.recall)
        self.sessions = Sessions(self.recall)
        self.reports = Reports(self.recall)
        self._bind_cache()
        self._bind_sessions()
        self._bind_reports()

    def _bind_cache(self) -> None:
        """Offer blocks; allocations and frees enter the outermost layer at once."""
        core, recall, sequences = self.core, self.recall, self.sequences
        self.allocate, self.free = recall.calls
        self.end_cooldown, self.expect_repetition = recall.end_cooldown, recall.expect_repetition
        self.begin_program, self.expect_pass = recall.begin_program, recall.expect_pass
        self.record_stream = sequences.record_stream
        self.empty_cache, self.allocated_bytes = recall.empty_cache, recall.allocated_bytes
        self.flush_deferred = recall.flush_deferred
        self.start_sequence, self.sequence_since = sequences.start_sequence, sequences.sequence_since
        self.state_number = sequences.state_number
        self.can_replay, self.replay, self.dry_run = sequences.can_replay, sequences.replay, sequences.dry_run
        self.run_in = sequences.run_in
        self.free_memory_callbacks = core.free_memory_callbacks
        self.pressure_callbacks = core.pressure_callbacks
        self.check_room, self.set_memory_fraction = core.check_room, core.set_memory_fraction
        self.mem_get_info = self.upstream.free_and_total

    def _bind_sessions(self) -> None:
        """Offer what sessions may do to the cache that they share."""
        sessions = self.sessions
        limits, pools, raw = sessions.limits, sessions.pools, sessions.raw
        self.empty_own_cache, self.end_session = sessions.empty_own_cache, sessions.end_session
        self.set_quota, self.join_group = limits.set_quota, limits.join_group
        self.set_session_fraction, self.session_fraction = limits.set_session_fraction, limits.session_fraction
        self.caching_allocator_alloc = raw.caching_allocator_alloc
        self.caching_allocator_delete = raw.caching_allocator_delete
        self.new_mem_pool, self.mem_pool = pools.new_mem_pool, pools.mem_pool
        self.use_mem_pool, self.release_mem_pool = pools.use_mem_pool, pools.release_mem_pool
        self.begin_allocate_to_pool = pools.begin_allocate_to_pool
        self.end_allocate_to_pool = pools.end_allocate_to_pool

    def _bind_reports(self) -> None:
        """Offer what people look at."""
        reports = self.reports
        self.history = reports.history
        self.memory_stats, self.memory_summary = reports.memory_stats, reports.memory_summary
        self.memory_snapshot = reports.memory_snapshot
        self.reset_peak, self.reset_accumulated = reports.reset_peak, reports.reset_accumulated
        self.record_memory_history, self.attach_observer = reports.record_memory_history, reports.attach_observer

    def abandon(self, owner: int) -> None:
        """Give back what a session that ends holds besides its tensors, and drop its history."""
        self.sessions.abandon(owner)
        self.reports.forget_history(owner)
