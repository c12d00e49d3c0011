"""Launches that wait for each other, so that a run of them that comes again is made as one.

To launch a kernel costs a host more than everything else about a small operation. Programs repeat themselves, and where
they do their memory does too: the same kernels on the same addresses, in the same order. So launches are not handed to
the device one by one. They wait until the host turns to something else, or until there are many; a run of them that was
met before is captured, and from then on launched at once. Nobody sees a difference but the clock: whoever looks at the
device, or launches in any other way, has ``flush`` called first.

Knows no CUDA and no operations: how a run is captured is given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias

Entry: TypeAlias = tuple[Any, ...]
"""What performs a launch, then its arguments: the raw stream, and what else must be the same for it to be the same."""
Run: TypeAlias = tuple[Entry, ...]

FEW = 3
"""Runs of less than this are not worth a graph."""
FIRST, MOST = 2, 64
"""So many launches wait at first, and in the end: a device that has nothing to do gets something at once."""
_KEPT = 256
"""Captured runs."""
_SEEN = 1 << 14
_COST, _CREDIT = 4, 4 * _KEPT
"""Runs may be captured as long as there is credit: to capture one costs as much as so many launches of others earn."""
_TIRED, _RELIEF = 512, 64
"""After so many runs in a row that were new, launches do not wait for a while; then there is so much credit more."""
_SHORT_REST, _LONG_REST = 64, 8192
"""For how many flushes launches do not wait: each time for twice as many, until a run comes again."""


class Capture(Protocol):
    """A run that was captured."""

    def launch(self) -> bool:
        """Make it; False where the device refuses, and nothing was done."""


Capturing: TypeAlias = "Callable[[int, Callable[[], bool]], Capture | None]"
"""Given a raw stream and work, captures what the work launches there; None where that fails."""


class Launches:
    """The launches of one device, in the order in which they were made."""

    __slots__ = (
        "_capture", "_captured", "_clock", "_credit", "_is_allowed", "_misses", "_next_rest", "_rest", "_seen",
        "full", "is_open", "may_wait", "waiting",
    )  # fmt: skip

    def __init__(self, capture: Capturing) -> None:
        self._capture = capture
        self.waiting: list[Entry] = []
        self.is_open = False
        """Whether a launch that is made now is to be appended to ``waiting``."""
        self.may_wait = False
        """Whether launches may wait at all: somebody sees to it that they are flushed."""
        self.full = FIRST
        """How many may wait."""
        self._is_allowed = False
        self._captured: dict[Run, _Captured] = {}
        self._seen: set[int] = set()
        self._clock = self._misses = self._rest = 0
        self._credit = _CREDIT
        self._next_rest = _SHORT_REST

    def allow(self) -> None:
        """Let launches wait from here on."""
        self._is_allowed = True
        self.may_wait = not self._rest

    def disallow(self) -> None:
        """Let no launch wait from here on, but for those that do."""
        self._is_allowed = self.may_wait = False

    def flush(self) -> None:
        """Make the launches that wait. Who launches by himself, records an event, or frees memory calls this first."""
        if self.waiting:
            self.full = FIRST
            self._make()
        elif self._rest:
            self._rest -= 1
            if not self._rest:
                self._credit += _RELIEF
                self.may_wait = self._is_allowed

    def make_full(self) -> None:
        """Make the launches that wait because there are many; the next time there may be more."""
        self.full = min(2 * self.full, MOST)
        self._make()

    def _make(self) -> None:
        run = tuple(self.waiting)
        self.waiting.clear()
        before, self.is_open = self.is_open, False
        try:
            if len(run) < FEW or not self._repeat(run):
                perform(run)
        finally:
            self.is_open = before

    def _repeat(self, run: Run) -> bool:
        """Make a run as it was captured, or capture it if it comes again; False where nothing was done."""
        known = self._captured.get(run) or self._meet(run)
        if known is None or known.capture is None:
            return False
        self._clock += 1
        known.used = self._clock
        if not known.capture.launch():
            known.capture = None
            return False
        self._credit = min(self._credit + 1, _CREDIT)
        self._misses, self._next_rest = 0, _SHORT_REST
        return True

    def _meet(self, run: Run) -> _Captured | None:
        """What a run was captured as, if it comes for the second time and may come again; None if it was not."""
        digest = hash(run)
        if digest not in self._seen or self._credit < _COST:
            self._miss(digest)
            return None
        if len(self._captured) >= _KEPT:
            self._forget_half()
        self._credit -= _COST
        found = self._captured[run] = _Captured(self._capture(run[0][1], partial(_is_performed, run)))
        return found

    def _miss(self, digest: int) -> None:
        if len(self._seen) >= _SEEN:
            self._seen.clear()
        self._seen.add(digest)
        self._misses += 1
        if self._misses >= _TIRED:
            self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, _LONG_REST)
            self._misses, self.may_wait = 0, False

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
