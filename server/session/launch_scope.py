"""When launches on a session's devices may wait for each other, and how many may wait for the devices.

For each other launches wait from one call to the next, within a run. For the devices no more wait than these do in a
short time: what is launched cannot be taken back, so an interrupt has to wait for it. The rest stays in the queue of
instructions. Knows instructions by their types, and devices only by what backends offer for this.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from server.engine.context import Context
from server.engine.device.interface import Mark
from server.engine.value import Backend
from telegrad_protocol import messages
from telegrad_protocol.pace import Pace

from .programs.ending import STRETCHES

Handler = Callable[[Any], "int | None"]
_IN_TURN: frozenset[type] = frozenset(
    (
        messages.Free, messages.Site, messages.Mode, messages.Describe, messages.Resume, messages.Interrupt,
        messages.LaunchKernel, messages.CallExtension, *STRETCHES,
    )
)  # fmt: skip
"""Instructions that ask nothing of a device, that launch in their turn, or that make what waits launch themselves.

The mode that changes the stream ends waiting by itself.
"""
AHEAD_SECONDS: Final = 0.05
"""So much measured work may be launched ahead: many times what passes until the worker's loop looks again."""
UNMEASURED: Final = 64
"""How many instructions may be launched ahead while nothing was measured."""
MOST_BETWEEN_MARKS: Final = 1024


class LaunchScope:
    """The devices of a session that queue launches: all but the host's."""

    __slots__ = ("backends",)

    def __init__(self, backends: Iterable[Backend]) -> None:
        self.backends = [backend for backend in backends if backend.device.type != "cpu"]

    def enter(self, ctx: Context) -> None:
        """Let devices work for the session of ``ctx`` from here on."""
        for backend in self.backends:
            backend.enter(ctx)

    def leave(self, ctx: Context) -> None:
        """Release what devices keep for the session of ``ctx``, which has ended."""
        for backend in self.backends:
            backend.leave(ctx)

    def allow_waiting(self) -> None:
        """Let launches wait from here on."""
        for backend in self.backends:
            backend.allow_waiting()

    def end_waiting(self, flush: bool) -> None:
        """Launch at once from here on; with ``flush`` also what waits, which may wait for the session's next turn."""
        for backend in self.backends:
            backend.end_waiting()
            if flush:
                backend.flush()

    def guarded(self, handlers: dict[type, Handler]) -> dict[type, Handler]:
        """Wrap the handlers that may reach a device by other ways than launches, so that no launch waits there."""
        if not self.backends:
            return handlers
        return {
            kind: handler if kind in _IN_TURN else self._after_launches(handler) for kind, handler in handlers.items()
        }

    def _after_launches(self, handler: Handler) -> Handler:
        def run(instruction: Any) -> int | None:
            self.end_waiting(flush=True)
            try:
                return handler(instruction)
            finally:
                self.allow_waiting()

        return run


class LaunchedAhead:
    """Marks what one session launches on ``backends``, and measures by the marks how fast the devices come along.

    ``launched`` counts the instructions that were executed, which may have launched something; whoever raises it to
    ``due`` calls ``mark``.
    """

    __slots__ = (
        "_backends", "_context", "_device_seconds", "_marks", "_seen_busy", "due", "launched", "most", "pace",
    )  # fmt: skip

    def __init__(self, backends: Sequence[Backend], context: Context) -> None:
        self._device_seconds = self._seen_busy = 0.0
        self.pace = Pace(AHEAD_SECONDS, UNMEASURED)
        self.launched = 0
        self.most = sys.maxsize
        """How many instructions may be ahead, however fast the devices are."""
        self._backends = backends
        self._context = context
        self._marks: deque[tuple[int, float, list[Mark]]] = deque()
        self._await_mark()

    @property
    def is_full(self) -> bool:
        """Whether the devices have enough to do."""
        ahead = self.launched - self.pace.completed
        return ahead >= self.pace.limit or ahead >= self.most

    @property
    def room(self) -> int:
        """How many instructions may be executed in a row from here on: one at least."""
        return max(self.most - self.launched + self.pace.completed, 1)

    @property
    def unfinished(self) -> int:
        """How many instructions were executed that the devices are not known to have completed; 0 without a GPU."""
        return self.launched - self.pace.completed if self._backends else 0

    def _await_mark(self) -> None:
        self.due = self.launched + min(self.pace.limit // 4, MOST_BETWEEN_MARKS, self.most)

    def mark(self, is_flushed: bool) -> None:
        """Mark how far the launches have come, and see how far the devices have.

        A mark makes all launches that wait for each other. Where they were not made anyway it is put off for a while,
        since it would cut sequences of launches in other places each time, and none would come again.
        """
        self.look()
        if is_flushed or self.launched >= self.due + self.pace.limit // 2:
            self._mark_all()

    def _mark_all(self) -> None:
        now = time.monotonic()
        self.pace.submit(self.launched, now)
        self._marks.append((self.launched, now, [mark for b in self._backends for mark in b.marks(self._context)]))
        self._await_mark()

    def look(self) -> None:
        """See how far the devices have come; the session's modes are the engine's.

        What a completion shows can lower the limit below what was launched since the last mark. Nothing would complete
        then that is waited for, so that is marked here.
        """
        marks = self._marks
        if marks:
            self._measure(time.monotonic())
        if self.is_full and not marks:
            self._mark_all()

    def _measure(self, now: float) -> None:
        """Note what the devices have come to, and how long they worked on it: until they were last seen at it.

        A device works for one session at a time, as far as it is measured: from its last completion, whoever's it was.
        """
        marks = self._marks
        while marks and all([mark.is_ready() for mark in marks[0][2]]):
            launched, since, _ = marks.popleft()
            self.pace.complete(launched, now)
            begin = max([since, *[backend.last_completion for backend in self._backends]])
            self._device_seconds += max(self._seen_busy - begin, 0.0)
            for backend in self._backends:
                backend.last_completion = now
        if marks:
            self._seen_busy = now

    def take_device_seconds(self) -> float:
        """Return for how long the devices were at this session's work since this was last asked, as far as was seen."""
        if self._marks:
            self._measure(time.monotonic())
        seconds, self._device_seconds = self._device_seconds, 0.0
        return seconds
