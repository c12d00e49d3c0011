"""How far one end of a queue of instructions is ahead of the other, in work that was measured. No I/O, no clock.

The sender counts what it submits, and learns now and then how much of that is completed. From both follows how long an
instruction takes lately, and so how many may be ahead. While that is not known only few may be, and the number grows
as completions come in. What the way there and back takes is no work: it is allowed in addition to work.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MEMORY_SECONDS: Final = 0.1
"""What was measured so long ago counts half in the time that an instruction takes."""
GROWTH: Final = 4
"""A completion raises the number of instructions that may be ahead by this factor at most."""
FEWEST: Final = 2
"""So many instructions may always be ahead: one is executed while the next one is on its way."""
MOST_SUBMISSIONS: Final = 1024
"""The times of so many submissions are kept; what is submitted after them counts as submitted long before."""
_LEAST_SECONDS: Final = 1e-6
"""No work is taken for quicker than this."""


class Pace:
    """Counts of instructions from the first on, ``submitted`` and ``completed``, and the most that may lie between.

    ``seconds`` of measured work may be ahead, and what is on its way; ``limit`` is that in instructions, and
    ``unmeasured`` as long as nothing was measured. ``delay`` is what passes between the submission of an instruction
    that takes no time and the news that it is completed. Times are of any clock, in seconds.
    """

    __slots__ = (
        "_count", "_learnt_at", "_measured_from", "_submissions", "_taken", "completed", "delay", "limit", "seconds",
        "submitted", "unmeasured",
    )  # fmt: skip

    def __init__(self, seconds: float, unmeasured: int, delay: float = 0.0) -> None:
        self.seconds, self.delay = seconds, delay
        self.limit = self.unmeasured = unmeasured
        self.submitted = self.completed = 0
        self._submissions: deque[tuple[int, float]] = deque()
        """Up to which instruction was submitted when; of what is not completed, and not of everything."""
        self._learnt_at = 0.0
        """When the last completion was learnt of."""
        self._measured_from = 0
        self._count = self._taken = 0.0

    @property
    def ahead(self) -> int:
        """The number of instructions that are submitted and not known to be completed."""
        return self.submitted - self.completed

    @property
    def portion(self) -> int:
        """How many instructions to submit at once at most, so that completions come in all the time."""
        if self._count:
            return int(self.limit * self.seconds / (self.seconds + self.delay) / 4) or 1
        return self.limit // 2 or 1

    @property
    def between_completions(self) -> float:
        """After how many instructions to learn of a completion at the latest, so that the limit is made use of."""
        return self.limit * self.seconds / (self.seconds + self.delay) / 4

    def submit(self, submitted: int, now: float) -> None:
        """Note that instructions up to this number are submitted."""
        if submitted > self.submitted and len(self._submissions) < MOST_SUBMISSIONS:
            self._submissions.append((submitted, now))
        self.submitted = submitted

    def complete(self, completed: int, now: float) -> None:
        """Note that instructions up to this number are completed; a number that was passed before changes nothing."""
        before = self.completed
        if completed > self.submitted:
            completed = self.submitted
        if completed <= before:
            return
        self.completed = completed
        count, taken = self._measure(before, now)
        self._learnt_at = now
        if before < self._measured_from:
            return
        keep = MEMORY_SECONDS / (MEMORY_SECONDS + taken)
        self._count = self._count * keep + count
        self._taken = self._taken * keep + taken
        measured = self._count / self._taken * (self.seconds + self.delay)
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
        silent = now - max(since + self.delay, self._learnt_at)
        if silent <= 0:
            return self.limit
        return max(FEWEST, int(min(self.limit, (expected - self.completed) * (self.seconds + self.delay) / silent)))

    def _measure(self, before: int, now: float) -> tuple[int, float]:
        """Return a number of instructions, of those completed after ``before``, and at most how long they have taken.

        Work on instructions begins after what came before them, and after they have arrived. Some may have arrived and
        been done long before the others, so up to half of them are left out where the rest shows a greater speed.
        """
        completed, learnt_at, delay = self.completed, self._learnt_at, self.delay
        count, taken = completed - before, now - learnt_at
        if taken < _LEAST_SECONDS:
            taken = _LEAST_SECONDS
        submissions, first = self._submissions, before
        while submissions and 2 * (completed - first) >= completed - before:
            last, submitted_at = submissions[0]
            begun = submitted_at + delay
            later, since = completed - first, now - (begun if begun > learnt_at else learnt_at)
            if since < _LEAST_SECONDS:
                since = _LEAST_SECONDS
            if later * taken > count * since:
                count, taken = later, since
            if last > completed:
                break
            submissions.popleft()
            first = last
        while submissions and submissions[0][0] <= completed:
            submissions.popleft()
        return count, taken
