"""Statistics under the names of ``torch.cuda.memory_stats``.

Turns ledgers and counters into the flat table. Knows no blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from server.allocator.core.config import UNBOUNDED
from server.allocator.core.counters import AMOUNTS, Accumulated, Stat, Statistics
from server.allocator.core.ledger import BYTES, COUNT, GROUPS, REQUESTED, SPLIT, SPLIT_BYTES, Ledger, field

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


def counter_table(statistics: Statistics, max_split_size: int) -> dict[str, int]:
    """Segments, oversize blocks and rare events under flat names."""
    flat = {f"{name}.{part}": getattr(stat, part) for name, stat in statistics.named().items() for part in AMOUNTS}
    for counter in (name for name in vars(statistics) if name.startswith("num_")):
        flat[counter] = getattr(statistics, counter)
    flat["max_split_size"] = -1 if max_split_size == UNBOUNDED else max_split_size
    return flat


def amounts(name: str, stats: Iterable[Stat]) -> dict[str, int]:
    """Amounts of all, of the small and of the large pool under their flat names."""
    return {f"{name}.{group}.{part}": getattr(stat, part) for group, stat in zip(GROUPS, stats) for part in AMOUNTS}


def ledger_table(ledger: Ledger, accumulated: Accumulated, left: Accumulated) -> dict[str, int]:
    """A ledger under flat names; ``left`` is what ceased to be an inactive split block."""
    flat: dict[str, int] = {}
    for group, name in enumerate(GROUPS):
        for statistic, current, peak, came in _in_use(ledger, accumulated, group):
            _put(flat, f"{statistic}.{name}", current, peak, came, came - current)
        for at, (statistic, which) in enumerate(_INACTIVE):
            current, gone = field(ledger.now, group, which), left.sums[group][at]
            _put(flat, f"{statistic}.{name}", current, field(ledger.peak, group, which), gone + current, gone)
    return flat


def _in_use(ledger: Ledger, accumulated: Accumulated, group: int) -> Iterator[tuple[str, int, int, int]]:
    for statistic, which, with_pending in _IN_USE:
        current = field(ledger.now, group, which)
        peak = field(ledger.peak if with_pending else ledger.allocated_peak, group, which)
        if not with_pending:
            current -= field(ledger.pending, group, which)
        yield statistic, current, peak, accumulated.sums[group][which]


def _put(flat: dict[str, int], key: str, *amounts: int) -> None:
    flat.update((f"{key}.{part}", amount) for part, amount in zip(AMOUNTS, amounts))
