"""Launches that wait for each other, so that a run of them that comes again is made as one.

To launch a kernel costs a host more than everything else about a small operation. Programs repeat themselves, and where
they do their memory does too: the same kernels on the same addresses, in the same order. So launches are not handed to
the device one by one. They wait until the host turns to something else, or until there are many; `launch_runs` knows
which runs came before. Nobody sees a difference but the clock: whoever looks at the device, or launches in any other
way, has ``flush`` called first. Knows no CUDA and no operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.engine.replay.launch_runs import Capturing, Entry, Runs, perform

FEW = 3
"""Runs of less than this are not worth a graph."""
FIRST, MOST = 2, 64
"""So many launches wait at first, and in the end: a device that has nothing to do gets something at once."""
_TIRED = 512
"""After so many runs in a row that were not made as one, launches do not wait for a while."""
_SHORT_REST, _LONG_REST = 64, 8192
"""For how many flushes: each time for twice as many, until a run is made as one."""


class Launches:
    """The launches of one device, in the order in which they were made."""

    __slots__ = ("_is_allowed", "_next_rest", "_rest", "_runs", "full", "is_open", "may_wait", "waiting")

    def __init__(self, capture: Capturing, is_idle: Callable[[int], bool]) -> None:
        self._runs = Runs(capture, is_idle)
        self.waiting: list[Entry] = []
        self.is_open = False
        """Whether a launch that is made now is to be appended to ``waiting``."""
        self.may_wait = False
        """Whether launches may wait at all: somebody sees to it that they are flushed."""
        self.full = FIRST
        """How many may wait."""
        self._is_allowed = False
        self._rest = 0
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
                self._runs.relieve()
                self.may_wait = self._is_allowed

    def launch(self, perform: Callable[..., None], *arguments: Any) -> None:
        """``perform`` a launch, given the raw stream and what else must be the same for it to be the same; or wait."""
        if self.is_open:
            self.waiting.append((perform, *arguments))
        else:
            perform(*arguments)

    def deferring(self, work: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        """``work`` that comes to the device by launches alone that look at ``is_open``: they may wait."""
        waiting = self.waiting

        def later(args: Any, outs: Any) -> None:
            if not self.may_wait:
                if waiting:
                    self.flush()
                work(args, outs)
                return
            before, self.is_open = self.is_open, True  # it may run other operations
            try:
                work(args, outs)
            finally:
                self.is_open = before
            if len(waiting) >= self.full:
                self.full = min(2 * self.full, MOST)
                self._make()

        return later

    def at_once(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """``work`` that comes to the device by other ways too: after what waits, and nothing waits meanwhile."""
        waiting = self.waiting

        def now(*args: Any) -> Any:
            if waiting:
                self.flush()
            before = self.may_wait, self.is_open
            self.may_wait = self.is_open = False
            try:
                return work(*args)
            finally:
                self.may_wait, self.is_open = before

        return now

    def _make(self) -> None:
        """Make what waits: by itself, or as one where that was captured."""
        run = tuple(self.waiting)
        self.waiting.clear()
        before, self.is_open = self.is_open, False
        try:
            if len(run) < FEW:
                perform(run)
            elif self._runs.make(run):
                self._next_rest = _SHORT_REST
            else:
                perform(run)
        finally:
            self.is_open = before
        if self._runs.misses >= _TIRED:
            self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, _LONG_REST)
            self._runs.misses, self.may_wait = 0, False
