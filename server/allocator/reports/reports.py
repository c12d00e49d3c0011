"""What people look at: statistics, the summary, snapshots, and the history of a device's allocator.

Reads the ledgers and the segments of the layers below, once they have brought them up to date. Knows nothing of
tensors.
"""

from __future__ import annotations

from typing import Any

from server.allocator.core.account import Account
from server.allocator.core.cache_layer import CacheLayer
from server.allocator.core.counters import Accumulated, Stat, Statistics
from server.allocator.reports.history import History, Observer
from server.allocator.reports.snapshot import take_snapshot
from server.allocator.reports.statistics import DERIVED, amounts, counter_table, ledger_table
from server.allocator.reports.summary import summarize


class Reports:
    """PyTorch's statistics, summary, snapshot and history of a stack of layers."""

    def __init__(self, below: CacheLayer) -> None:
        self._below = below
        self._core = below.core
        self._books = below.core.books
        self._heap = below.core.heap
        self._statistics = below.core.statistics
        self._max_split_size = below.core.config.max_split_size
        self.history = History()
        # The accumulated statistics of the device at their last reset.
        self._baseline: dict[str, int] = {}

    def memory_stats(self, owner: int | None = None) -> dict[str, int]:
        """Statistics under PyTorch's flat names, of the device or of one session."""
        table = self._lifetime_table(owner)
        for key, amount in self._baseline_of(owner).items():
            table[key] -= amount
        return dict(sorted(table.items()))

    def _baseline_of(self, owner: int | None) -> dict[str, int]:
        if owner is None:
            return self._baseline
        account = self._books.accounts.get(owner)
        return {} if account is None else account.baseline

    def _lifetime_table(self, owner: int | None) -> dict[str, int]:
        self._below.flush_totals()
        if owner is None:
            allocated = self._books.allocated()
            table = ledger_table(self._books.ledger, allocated, self._left())
            return table | counter_table(self._statistics, self._max_split_size) | self._private_table()
        account = self._books.accounts.get(owner) or Account(owner)
        account.collect_uses()
        own = Statistics()
        own.num_ooms, own.num_oom_rejections = account.num_ooms, account.num_rejections
        return ledger_table(account, account.accumulated, Accumulated()) | counter_table(own, self._max_split_size)

    def _private_table(self) -> dict[str, int]:
        table: dict[str, int] = {}
        for (first, second), private in self._heap.private.items():
            table |= amounts(f"reserved_bytes_by_private_pools.{first}_{second}", private.reserved)
        return table

    def _left(self) -> Accumulated:
        """What ceased to be an inactive split block; expandable segments count none."""
        left = Accumulated()
        for pool in self._heap.pools() if not self._core.config.expandable_segments else ():
            left.add(pool.ended_inactive_count, pool.ended_inactive_bytes, 0, pool.is_small)
        return left

    def _private_stats(self) -> list[Stat]:
        return [stat for private in self._heap.private.values() for stat in private.reserved]

    def memory_summary(self, owner: int | None = None, abbreviated: bool = False, shown_as: str = "") -> str:
        """The table of ``torch.cuda.memory_summary``, of the device or one session, under the name ``shown_as``."""
        return summarize(self.memory_stats(owner), shown_as or self._core.device, owner, abbreviated)

    def reset_peak(self, owner: int | None = None) -> None:
        """Let the peaks be what is there now."""
        self._below.flush_totals()
        if owner is None:
            self._books.ledger.reset_peak()
            self._statistics.reset_peak()
            for stat in self._private_stats():
                stat.peak = stat.current
        elif owner in self._books.accounts:
            self._books.accounts[owner].reset_peak()

    def reset_accumulated(self, owner: int | None = None) -> None:
        """Forget what was allocated and freed so far, and the counts of rare events."""
        if owner is None:
            self._statistics.reset_accumulated()
            for stat in self._private_stats():
                stat.allocated = stat.freed = 0
        elif owner in self._books.accounts:
            self._books.accounts[owner].num_ooms = self._books.accounts[owner].num_rejections = 0
        table = self._lifetime_table(owner)
        derived = [key for key in table if key.startswith(DERIVED) and key.endswith((".allocated", ".freed"))]
        baseline = self._baseline_of(owner)
        baseline.clear()
        baseline.update({key: table[key] for key in derived})

    def memory_snapshot(self, owner: int | None = None, with_traces: bool = True) -> dict[str, Any]:
        """Segments, blocks and trace in PyTorch's format; for one session, only what is its own is told."""
        if self.history.is_wanted:
            self.history.record("snapshot", 0, self._below.allocated_bytes(), 0, owner or 0)
        self._below.flush_deferred()
        self._heap.coalesce_deferred()
        segments, events = self._heap.segments.values(), self._core.events
        snapshot = take_snapshot(segments, self.history, self._core.config, events.__contains__, owner)
        return snapshot if with_traces else snapshot | {"device_traces": [[]]}

    def record_memory_history(
        self, enabled: str | None = "all", max_entries: int | None = None, owner: int | None = None, **options: Any
    ) -> None:
        """Keep a trace (``all``), only the frames of what is allocated (``state``), or nothing (None)."""
        self.history.record_memory_history(enabled, max_entries, owner, **options)
        self._update_trace()

    def forget_history(self, owner: int) -> None:
        """Drop what a session had recorded."""
        self.history.forget(owner)
        self._update_trace()

    def attach_observer(self, observer: Observer) -> None:
        """Have every allocation, free and segment told to ``observer`` as an entry of the history."""
        self.history.observers.append(observer)
        self._update_trace()

    def _update_trace(self) -> None:
        self._core.set_trace(self.history.record if self.history.is_wanted else None)
