"""Statistics under the names of ``torch.cuda.memory_stats``.

What changes with every allocation lives in ledgers; this file counts segments and rare events, and turns both into
the flat table. Knows no blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from server.allocator.core.config import UNBOUNDED
from server.allocator.sessions.account import Flow
from server.allocator.sessions.ledger import (
    BYTES,
    COUNT,
    GROUPS,
    LARGE,
    REQUESTED,
    SMALL,
    SPLIT,
    SPLIT_BYTES,
    Ledger,
    field,
)

_AMOUNTS = ("current", "peak", "allocated", "freed")
# Statistic, its field in a ledger, and whether what waits for events counts.
_IN_USE = (
    ("allocation", COUNT, False),
    ("allocated_bytes", BYTES, False),
    ("active", COUNT, True),
    ("active_bytes", BYTES, True),
    ("requested_bytes", REQUESTED, True),
)
_INACTIVE = (("inactive_split", SPLIT), ("inactive_split_bytes", SPLIT_BYTES))
# What is derived from the ledgers, and so cannot be reset in place.
DERIVED = tuple(name for name, *_ in (*_IN_USE, *_INACTIVE))


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
        """All of it under flat names, with the average."""
        average = self.total // self.count if self.count else 0
        flat = {f"{name}.{part}": getattr(self, part) for part in self.__slots__}
        return flat | {f"{name}.avg": average}


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
        # Refused for a session's quota; the device was not asked.
        self.num_oom_rejections = 0

    def named(self) -> dict[str, Stat]:
        """All amounts kept here, by name."""
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
        """Peaks become what is there now."""
        for stat in self.named().values():
            stat.peak = stat.current

    def reset_accumulated(self) -> None:
        """Forget what was added and removed, and the counts of rare events."""
        for stat in self.named().values():
            stat.allocated = stat.freed = 0
        self.num_alloc_retries = self.num_ooms = self.num_sync_all_streams = 0
        self.num_device_alloc = self.num_device_free = self.num_oom_rejections = 0

    def table(self, max_split_size: int) -> dict[str, int]:
        """Everything kept here under its flat name."""
        flat = {f"{name}.{part}": getattr(stat, part) for name, stat in self.named().items() for part in _AMOUNTS}
        for counter in (name for name in vars(self) if name.startswith("num_")):
            flat[counter] = getattr(self, counter)
        flat["max_split_size"] = -1 if max_split_size == UNBOUNDED else max_split_size
        return flat


def amounts(name: str, stats: Iterable[Stat]) -> dict[str, int]:
    """Amounts of all, of the small and of the large pool under their flat names."""
    return {f"{name}.{group}.{part}": getattr(stat, part) for group, stat in zip(GROUPS, stats) for part in _AMOUNTS}


def ledger_table(ledger: Ledger, flow: Flow, left: Flow) -> dict[str, int]:
    """A ledger under flat names; ``left`` is what ceased to be an inactive split block."""
    flat: dict[str, int] = {}
    for group, name in enumerate(GROUPS):
        for statistic, current, peak, came in _in_use(ledger, flow, group):
            _put(flat, f"{statistic}.{name}", current, peak, came, came - current)
        for at, (statistic, which) in enumerate(_INACTIVE):
            current, gone = field(ledger.now, group, which), left.sums[group][at]
            _put(flat, f"{statistic}.{name}", current, field(ledger.peak, group, which), gone + current, gone)
    return flat


def _in_use(ledger: Ledger, flow: Flow, group: int) -> Iterator[tuple[str, int, int, int]]:
    for statistic, which, with_pending in _IN_USE:
        current = field(ledger.now, group, which)
        peak = field(ledger.peak if with_pending else ledger.allocated_peak, group, which)
        if not with_pending:
            current -= field(ledger.pending, group, which)
        yield statistic, current, peak, flow.sums[group][which]


def _put(flat: dict[str, int], key: str, *amounts: int) -> None:
    flat.update((f"{key}.{part}", amount) for part, amount in zip(_AMOUNTS, amounts))
