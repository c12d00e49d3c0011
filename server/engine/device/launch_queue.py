"""The launches of a device, which wait for each other so that a sequence that comes again is launched as one graph.

To launch a kernel costs a host more than everything else about a small operation. Programs repeat themselves, and so
does their use of memory: the same kernels run on the same addresses, in the same order. So launches are not handed to
the device one by one. They wait until there are many, or until the host turns to something else; `LaunchSequences`
knows which sequences came before. Results do not depend on it: whoever looks at the device, or launches in any other
way, has ``flush`` called first. Knows no CUDA and no operations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any

from server.engine.in_c import launches as launches_in_c
from server.engine.replay.launch_sequences import Capturing, Launch, LaunchSequences, perform
from server.replay_policy import LAUNCH_SEQUENCES, LAUNCH_WAITING, REFUND, Limits, ReplayPolicy

from .current_device import on_its_device

FEW = 3
"""Sequences of fewer launches are not worth a graph."""
FIRST, MOST = 2, 64
"""How many launches wait at first, so that an idle device gets work at once, and how many at most."""


class NotALaunchError(Exception):
    """Launches are only noted, and something else was to be done."""


class LaunchQueue:
    """The launches of one device, in the order in which they were made.

    ``policy`` decides whether launches wait at all; it counts sequences that were launched as one, or in chains for the
    most part, as hits, others as misses, and flushes as the events of a cooldown. ``sequences`` decides what is
    captured. ``index`` is that of the device, which is made current for its launches. ``chains`` makes launches of
    kernels as graphs whose nodes are given other parameters each time, as `cuda.runtime.chains` says; None: all
    are made one by one.
    """

    __slots__ = (
        "_hits", "_is_allowed", "_is_noting", "chains", "full", "index", "is_open", "may_wait", "policy", "sequences",
        "waiting",
    )  # fmt: skip

    def __init__(
        self, capture: Capturing, is_idle: Callable[[int], bool], limits: Limits = LAUNCH_SEQUENCES, index: int = 0,
        chains: Any = None,
    ) -> None:  # fmt: skip
        self.index = index
        self.chains = chains
        self.sequences = LaunchSequences(capture, is_idle, limits)
        self.policy = ReplayPolicy(LAUNCH_WAITING)
        self.waiting: list[Launch] = []
        self.is_open = False
        """Whether a launch that is made now is to be appended to ``waiting``."""
        self.may_wait = False
        """Whether launches may wait at all: they are allowed to, and no cooldown is on."""
        self.full = FIRST
        """How many launches may wait; doubles each time that it is reached, until the next flush."""
        self._is_allowed = self._is_noting = False
        self._hits = 0

    def allow(self) -> None:
        """Let launches wait from here on; the caller sees to it that they are flushed."""
        self._is_allowed = True
        self.may_wait = not self.policy.cooldown

    def disallow(self) -> None:
        """Let no launch wait from here on; those that wait already still do."""
        self._is_allowed = self.may_wait = False

    def flush(self) -> None:
        """Make the launches that wait: before work of any other kind, before events, and before memory is freed."""
        if self._is_noting:
            raise NotALaunchError
        if self.waiting:
            self.full = FIRST
            self._make()
        elif self.policy.cooldown and self.policy.cool_down():
            self._resume()

    def end_cooldown(self) -> None:
        """Let launches wait again, where they are allowed to, although what came last did not repeat itself."""
        if self.policy.cooldown:
            self.policy.cooldown = 0
            self._resume()

    def _resume(self) -> None:
        self.sequences.policy.refund(REFUND)
        self.may_wait = self._is_allowed

    def launch(self, perform: Callable[..., None], *arguments: Any) -> None:
        """Call ``perform(*arguments)`` now, or append it to those that wait.

        The arguments are the raw stream, then everything else in which two launches may differ.
        """
        if self.is_open:
            self.waiting.append((perform, *arguments))
        else:
            perform(*arguments)

    def submit(self, perform: Callable[..., None], *arguments: Any) -> None:
        """Make a launch that does nothing but start a kernel, in its turn: now, or with those that wait.

        The arguments are as for ``launch``, from outside of what ``deferring`` has wrapped.
        """
        if not self.may_wait:
            if self.waiting:
                self.flush()
            perform(*arguments)
            return
        self.waiting.append((perform, *arguments))
        if len(self.waiting) >= self.full:
            self.full = min(2 * self.full, MOST)
            self._make()

    def forget(self, performs: Collection[Callable[..., None]]) -> None:
        """Drop what was captured of launches by these functions, which can be made no more."""
        self.flush()
        self.sequences.forget(performs)
        if self.chains is not None:
            self.chains.forget()

    def deferring(self, work: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        """Return ``work``, all of whose launches look at ``is_open``, with these waiting where they may."""
        in_c = launches_in_c.deferring(self, work)
        if in_c is not None:
            return in_c
        waiting = self.waiting

        def deferred(args: Any, outs: Any) -> None:
            if not self.may_wait:
                if waiting:
                    self.flush()
                work(args, outs)
                return
            before, self.is_open = self.is_open, True  # the work may run other operations
            try:
                work(args, outs)
            finally:
                self.is_open = before
            if len(waiting) >= self.full:
                self.full = min(2 * self.full, MOST)
                self._make()

        return deferred

    def at_once(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``work``, which uses the device in other ways too, run after a flush and with nothing waiting."""
        waiting = self.waiting

        def flushed(*args: Any) -> Any:
            if waiting or self._is_noting:
                self.flush()
            before = self.may_wait, self.is_open
            self.may_wait = self.is_open = False
            try:
                return work(*args)
            finally:
                self.may_wait, self.is_open = before

        return flushed

    def noted(self, work: Callable[[], bool]) -> tuple[Launch, ...] | None:
        """Return the launches that some work makes, of which none is made now; None where it does more, or fails.

        The work returns whether it was done; it is told by a `NotALaunchError` where it does more than launch.
        """
        self.flush()
        before = self.is_open, self.may_wait, self.full
        self.is_open = self.may_wait = self._is_noting = True
        self.full = sys.maxsize
        try:
            return tuple(self.waiting) if work() else None
        except NotALaunchError:
            return None
        finally:
            self.waiting.clear()
            self._is_noting = False
            self.is_open, self.may_wait, self.full = before

    @on_its_device
    def _make(self) -> None:
        """Make the launches that wait: as one graph if they were captured, in chains or one by one otherwise."""
        sequence = tuple(self.waiting)
        self.waiting.clear()
        before, self.is_open = self.is_open, False
        is_missed = False
        try:
            if len(sequence) < FEW:
                self._perform(sequence)
            elif self.sequences.replay(sequence):
                self._hits += 1
            else:
                chained = self._perform(sequence)
                self.sequences.note_made(len(sequence), chained)
                is_missed = 2 * chained < len(sequence)
                self._hits += not is_missed
        finally:
            self.is_open = before
        if is_missed:
            self._miss()

    def _perform(self, sequence: tuple[Launch, ...]) -> int:
        """Make launches one after the other, and return how many were made in chains; a traced queue notes each."""
        if self.chains is None:
            perform(sequence)
            return 0
        return self.chains.perform(sequence)  # type: ignore[no-any-return]

    def _miss(self) -> None:
        if self._hits:
            self.policy.hit(self._hits)
            self._hits = 0
        if self.policy.miss():
            self.may_wait = False


launches_in_c.prepare(LaunchQueue, MOST)
