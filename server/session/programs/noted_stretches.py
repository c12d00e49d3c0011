"""Stretches in a session that is profiled: executed as one as ever, with each operation noted.

A stretch is recorded apart for this, since what it is executed by stamps its steps. While changes of memory are noted,
its steps are executed one by one; while a device can only be watched between operations, its calls are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from server.engine import context
from server.engine.profiling.recorder import Recorder
from server.engine.profiling.stamped import Stamped, StampedExecution
from server.engine.profiling.stretch_notes import Shares, Stamps, StretchNotes
from server.engine.programs.captures import CapturedExecution
from server.engine.programs.execution import NEVER, Execution, Stop
from server.session.state import SessionState
from telegrad_protocol.programs.rows import Template

from .compiled import Variant
from .situations import unwatched_modes_of

now: Final = time.monotonic_ns


def noted_modes_of(state: SessionState) -> tuple[Any, ...] | None:
    """Return what decides how a stretch is executed and noted; None where it has to be call by call."""
    recorder: Recorder = state.context.profiler
    modes = unwatched_modes_of(state) if recorder.notes_stretches else None
    return None if modes is None else (modes, bool(recorder.logs), recorder.with_memory)


class NotedVariant(Variant):
    """How a stretch is executed in one situation, and what is noted of it."""

    @staticmethod
    def of(variant: Variant, notes: StretchNotes) -> NotedVariant | None:
        """Return the same with what is noted of it; None where nothing is executed."""
        if not notes.steps:
            return None
        plain: Any = variant.plain
        plain.notes = notes
        return NotedVariant(*variant)

    def begin(self, values: Sequence[Any], template: Template) -> Any:
        execution = super().begin(values, template)
        recorder = context.current.profiler
        plain: Any = self.plain
        return execution if execution is None or recorder is None else NotedExecution(recorder, plain, execution)


class NotedExecution:
    """One execution; in the end ``Recorder.executed`` has what notes it."""

    __slots__ = ("_executable", "_execution", "_recorder")

    def __init__(self, recorder: Recorder, executable: Stamped, execution: Execution | CapturedExecution) -> None:
        self._recorder, self._executable, self._execution = recorder, executable, execution

    def advance(self, stop: Stop = NEVER) -> bool:
        """Go on until ``stop.holds`` or everything was executed; returns whether it was."""
        executable, execution = self._executable, self._execution
        log = self._recorder.logs.get(executable.device.index or 0)
        if log is not None:
            log.expect_graph(True)
        begin = now()
        try:
            if not execution.advance(stop):
                return False
            launched = None if log is None else log.graph
        finally:
            if log is not None:
                log.expect_graph(False)
        stepwise = execution.execution if isinstance(execution, CapturedExecution) else execution
        stamps: Stamps
        if isinstance(stepwise, StampedExecution):
            stamps = stepwise
        else:
            stamps = Shares.of(executable.notes.steps, *(launched or (begin, now(), 0, ())))
        self._recorder.executed = executable.notes, stamps
        return True

    def outputs(self) -> tuple[Any, ...]:
        """Return what was wanted, once all was executed."""
        return self._execution.outputs()
