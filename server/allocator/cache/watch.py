"""Signs of a program that repeats itself while nothing of it is remembered.

Where states of memory occur again, so do their totals, which are counted anyway, and the addresses of what is freed.
They are evidence, and no more: as many bytes may lie elsewhere. What a session holds comes again even sooner: before
memory lies where it will lie. A part of all frees is looked at, and always the same ones, as hashes of totals tell.
Knows numbers only.
"""

from __future__ import annotations

from typing import Final

OTHERS: Final = 3
"""The bits of a hash that are 0 where a free is looked at: one of four."""
FIRST_STREAK: Final = 128
"""So many frees in a row that were there before suggest that a program repeats itself."""
LONGEST_STREAK: Final = 1 << 14
"""Each time that this came to nothing takes twice as many the next time, up to this."""
NEW_BEFORE: Final = 4
"""Totals alone say something where as many times more have been new before: a program whose totals are always the
same anyway, such as one of short episodes, may use other memory for them each time."""
LEAST_LOOK: Final = 1024
"""So many names and calls of the second round at least are looked at before what was learnt is given up."""
_MOST: Final = 1 << 16
"""So many hashes are kept, at 64 bytes and their place in a dict; beyond that all are forgotten."""
_RECENT: Final = 64
"""As many frees at least are noted before one that comes again says anything: whatever takes memory for a moment
comes back to the totals from before."""


class Watch:
    """The hashes of frees that were seen lately, and those that were seen before.

    ``new_before`` times as many as come again in a row must have been new since that was last the case.
    """

    __slots__ = ("_before", "_count", "_lately", "_left", "_new", "_new_before", "_round", "_streak", "_wanted")

    def __init__(self, new_before: int = 0) -> None:
        self._before: dict[int, int] = {}
        self._lately: dict[int, int] = {}
        self._left = _RECENT
        self._count = self._new = self._streak = self._round = 0
        self._new_before = new_before
        self._wanted = FIRST_STREAK

    def repeats(self, number: int) -> int:
        """Note a free; returns 0, or after how many frees they come again, where as many in a row as are wanted do.

        From there on it begins to count anew.
        """
        self._left -= 1
        self._count = count = self._count + 1
        if not self._left:
            self._age()
        at = self._before.get(number)
        if at is not None:
            self._before[number] = count
            self._round = max(self._round, count - at)  # some come again sooner, in the same round
            self._streak += 1
            is_sign = self._streak >= self._wanted and self._new >= self._new_before * self._wanted
            return self._spend() if is_sign else 0
        if number not in self._lately:
            self._lately[number] = count
            self._streak = self._round = 0
            self._new += 1
        return 0

    def _age(self) -> None:
        self._left = _RECENT
        if len(self._before) >= _MOST:
            self._before.clear()
        self._before |= self._lately
        self._lately.clear()

    def _spend(self) -> int:
        """Begin to count anew, and want twice as many; returns the length of a round."""
        length = self._round
        self._new = self._streak = self._round = 0
        self._wanted = min(2 * self._wanted, LONGEST_STREAK)
        return length

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

    def note(self, held: int, totals: int, pointer: int) -> int:
        """Note a free by the hash of what its session holds, the device's totals after it, and where it was.

        Returns after how many calls, about, the program repeats itself where there are signs of that, else 0.
        """
        in_place = self._in_place.repeats(hash((totals, pointer)))
        return max(self._of_session.repeats(held), in_place) * (OTHERS + 1) * 2  # as many blocks are allocated

    def prove(self) -> None:
        """Note that what came again was what it seemed."""
        self._in_place.prove()
        self._of_session.prove()


class Trial:
    """Whether states come again, once a program that showed signs of repetition has come round since then.

    ``names`` is how many names of states are kept, and ``misses`` how many names and calls were noted in all.
    """

    __slots__ = ("_from", "_names", "_until")

    def __init__(self) -> None:
        self._from = self._until = self._names = 0

    def begin(self, misses: int, calls: int) -> None:
        """Begin to learn from a program that comes round after so many calls, or a few more."""
        self._from = misses + calls + calls // 4
        self._until = self._from + max(calls // 4, LEAST_LOOK)
        self._names = 0

    def has_failed(self, misses: int, names: int) -> bool:
        """Look at what has been noted so far; returns whether nearly all of it was new in the second round, too."""
        if not self._until or misses < self._from:
            return False
        if not self._names:
            self._names, self._from = names, misses
        if misses < self._until:
            return False
        self._until = 0
        return (names - self._names) * 4 > (misses - self._from) * 3
