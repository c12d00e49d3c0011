"""What the allocator counts: amounts with their peaks, the time that calls took, segments and rare events.

What changes with every allocation is counted by ledgers instead. Knows neither blocks nor pools.
"""

from __future__ import annotations

from server.allocator.core.ledger import ALL, GROUPS, LARGE, SMALL

AMOUNTS = ("current", "peak", "allocated", "freed")


class Stat:
    """One amount: now, at its peak, and everything that was ever added and removed."""

    __slots__ = AMOUNTS

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


class Duration:
    """How long calls of one kind took, in microseconds."""

    __slots__ = ("count", "max", "min", "total")

    def __init__(self) -> None:
        self.total = self.max = self.min = self.count = 0

    def note(self, seconds: float) -> None:
        """Count a call."""
        taken = int(seconds * 1e6)
        self.min = taken if not self.count else min(self.min, taken)
        self.max = max(self.max, taken)
        self.total += taken
        self.count += 1

    def table(self, name: str) -> dict[str, int]:
        """Return all figures under flat names, with the average."""
        average = self.total // self.count if self.count else 0
        flat = {f"{name}.{part}": getattr(self, part) for part in self.__slots__}
        return flat | {f"{name}.avg": average}


class Statistics:
    """Counts of segments, oversize blocks and rare events."""

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
        # Requests that were refused for a session's quota; the device was not asked.
        self.num_oom_rejections = 0

    def named(self) -> dict[str, Stat]:
        """Return all amounts kept here, by name."""
        amounts = {"oversize_allocations": self.oversize_allocations, "oversize_segments": self.oversize_segments}
        for group, name in enumerate(GROUPS):
            amounts[f"segment.{name}"] = self.segment[group]
            amounts[f"reserved_bytes.{name}"] = self.reserved_bytes[group]
        return amounts

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

    def map(self, nbytes: int, is_small: bool) -> None:
        """Count memory that was put behind addresses of an expandable segment."""
        self.num_device_alloc += 1
        for group in (0, SMALL if is_small else LARGE):
            self.reserved_bytes[group].increase(nbytes)

    def unmap(self, nbytes: int, is_small: bool) -> None:
        """Count memory that was taken away from addresses of an expandable segment."""
        self.num_device_free += 1
        for group in (0, SMALL if is_small else LARGE):
            self.reserved_bytes[group].decrease(nbytes)

    def reset_peak(self) -> None:
        """Set the peaks to the current amounts."""
        for stat in self.named().values():
            stat.peak = stat.current

    def reset_accumulated(self) -> None:
        """Forget what was added and removed, and the counts of rare events."""
        for stat in self.named().values():
            stat.allocated = stat.freed = 0
        self.num_alloc_retries = self.num_ooms = self.num_sync_all_streams = 0
        self.num_device_alloc = self.num_device_free = self.num_oom_rejections = 0


class Accumulated:
    """The blocks allocated since the start: their count, bytes and requested bytes, by pool."""

    __slots__ = ("sums",)

    def __init__(self) -> None:
        self.sums = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]

    def add(self, count: int, nbytes: int, requested: int, is_small: bool) -> None:
        """Add to one pool and to all."""
        for group in (ALL, SMALL if is_small else LARGE):
            sums = self.sums[group]
            sums[0] += count
            sums[1] += nbytes
            sums[2] += requested

    def add_all(self, other: Accumulated) -> None:
        """Add what another one has accumulated, field by field."""
        for mine, theirs in zip(self.sums, other.sums):
            mine[:] = [one + two for one, two in zip(mine, theirs)]
