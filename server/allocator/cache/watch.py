"""Whether totals come again: what is seen of a program that repeats itself while nothing of it is remembered.

Where states of memory occur again, so do their totals, which are counted anyway. Totals that come again are evidence,
and no more: as many bytes may lie elsewhere. Knows numbers only.
"""

from __future__ import annotations

from typing import Final

FIRST_STREAK: Final = 512
"""So many totals in a row that were there before suggest that a program repeats itself."""
LONGEST_STREAK: Final = 1 << 16
"""Each time that this came to nothing takes twice as many the next time, up to this."""
_MOST: Final = 1 << 16
"""So many totals are kept, at 32 bytes and their place in a set; beyond that all are forgotten."""
_RECENT: Final = 256
"""As many totals at least are noted before one that comes again says anything: whatever takes memory for a moment
comes back to the totals from before."""


class Watch:
    """The totals that were seen lately, and those that were seen before."""

    __slots__ = ("_before", "_lately", "_left", "_streak", "_wanted")

    def __init__(self) -> None:
        self._before: set[int] = set()
        self._lately: set[int] = set()
        self._left = _RECENT
        self._streak = 0
        self._wanted = FIRST_STREAK

    def repeats(self, totals: int) -> bool:
        """Note totals; returns whether as many in a row as are wanted were there before."""
        number = hash(totals)
        self._left -= 1
        if not self._left:
            self._age()
        if number in self._before:
            self._streak += 1
            return self._streak >= self._wanted
        if number not in self._lately:
            self._lately.add(number)
            self._streak = 0
        return False

    def _age(self) -> None:
        self._left = _RECENT
        if len(self._before) >= _MOST:
            self._before.clear()
        self._before |= self._lately
        self._lately.clear()

    def spend(self) -> None:
        """Begin to count anew, and want twice as many."""
        self._streak = 0
        self._wanted = min(2 * self._wanted, LONGEST_STREAK)

    def prove(self) -> None:
        """Note that what came again was what it seemed."""
        self._wanted = FIRST_STREAK
