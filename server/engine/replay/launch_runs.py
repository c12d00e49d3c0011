"""Runs of launches that come again: captured as one when that pays, and made as one from then on.

A run is the same if all its launches are, with all their arguments: what was captured then does the same work on the
same memory, whatever happened in between. To capture one costs a host more than to make it once, and is of no use to a
device that has more than enough to do. So runs are captured that were met before, while the device is seen idle now and
then, and on credit that captured ones earn. Knows no CUDA and no operations: how a run is captured is given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from server.engine.device.interface import Capture

Entry: TypeAlias = tuple[Any, ...]
"""What performs a launch, then its arguments: the raw stream, and what else must be the same for it to be the same."""
Run: TypeAlias = tuple[Entry, ...]

_KEPT = 256
"""Captured runs."""
_SEEN = 1 << 14
_COST, _CREDIT = 4, 4 * _KEPT
"""To capture a run costs as much as so many launches of others earn; and there is no more credit than this."""
_RELIEF = 64
"""The credit that a rest brings."""
_URGE = 4
"""After a device was seen idle, so many runs that it was seen busy at are captured still."""


Capturing: TypeAlias = "Callable[[int, Callable[[], bool]], Capture | None]"
"""Given a raw stream and work, captures what the work launches there; None where that fails."""


class Runs:
    """The runs of one device."""

    __slots__ = ("_capture", "_captured", "_clock", "_credit", "_is_idle", "_seen", "_urge", "misses")

    def __init__(self, capture: Capturing, is_idle: Callable[[int], bool]) -> None:
        self._capture = capture
        self._is_idle = is_idle
        self._captured: dict[Run, _Captured] = {}
        self._seen: set[int] = set()
        self._clock = self._urge = 0
        self._credit = _CREDIT
        self.misses = 0
        """How many runs in a row were not made as one."""

    def make(self, run: Run) -> bool:
        """Make a run as it was captured, or capture it; False where nothing was done."""
        known = self._captured.get(run) or self._meet(run)
        if known is None or known.capture is None:
            self.misses += 1
            return False
        self._clock += 1
        known.used = self._clock
        if not known.capture.launch():
            known.capture = None
            return False
        self._credit = min(self._credit + 1, _CREDIT)
        self.misses = 0
        return True

    def relieve(self) -> None:
        """Give some credit: what comes now may be another program."""
        self.misses = 0
        self._credit = min(self._credit + _RELIEF, _CREDIT)

    def _meet(self, run: Run) -> _Captured | None:
        """What a run was captured as; None if it was not."""
        digest = hash(run)
        if digest not in self._seen:
            if len(self._seen) >= _SEEN:
                self._seen.clear()
            self._seen.add(digest)
            return None
        stream = run[0][1]
        self._urge = _URGE if self._is_idle(stream) else self._urge - 1
        if self._urge <= 0 or self._credit < _COST:
            return None
        if len(self._captured) >= _KEPT:
            self._forget_half()
        self._credit -= _COST
        found = self._captured[run] = _Captured(self._capture(stream, partial(_is_performed, run)))
        return found

    def _forget_half(self) -> None:
        """Forget the runs that have not come for the longest time."""
        latest = sorted(self._captured.items(), key=lambda item: item[1].used)[_KEPT // 2 :]
        self._captured = dict(latest)


class _Captured:
    """A captured run, or that it cannot be captured, and when it was last used."""

    __slots__ = ("capture", "used")

    def __init__(self, capture: Capture | None) -> None:
        self.capture = capture
        self.used = 0


def perform(run: Run) -> None:
    """Make launches one by one: all of them, though one fails; raises the first error then."""
    failed: Exception | None = None
    for launch, *arguments in run:
        try:
            launch(*arguments)
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed


def _is_performed(run: Run) -> bool:
    """Make launches while they are captured; tells whether that worked."""
    try:
        perform(run)
    except Exception as error:
        error.__traceback__ = None
        return False
    return True
