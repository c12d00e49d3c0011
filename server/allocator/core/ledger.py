"""Running totals and their peaks, cheap enough for every allocation.

All totals of a device, or of a session, are one integer with a 48-bit field per total: an allocation adds a
precomputed charge, a free subtracts it, and one subtraction shows whether any field passed its ceiling (its peak so
far, or a quota). Only then are peaks taken. A field is at most 47 bits (128 TiB); its top bit is the guard that
a borrow clears. Knows nothing of blocks or pools.

Three groups of fields (all, small, large), in each: count and bytes in use, bytes requested, count and bytes of free
blocks whose segment is partly in use (inactive split).
"""

from __future__ import annotations

WIDTH = 48
FIELD = (1 << (WIDTH - 1)) - 1
COUNT, BYTES, REQUESTED, SPLIT, SPLIT_BYTES = range(5)
GROUP_WIDTH = 5 * WIDTH
ALL, SMALL, LARGE = range(3)
BYTES_IN_USE = ALL * GROUP_WIDTH + BYTES * WIDTH
"""From which bit on a ledger has the bytes in use of all blocks."""
GROUPS = ("all", "small_pool", "large_pool")
GUARDS = sum(1 << (WIDTH * field + WIDTH - 1) for field in range(15))
UNLIMITED = sum(FIELD << (WIDTH * field) for field in range(15))

_BOTH = {True: 1 | 1 << (SMALL * GROUP_WIDTH), False: 1 | 1 << (LARGE * GROUP_WIDTH)}


def in_use(size: int, requested: int, is_small: bool) -> int:
    """The charge of one block in use."""
    return (1 | size << (BYTES * WIDTH) | requested << (REQUESTED * WIDTH)) * _BOTH[is_small]


def inactive(count: int, size: int, is_small: bool) -> int:
    """The charge of ``count`` inactive split blocks of ``size`` bytes together; both may be negative."""
    return ((count << (SPLIT * WIDTH)) + (size << (SPLIT_BYTES * WIDTH))) * _BOTH[is_small]


def field(packed: int, group: int, which: int) -> int:
    """One total."""
    return packed >> (group * GROUP_WIDTH + which * WIDTH) & FIELD


def larger(one: int, other: int) -> int:
    """Field by field the larger of the two."""
    keep = _at_least(one, other)
    return one & keep | other & ~keep


def smaller(one: int, other: int) -> int:
    """Field by field the smaller of the two."""
    keep = _at_least(other, one)
    return one & keep | other & ~keep


def _at_least(one: int, other: int) -> int:
    """All ones in the fields where ``one`` is at least ``other``."""
    guards = ((one | GUARDS) - other) & GUARDS
    return guards - (guards >> (WIDTH - 1))


class Ledger:
    """Totals of what is in use and of what waits for events, with the peaks of both."""

    __slots__ = ("allocated_peak", "ceiling", "now", "peak", "pending", "quota", "resets")

    def __init__(self) -> None:
        self.now = 0
        # Freed by the user and still in use by a stream: the difference between active and allocated.
        self.pending = 0
        self.peak = 0
        self.allocated_peak = 0
        # How often the peaks were reset.
        self.resets = 0
        self.quota = UNLIMITED
        self.ceiling = GUARDS

    def add(self, charge: int) -> None:
        """Add a charge, which may be negative, and take the peaks if it passed one."""
        now = self.now = self.now + charge
        if (self.ceiling - now) & GUARDS != GUARDS:
            self.take_peaks()

    def pass_through(self, now: int) -> None:
        """Take the peaks of totals that were reached for a moment, ``now``; they stay only if they set a peak."""
        if (self.ceiling - now) & GUARDS != GUARDS:
            self.now = now
            self.take_peaks()

    def suspend(self, charge: int) -> None:
        """Count a charge as freed by the user but not yet reusable."""
        self.pending += charge
        self.take_peaks()

    def resume(self, charge: int, change: int) -> None:
        """End the suspension of a charge, and add what its end changes, as one step."""
        self.pending -= charge
        self.now += change
        self.take_peaks()

    def take_peaks(self) -> None:
        """Bring the peaks up to date and recompute the ceiling."""
        together = not self.pending and self.allocated_peak == self.peak
        ceiling = self.peak = larger(self.peak, self.now)
        if together:
            self.allocated_peak = self.peak
        else:
            self.allocated_peak = larger(self.allocated_peak, self.now - self.pending)
            ceiling = smaller(self.peak, self.allocated_peak + self.pending)
        if self.quota != UNLIMITED:
            ceiling = smaller(ceiling, self.quota)
        self.ceiling = ceiling | GUARDS

    def reset_peak(self) -> None:
        """Forget earlier peaks: they are what is in use now."""
        self.resets += 1
        self.peak = self.now
        self.allocated_peak = self.now - self.pending
        self.take_peaks()

    def limit(self, nbytes: int | None) -> None:
        """Set or lift the quota on the bytes in use."""
        self.quota = UNLIMITED
        if nbytes is not None:
            above = FIELD - min(nbytes, FIELD)
            self.quota = UNLIMITED - (above << (BYTES * WIDTH))
        self.take_peaks()
