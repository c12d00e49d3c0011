"""Executions as one in a session that is profiled: they go on as ever, with each operation noted.

What a profile says of the steps is kept with what executes them, which is the same with a profile and without.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from server.engine import context
from server.engine.profiling.recorder import Recorder
from server.engine.profiling.step_notes import notes_of
from server.engine.profiling.stretch_notes import Shares, Stamps
from server.engine.programs.captures import CapturedExecution
from server.engine.programs.executable import Executable
from server.engine.programs.execution import NEVER, Execution, Stop
from server.engine.programs.stamped import StampedExecution
from telegrad_protocol.programs.rows import Template

from .compiled import Number, Variant

now: Final = time.monotonic_ns


def begun(variant: Variant, values: Sequence[Any], template: Template, known: list[Any] | None = None) -> Any:
    """Begin an execution of a variant, noted where the session is profiled; None as ``Variant.begin``."""
    execution = variant.begin(values, template, known)
    recorder: Recorder | None = context.current.profiler
    if execution is None or recorder is None:
        return execution
    numbers = [one.of(template) for one in variant.takes.given if isinstance(one, Number)]
    return NotedExecution(recorder, variant.plain, execution, numbers)


def is_noted(variant: Variant) -> bool:
    """Whether it is known what a profile says of a variant that executes something; otherwise its calls are made."""
    notes = variant.plain.notes
    return notes is not None and notes.steps > 0


class NotedExecution:
    """One execution; in the end ``Recorder.executed`` has what notes it."""

    __slots__ = ("_executable", "_execution", "_notes", "_numbers", "_recorder")

    def __init__(
        self, recorder: Recorder, executable: Executable, execution: Execution | CapturedExecution,
        numbers: Sequence[float] = (),
    ) -> None:  # fmt: skip
        self._recorder, self._executable, self._execution = recorder, executable, execution
        self._numbers = numbers
        self._notes = notes_of(executable)

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
        if self._notes.steps:
            self._recorder.executed = self._notes, self._stamps(launched or (begin, now(), 0, ())), self._numbers
        return True

    def _stamps(self, launched: tuple[int, int, int, Sequence[int]]) -> Stamps:
        execution = self._execution
        stepwise = execution.execution if isinstance(execution, CapturedExecution) else execution
        if isinstance(stepwise, StampedExecution):
            return stepwise
        return Shares.of(self._notes.steps, *launched)

    def outputs(self) -> tuple[Any, ...]:
        """Return what was wanted, once all was executed."""
        return self._execution.outputs()
