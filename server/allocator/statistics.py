"""Statistics under the names of ``torch.cuda.memory_stats``.

What changes with every allocation lives in ledgers; this file counts segments and rare events, and turns both into
the flat table. Knows no blocks.
"""

from __future__ import annotations

from server.allocator.ledger import LARGE, SMALL

_AMOUNTS = ("current", "peak", "allocated", "freed")


class Stat:
    """One amount: now, at its peak, and everything that was ever added and removed."""

    __slots__ = _AMOUNTS

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def increase(self, amount: int) -> None:
        """Add an amount."""
        self.current += amount
        self.allocated += amount
        self.peak = max(self.peak, self.current)

    def decrease(self, amount: int) -> None:
        """Remove an amount."""
        self.current -= amount
        self.freed += amount


class Statistics:
    """Segments, oversize blocks, and what happens rarely."""

    def __init__(self) -> None:
        self.segment = [Stat(), Stat(), Stat()]
        self.reserved_bytes = [Stat(), Stat(), Stat()]
        self.oversize_allocations = Stat()
        self.oversize_segments = Stat()
        self.num_alloc_retries = 0
        self.num_ooms = 0
        self.num_sync_all_streams = 0
        self.num_device_alloc = 0
        self.num_device_free = 0

    def stats(self) -> list[Stat]:
        """All amounts kept here."""
        return [*self.segment, *self.reserved_bytes, self.oversize_allocations, self.oversize_segments]

    def add_segment(self, nbytes: int, is_small: bool, is_oversize: bool) -> None:
        """Count a segment that came from the upstream."""
        self.num_device_alloc += 1
        for group in (0, SMALL if is_small else LARGE):
            self.segment[group].increase(1)
            self.reserved_bytes[group].increase(nbytes)
        if is_oversize:
            self.oversize_segments.increase(1)

    def remove_segment(self, nbytes: int, is_small: bool, is_oversize: bool) -> None:
        """Count a segment that went back to the upstream."""
        self.num_device_free += 1
        for group in (0, SMALL if is_small else LARGE):
            self.segment[group].decrease(1)
            self.reserved_bytes[group].decrease(nbytes)
        if is_oversize:
            self.oversize_segments.decrease(1)

    def reset_peak(self) -> None:
        """Peaks become what is there now."""
        for stat in self.stats():
            stat.peak = stat.current

    def reset_accumulated(self) -> None:
        """Forget what was added and removed, and the counts of rare events."""
        for stat in self.stats():
            stat.allocated = stat.freed = 0
        self.num_alloc_retries = self.num_ooms = self.num_sync_all_streams = 0
        self.num_device_alloc = self.num_device_free = 0
