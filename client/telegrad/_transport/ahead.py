"""How far a session's queue is ahead of the server, and when the program has to wait for it.

What is ahead is bounded in seconds of measured work, so that a progress bar tells the truth. The server is asked for
reports, within the stream of instructions, once half of the bound is used; nobody waits for them, unless all of it is.
The round trip of the network comes in addition: it is what the connection's handshake took, or the least that an answer
has taken since. Knows neither transports nor messages.
"""

from __future__ import annotations

import math
import os
import threading
import time
from typing import Final

from telegrad_protocol.errors import ConfigurationError
from telegrad_protocol.pace import Pace

VARIABLE: Final = "TELEGRAD_MAX_AHEAD_SECONDS"
DEFAULT_SECONDS: Final = 1.0
UNMEASURED: Final = 16
"""How many instructions of unknown duration may be ahead."""
MOST_BETWEEN_REPORTS: Final = 1024
"""Reports are asked for after so many instructions at most, so that they tell soon that work takes longer."""


def max_ahead_seconds() -> float:
    """Return what the environment says about how far a queue may be ahead; raises ConfigurationError."""
    text = os.environ.get(VARIABLE) or str(DEFAULT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ConfigurationError(f"{VARIABLE}: expected a positive number of seconds or 'inf', got {text!r}")
    return seconds


GATHERED_SECONDS: Final = 0.001
"""Runs of programs are gathered for so long at most after others were sent."""
UNNOTICED: Final = 16
"""They may be gathered if so many times more was queued since the program last waited."""


class Ahead:
    """Counts the instructions of one session that were sent, and those known to be completed."""

    __slots__ = (
        "_asked", "_asked_up_to", "_batch_began", "_expected", "_handshake", "_is_bounded", "_learning", "pace",
    )  # fmt: skip

    def __init__(self, seconds: float) -> None:
        self.pace = Pace(seconds, UNMEASURED)
        self._is_bounded = seconds < math.inf
        self._expected: dict[int, tuple[int, float]] = {}
        """Numbers of reports that are expected; up to where each tells of completion, and when it was asked for."""
        self._asked: int | None = None
        """The report that the batch ends with which is about to be sent."""
        self._asked_up_to = 0
        self._learning = threading.Lock()
        self._handshake = self._batch_began = 0.0

    @property
    def limit(self) -> float:
        """The most instructions that may be ahead."""
        return self.pace.limit if self._is_bounded else math.inf

    @property
    def first_portion(self) -> int:
        """How many instructions of unknown duration are queued before they are sent."""
        return UNMEASURED // 2 if self._is_bounded else 1 << 30

    @property
    def is_reported(self) -> bool:
        """Whether a report is expected."""
        return bool(self._expected)

    def wants_report(self, submitted: int) -> bool:
        """Return whether to ask for a report after the instruction of this number."""
        pace = self.pace
        return (
            self._is_bounded
            and submitted - pace.completed > pace.limit // 2
            and submitted - self._asked_up_to >= min(int(pace.between_completions), MOST_BETWEEN_REPORTS)
        )

    def expect(self, report: int, submitted: int) -> None:
        """Note that a report was asked for after the instruction of number ``submitted``, at the end of a batch."""
        self._asked, self._asked_up_to = report, submitted
        self._expected[report] = (submitted, time.monotonic())

    def take_report(self, report: int) -> None:
        """Note that a report has arrived; numbers of other answers are ignored."""
        expected = self._expected.pop(report, None)
        if expected is not None:
            self.complete(*expected)

    def begin_batch(self, handshake: float) -> None:
        """Note that a batch is about to be sent, over a connection whose handshake took so many seconds."""
        if handshake != self._handshake:
            self._handshake = self.pace.delay = handshake
        self._batch_began = time.monotonic()

    def submit(self, submitted: int) -> None:
        """Note that instructions up to this number were sent, in the batch that was begun last.

        A report at its end is an instruction of its own, and so are changes of modes. It tells that they are completed,
        too: left over, they would count as work that the server had with what is sent later.
        """
        asked, self._asked = self._asked, None
        if asked is not None and asked in self._expected:
            self._asked_up_to = submitted
            self._expected[asked] = (submitted, self._expected[asked][1])
        self.pace.submit(submitted, self._batch_began)

    def room(self, most: int) -> int:
        """Return how many instructions, ``most`` or fewer, the program may queue before it looks whether to wait."""
        if not self._is_bounded:
            return most
        pace = self.pace
        portion, left = pace.portion, pace.limit - pace.submitted + pace.completed
        if portion < most:
            most = portion
        return most if most <= left else max(left, 0)

    def gathers(self, queued: int, unwaited: int) -> bool:
        """Return whether so many instructions may be sent later, with others: each batch has its price.

        Nobody notices where far more were queued since the program last waited, ``unwaited``, and the server has just
        been given work.
        """
        is_unnoticed = self._is_bounded and queued * UNNOTICED <= unwaited and self.room(queued) >= queued
        return is_unnoticed and time.monotonic() - self._batch_began < GATHERED_SECONDS

    def complete(self, submitted: int, asked: float) -> None:
        """Note that an answer has come to what was sent at the time ``asked``, or later.

        Instructions up to the number ``submitted`` are completed, or all but a few: a read may be answered a little
        before its turn.
        """
        with self._learning:  # another thread may have its own answer
            now, pace = time.monotonic(), self.pace
            if now - asked < pace.delay:
                pace.delay = now - asked
            pace.complete(submitted, now)

    def forget(self, submitted: int) -> None:
        """Take what follows the instruction of this number for work of unknown duration."""
        self.pace.forget(submitted)

    def is_full(self) -> bool:
        """Return whether the program has to wait before it queues more."""
        pace = self.pace
        ahead = pace.ahead
        if ahead < 2 or not self._is_bounded:
            return False
        expected = next(iter(self._expected.values()), None)
        return ahead >= (pace.limit if expected is None else pace.allowed(*expected, time.monotonic()))
