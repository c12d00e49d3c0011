"""Recorded backward passes, with their operations noted: a replay skips the dispatcher, which would note them."""

from __future__ import annotations

from typing import Any

from server.engine import context
from server.engine.operators import Run
from server.engine.programs.executable import Executable
from server.engine.programs.fused_pass import FusedPass
from server.engine.programs.stamped import StampedExecution
from server.engine.replay.backward_program import Operation, Program, Values
from telegrad_protocol.meta import Meta
from telegrad_protocol.tracing.recording import NODE

from .descriptions import describe
from .kernel import noting
from .recorder import now
from .step_notes import notes_of


class _Pass:
    """The pass that is being made: the numbers of its nodes, and when the node that is evaluated was begun."""

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self.begun = 0


def noted(program: Program, nodes: list[Any]) -> Program:
    """Return the program with every operation, and every node that it evaluates, noted; its steps are made once.

    It is for a pass over these nodes next.
    """
    if program.noted is None:
        current = _Pass()
        program.noted = program.with_steps(_noted_steps(program, current)), current
    made, current = program.noted
    current.sequences = [getattr(node, "sequence", 0) for node in nodes]
    made.captures = program.captures
    made.fused = None if program.fused is None else _NotedFusedPass(program.fused)
    return made  # type: ignore[no-any-return]


class _NotedFusedPass:
    """A pass whose operations were fused, with what they have become noted."""

    def __init__(self, fused: FusedPass) -> None:
        self._fused = fused

    def run(self, nodes: list[Any], values: Values) -> bool:
        return self._fused.run(nodes, values, _note_steps)


def _note_steps(executable: Executable, execution: Any) -> None:
    recorder = context.current.profiler
    if recorder is not None and isinstance(execution, StampedExecution):
        notes_of(executable).note(recorder, (), execution)


def _noted_steps(program: Program, current: _Pass) -> list[Any]:
    steps = []
    described = iter(program.operations)
    nodes = [operation.node for operation in program.operations]
    place = 0
    for step in program.steps:
        if step.__class__ is Operation:
            operator, bound, node = next(described)
            gpu = next((m.device for m in bound if isinstance(m, Meta) and m.device.type != "cpu"), None)
            run = noting(describe(operator, bound, gpu), step.run, gpu)
            if node:
                is_first = place == 0 or nodes[place - 1] != node
                is_last = place + 1 == len(nodes) or nodes[place + 1] != node
                run = _as_part(run, node, current, is_first, is_last) if is_first or is_last else run
            step = step._replace(run=run)
            place += 1
        steps.append(step)
    return steps


def _as_part(run: Run, node: tuple[int, str], current: _Pass, is_first: bool, is_last: bool) -> Run:
    """``run`` as the first operation of a node, which the node begins with, or the last, which it ends with."""

    number, name = node

    def part(args: tuple[Any, ...]) -> Any:
        if is_first:
            current.begun = now()
        try:
            return run(args)
        finally:
            recorder = context.current.profiler
            if is_last and recorder is not None:
                recorder.note(recorder.named(NODE, name), current.begun, sequence=current.sequences[number])

    return part
