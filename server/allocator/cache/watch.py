"""Signs of a program that repeats itself while nothing of it is remembered.

Where states of memory occur again, so do their totals, which are counted anyway, and the addresses of what is freed.
They are evidence, and no more: as many bytes may lie elsewhere. What a session holds comes again even sooner: before
memory lies where it will lie. A part of all frees is looked at, and always the same ones, as hashes of totals tell.
Knows numbers only.
"""

from __future__ import annotations

from typing import Final

from server.replay_policy import ReplayPolicy

OTHERS: Final = 3
"""The bits of a hash that are 0 where a free is looked at: one of four."""
FIRST_STREAK: Final = 128
"""So many frees in a row that were there before suggest that a program repeats itself."""
LONGEST_STREAK: Final = 1 << 14
"""Each time that this came to nothing takes twice as many the next time, up to this."""
NEW_BEFORE: Final = 4
"""Totals alone say something where as many times more have been new before: a program whose totals are always the
same anyway, such as one of short episodes, may use other memory for them each time."""
_MOST: Final = 1 << 16
"""So many hashes are kept, at 32 bytes and their place in a set; beyond that all are forgotten."""
_RECENT: Final = 64
"""As many frees at least are noted before one that comes again says anything: whatever takes memory for a moment
comes back to the totals from before."""

MOST_REASONS: Final = 1 << 12
"""So many reasons to look again are wanted at most."""
_FAILURE: Final = 1 << 11
"""To look again has come to nothing after so many misses without a hit."""


class Reasons:
    """Counts reasons to look again that others have seen: one is enough, unless the last ones came to nothing.

    Then twice as many are wanted as the last time.
    """

    __slots__ = ("_before", "_count", "_policy", "_wanted")

    def __init__(self, policy: ReplayPolicy) -> None:
        self._policy = policy
        self._count, self._wanted = 0, 1
        self._before = 0, 0
        """The hits and the misses of the policy when there were enough."""

    def suffice(self) -> bool:
        """Count one; returns whether there are enough, and begins anew if so."""
        policy, (hits, misses) = self._policy, self._before
        if policy.hits > hits or policy.misses - misses < _FAILURE:
            self._count, self._wanted = 0, 1
        self._count += 1
        if self._count < self._wanted:
            return False
        self._count, self._wanted = 0, min(2 * self._wanted, MOST_REASONS)
        self._before = policy.hits, policy.misses
        return True


class Watch:
    """The hashes of frees that were seen lately, and those that were seen before.

    ``new_before`` times as many as come again in a row must have been new since that was last the case.
    """

    __slots__ = ("_before", "_lately", "_left", "_new", "_new_before", "_streak", "_wanted")

    def __init__(self, new_before: int = 0) -> None:
        self._before: set[int] = set()
        self._lately: set[int] = set()
        self._left = _RECENT
        self._new = self._streak = 0
        self._new_before = new_before
        self._wanted = FIRST_STREAK

    def repeats(self, number: int) -> bool:
        """Note a free; returns whether as many in a row as are wanted were there before, and begins anew if so."""
        self._left -= 1
        if not self._left:
            self._age()
        if number in self._before:
            self._streak += 1
            return self._streak >= self._wanted and self._new >= self._new_before * self._wanted and self._spend()
        if number not in self._lately:
            self._lately.add(number)
            self._streak = 0
            self._new += 1
        return False

    def _age(self) -> None:
        self._left = _RECENT
        if len(self._before) >= _MOST:
            self._before.clear()
        self._before |= self._lately
        self._lately.clear()

    def _spend(self) -> bool:
        """Begin to count anew, and want twice as many."""
        self._new = self._streak = 0
        self._wanted = min(2 * self._wanted, LONGEST_STREAK)
        return True

    def prove(self) -> None:
        """Note that what came again was what it seemed."""
        self._wanted = FIRST_STREAK


class Signs:
    """Frees that are watched: by a device's totals and addresses, and by what a session holds alone.

    Those are watched whose hash of what the session holds has no bit of ``OTHERS``.
    """

    __slots__ = ("_in_place", "_of_session")

    def __init__(self) -> None:
        self._in_place, self._of_session = Watch(), Watch(NEW_BEFORE)

    def note(self, held: int, totals: int, pointer: int) -> bool:
        """Note a free by the hash of what its session holds, the device's totals after it, and where it was.

        Returns whether there are signs of repetition.
        """
        is_in_place = self._in_place.repeats(hash((totals, pointer)))
        return self._of_session.repeats(held) or is_in_place

    def prove(self) -> None:
        """Note that what came again was what it seemed."""
        self._in_place.prove()
        self._of_session.prove()
