"""The caching allocator of one device, put together: a core that caches blocks, and the layers around it.

The only place that knows all layers. A call of the engine enters the outermost layer that has a say in it, directly.
"""

from __future__ import annotations

from server.allocator.cache.call_sequences import CallSequences
from server.allocator.cache.fast_bins import FastBins
from server.allocator.cache.recall import Recall
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
    """The stack of layers that serves one device.

    Its methods are those of the layers, bound once, so that the stack adds no call of its own.
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
        self.recall = Recall(self.bins, self.core)
        self.sequences = CallSequences(self.recall)
        self.sessions = Sessions(self.recall)
        self.reports = Reports(self.recall)
        self._expose()

    def _expose(self) -> None:
        """Offer what each layer can do; the allocation of a block and its free are the outermost layer's own."""
        core, recall, sequences, sessions, reports = (
            self.core, self.recall, self.sequences, self.sessions, self.reports
        )  # fmt: skip
        self.allocate, self.free = recall.allocate, recall.free
        self.record_stream = sequences.record_stream
        self.empty_cache, self.allocated_bytes = recall.empty_cache, recall.allocated_bytes
        self.flush_deferred = recall.flush_deferred

        self.free_memory_callbacks = core.free_memory_callbacks
        self.check_room, self.set_memory_fraction = core.check_room, core.set_memory_fraction
        self.mem_get_info = self.upstream.free_and_total

        self.start_sequence, self.sequence_since = sequences.start_sequence, sequences.sequence_since
        self.can_replay, self.replay, self.dry_run = sequences.can_replay, sequences.replay, sequences.dry_run

        self.set_quota = sessions.limits.set_quota
        self.set_session_fraction = sessions.limits.set_session_fraction
        self.session_fraction = sessions.limits.session_fraction
        self.caching_allocator_alloc = sessions.raw.caching_allocator_alloc
        self.caching_allocator_delete = sessions.raw.caching_allocator_delete
        self.new_mem_pool, self.mem_pool = sessions.pools.new_mem_pool, sessions.pools.mem_pool
        self.use_mem_pool, self.release_mem_pool = sessions.pools.use_mem_pool, sessions.pools.release_mem_pool
        self.begin_allocate_to_pool = sessions.pools.begin_allocate_to_pool
        self.end_allocate_to_pool = sessions.pools.end_allocate_to_pool
        self.empty_own_cache, self.end_session = sessions.empty_own_cache, sessions.end_session

        self.history = reports.history
        self.memory_stats, self.memory_summary = reports.memory_stats, reports.memory_summary
        self.memory_snapshot = reports.memory_snapshot
        self.reset_peak, self.reset_accumulated = reports.reset_peak, reports.reset_accumulated
        self.record_memory_history, self.attach_observer = reports.record_memory_history, reports.attach_observer

    def abandon(self, owner: int) -> None:
        """Give back what a session that ends holds besides its tensors, and drop its history."""
        self.sessions.abandon(owner)
        self.reports.forget_history(owner)
