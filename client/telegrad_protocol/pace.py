"""How far one end of a queue of instructions is ahead of the other, in work that was measured. No I/O, no clock.

The sender counts what it submits, and learns now and then how much of that is completed. From both follows how long an
instruction takes lately, and so how many may be ahead. While that is not known only few may be, and the number grows
as completions come in.
"""

from __future__ import annotations

from typing import Final

MEMORY_SECONDS: Final = 0.1
"""What was measured so long ago counts half in the time that an instruction takes."""
GROWTH: Final = 4
"""A completion raises the number of instructions that may be ahead by this factor at most."""
FEWEST: Final = 2
"""So many instructions may always be ahead: one is executed while the next one is on its way."""


class Pace:
    """Counts of instructions from the first on, ``submitted`` and ``completed``, and the most that may lie between.

    ``seconds`` of measured work may be ahead; ``limit`` is that in instructions, and ``unmeasured`` as long as nothing
    was measured. Times are of any clock, in seconds.
    """

    __slots__ = (
        "_busy_since", "_count", "_measured_from", "_taken", "completed", "limit", "seconds", "submitted", "unmeasured",
    )  # fmt: skip

    def __init__(self, seconds: float, unmeasured: int) -> None:
        self.seconds = seconds
        self.limit = self.unmeasured = unmeasured
        self.submitted = self.completed = 0
        self._busy_since = 0.0
        self._measured_from = 0
        self._count = self._taken = 0.0

    @property
    def ahead(self) -> int:
        """The number of instructions that are submitted and not known to be completed."""
        return self.submitted - self.completed

    @property
    def portion(self) -> int:
        """How many instructions to submit at once at most, so that completions come in all the time."""
        return max(self.limit // (4 if self._count else 2), 1)

    def submit(self, submitted: int, now: float) -> None:
        """Note that instructions up to this number are submitted."""
        if self.completed >= self.submitted:
            self._busy_since = now
        self.submitted = submitted

    def complete(self, completed: int, now: float) -> None:
        """Note that instructions up to this number are completed; a number that was passed before changes nothing."""
        before, self.completed = self.completed, max(self.completed, min(completed, self.submitted))
        count = self.completed - before
        if not count:
            return
        taken, self._busy_since = max(now - self._busy_since, 1e-6), now
        if before < self._measured_from:
            return
        keep = MEMORY_SECONDS / (MEMORY_SECONDS + taken)
        self._count = self._count * keep + count
        self._taken = self._taken * keep + taken
        measured = self._count / self._taken * self.seconds
        self.limit = max(FEWEST, int(min(measured, GROWTH * max(self.limit, count))))

    def forget(self, submitted: int) -> None:
        """Measure anew from the instruction of this number on: how long later ones take is not known."""
        self._count = self._taken = 0.0
        self._measured_from = submitted
        self.limit = self.unmeasured

    def allowed(self, expected: int, since: float, now: float) -> int:
        """Return how many instructions may be ahead: fewer than ``limit`` where a completion is overdue.

        The completion up to number ``expected`` was to be told of at the time ``since`` or later, when it happens.
        """
        silent = now - max(since, self._busy_since)
        if silent <= 0:
            return self.limit
        return max(FEWEST, int(min(self.limit, (expected - self.completed) * self.seconds / silent)))
