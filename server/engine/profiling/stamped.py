"""Executions whose steps are stamped: when each began and ended, and how many launches there were by then.

That is what a profile has to know of operations that are executed as one, where nothing else notes them. Knows a clock
and what counts launches, and nothing of what is made of the stamps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from server.engine import context
from server.engine.programs.execution import NEVER, Execution, Stop
from server.engine.programs.graph import Step
from server.engine.programs.recorded.unchanged import Unchanged
from telegrad_protocol.meta import Device

now: Final = time.monotonic_ns


class Counter(Protocol):
    """Counts the launches of a device."""

    @property
    def is_capturing(self) -> bool:
        """Whether what is launched now is captured and not done."""

    def begin(self) -> int:
        """Return how many launches there were so far, or how many the graph has that is being captured."""

    def note_counts(self, counts: Sequence[int]) -> None:
        """Note what was counted before the first step of what is being captured, and after each."""


class Profiler(Protocol):
    """What notes a session."""

    def counter(self, device: Device) -> Counter:
        """Return what counts the launches of a device."""

    def note_memory(self) -> None:
        """Note how memory has changed since the last look."""


class Stamped(Unchanged):
    """Executes steps as they were recorded on a device, and stamps them while somebody profiles."""

    __slots__ = ("counted", "device", "ended", "launches", "looked", "notes", "stamping")

    ended: Callable[[int], None]
    counted: Callable[[int], None]
    launches: Callable[[], int]
    looked: Callable[[], object]
    """What the execution that goes on is told of its steps by."""

    def __init__(
        self, device: Device, with_memory: bool, steps: Sequence[Step], plans: Sequence[Any], *rest: Any
    ) -> None:  # fmt: skip
        super().__init__(steps, plans, *rest)
        self.device = device
        self.notes: Any = None
        """What a profile says of the steps; its owner's."""
        wrapped = _stamped_with_memory if with_memory else _stamped
        self.stamping = tuple([call._replace(run=wrapped(call.run, self)) for call in self._calls])

    def begin(self, values: Sequence[Any]) -> Execution:
        profiler = context.current.profiler
        if profiler is None:
            return super().begin(values)
        table = self._initial.copy()
        table[: self._count] = values
        return StampedExecution(self, table, self._outputs, profiler)


def _stamped(run: Callable[[Any], Any], owner: Stamped) -> Callable[[Any], Any]:
    """Return what runs a step and tells the execution that goes on."""

    def stamped(args: Any) -> Any:
        result = run(args)
        owner.ended(now())
        owner.counted(owner.launches())
        return result

    return stamped


def _stamped_with_memory(run: Callable[[Any], Any], owner: Stamped) -> Callable[[Any], Any]:
    """Return the same where it is looked at memory after each step."""

    def stamped(args: Any) -> Any:
        result = run(args)
        owner.ended(now())
        owner.counted(owner.launches())
        owner.looked()
        return result

    return stamped


class StampedExecution(Execution):
    """One execution; ``ends`` has a time for each step, ``counts`` one number more."""

    __slots__ = ("_counter", "_executable", "_look", "_resumed", "counts", "ends")

    def __init__(self, executable: Stamped, table: list[Any], outputs: Sequence[int], profiler: Profiler) -> None:
        super().__init__(executable.stamping, table, outputs)
        self._executable, self._look = executable, profiler.note_memory
        self._counter = counter = profiler.counter(executable.device)
        self._resumed: list[tuple[int, int]] = []
        self.ends: list[int] = []
        self.counts: list[int] = [counter.begin()]

    @property
    def starts(self) -> list[int]:
        """When each step began: as the one before it ended, or where the execution went on."""
        starts = [0, *self.ends[:-1]]
        for place, at in self._resumed:
            starts[place] = at
        return starts

    def advance(self, stop: Stop = NEVER) -> bool:
        """Execute steps until ``stop.holds`` or there are no more; what they consist of is noted by nobody else."""
        current, owner = context.current, self._executable
        profiler, current.profiler = current.profiler, None
        owner.ended, owner.counted, owner.launches = self.ends.append, self.counts.append, self._counter.begin
        owner.looked = self._look
        self._resumed.append((len(self.ends), now()))
        try:
            is_over = super().advance(stop)
        finally:
            current.profiler = profiler
        if is_over and self._counter.is_capturing:
            self._counter.note_counts(self.counts)
        return is_over
