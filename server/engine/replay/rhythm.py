"""Whether a program has begun to repeat itself, by what is seen of it without learning anything.

An allocator that has met other calls for a while remembers none until a cooldown is over, which may be thousands of
steps of the training that follows. A training shows a rhythm from its first steps on: from one backward pass or read to
the next there are as many operations as before, and as many tensors are left. That is enough to look again.

Launches that wait are no business of this: a training on sequences of all lengths has a rhythm, and no launches that
come again. They cool down for as long as a few steps take.
"""

from __future__ import annotations

from collections import deque
from typing import Final

FIRST_STREAK: Final = 16
"""So many beats in a row that were there before end a cooldown: eight steps of a pass and a read each."""
LONGEST_STREAK: Final = 4096
"""Each time that a cooldown was ended takes twice as many the next time, up to this."""
SETTLED: Final = 128
"""After so many operations of which none was new all that comes is taken to have come before."""
_REMEMBERED: Final = 8
"""With how many beats a new one is compared: a step may have a few reads."""


class Rhythm:
    """The beats of one session: its backward passes and reads."""

    __slots__ = ("_beats", "_last", "_streak", "wanted")

    def __init__(self) -> None:
        self._beats: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        self._last = self._streak = 0
        self.wanted = FIRST_STREAK
        """How many beats in a row must be like earlier ones."""

    def beat(self, number: int, held: int) -> bool:
        """Note a beat; returns whether so many have been like earlier ones that it is worth to look again.

        ``number`` is that of a tensor that was made lately, which counts operations, and ``held`` how many there are.
        """
        beat = number - self._last, held
        self._last = number
        self._streak = self._streak + 1 if beat in self._beats else 0
        self._beats.append(beat)
        return self._streak >= self.wanted

    def spend(self, has_ended: bool) -> None:
        """Begin to count anew; ``has_ended``: a cooldown was going on, and has ended."""
        self._streak = 0
        if has_ended:
            self.wanted = min(2 * self.wanted, LONGEST_STREAK)


class Settling:
    """Whether a program has come to what it computed before, told once each time that it has computed something new."""

    __slots__ = ("_is_told", "_plans", "_since")

    def __init__(self) -> None:
        self._plans = self._since = 0
        self._is_told = True

    def is_settled(self, number: int, plans: int) -> bool:
        """Return whether no plan was made for a while, the first time that this is so.

        ``number`` is that of a tensor that was made lately, and ``plans`` how many plans were made so far.
        """
        if plans != self._plans:
            self._plans, self._since, self._is_told = plans, number, False
        elif not self._is_told and number - self._since >= SETTLED:
            self._is_told = True
            return True
        return False
