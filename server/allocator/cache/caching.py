"""The caching allocator of one device: blocks for the engine, and what people look at.

Puts statistics, summary, snapshot and history on top of the cache of blocks. Knows nothing of tensors.
"""

from __future__ import annotations

from typing import Any

from server.allocator.reports.history import Observer
from server.allocator.reports.snapshot import picture
from server.allocator.reports.statistics import DERIVED, Stat, Statistics, amounts, ledger_table
from server.allocator.reports.summary import summarize
from server.allocator.sessions.account import Account, Flow
from server.allocator.sessions.tenants import SharedCache


class CachingAllocator(SharedCache):
    """The cache of a device's blocks with PyTorch's statistics, summary, snapshot and history."""

    def memory_stats(self, owner: int | None = None) -> dict[str, int]:
        """Statistics under PyTorch's flat names, of the device or of one session."""
        table = self._lifetime_table(owner)
        for key, amount in self._baselines.get(owner, {}).items():
            table[key] -= amount
        return dict(sorted(table.items()))

    def _lifetime_table(self, owner: int | None) -> dict[str, int]:
        self.reckon()
        if owner is None:
            flow, left = self._flows()
            table = ledger_table(self._ledger, flow, left) | self.statistics.table(self.config.max_split_size)
            return table | self._private_table()
        account = self._accounts.get(owner) or Account(owner)
        account.fold()
        elsewhere = Statistics()
        elsewhere.num_ooms, elsewhere.num_oom_rejections = account.num_ooms, account.num_rejections
        return ledger_table(account, account.flow, Flow()) | elsewhere.table(self.config.max_split_size)

    def _private_table(self) -> dict[str, int]:
        table: dict[str, int] = {}
        for (first, second), private in self.policy.private.items():
            table |= amounts(f"reserved_bytes_by_private_pools.{first}_{second}", private.reserved)
        return table

    def _flows(self) -> tuple[Flow, Flow]:
        """What all sessions allocated, and what ceased to be an inactive split block."""
        flow, left = Flow(), Flow()
        flow.add_flow(self._flow)
        for account in self._accounts.values():
            account.fold()
            flow.add_flow(account.flow)
        for pool in self.policy.pools() if not self._expands else ():
            left.add(pool.left_count, pool.left_bytes, 0, pool.is_small)
        return flow, left

    def _private_stats(self) -> list[Stat]:
        return [stat for private in self.policy.private.values() for stat in private.reserved]

    def memory_summary(self, owner: int | None = None, abbreviated: bool = False) -> str:
        """The table of ``torch.cuda.memory_summary``, of the device or of one session."""
        return summarize(self.memory_stats(owner), self.device, owner, abbreviated)

    def reset_peak(self, owner: int | None = None) -> None:
        """Let the peaks be what is there now."""
        self.reckon()
        if owner is None:
            self._ledger.reset_peak()
            self.statistics.reset_peak()
            for stat in self._private_stats():
                stat.peak = stat.current
        elif owner in self._accounts:
            self._accounts[owner].reset_peak()

    def reset_accumulated(self, owner: int | None = None) -> None:
        """Forget what was allocated and freed so far, and the counts of rare events."""
        if owner is None:
            self.statistics.reset_accumulated()
            for stat in self._private_stats():
                stat.allocated = stat.freed = 0
        elif owner in self._accounts:
            self._accounts[owner].num_ooms = self._accounts[owner].num_rejections = 0
        table = self._lifetime_table(owner)
        derived = (key for key in table if key.startswith(DERIVED) and key.endswith((".allocated", ".freed")))
        self._baselines[owner] = {key: table[key] for key in derived}

    def memory_snapshot(self, owner: int | None = None, with_traces: bool = True) -> dict[str, Any]:
        """Segments, blocks and trace in PyTorch's format; for one session, only what is its own is told."""
        if self.history.is_wanted:
            self.history.record("snapshot", 0, self.allocated_bytes(), 0, owner or 0)
        self.catch_up()
        self.policy.settle()
        found = picture(
            self.policy.segments.values(), self.history, self.config, lambda block: block in self._events, owner
        )
        return found if with_traces else found | {"device_traces": [[]]}

    def record_memory_history(
        self, enabled: str | None = "all", max_entries: int | None = None, owner: int | None = None, **options: Any
    ) -> None:
        """Keep a trace (``all``), only the frames of what is allocated (``state``), or nothing (None)."""
        self.history.record_memory_history(enabled, max_entries, owner, **options)
        self._watch()

    def attach_observer(self, observer: Observer) -> None:
        """Have every allocation, free and segment told to ``observer`` as an entry of the history."""
        self.history.observers.append(observer)
        self._watch()

    def mem_get_info(self) -> tuple[int, int]:
        """Free and total bytes of the device."""
        return self.upstream.free_and_total()
