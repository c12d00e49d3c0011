"""Recorded backward passes, with their operations noted: a replay skips the dispatcher, which would note them."""

from __future__ import annotations

from typing import Any

from server.engine import context
from server.engine.operators import Run
from server.engine.replay.backward_program import Operation, Program
from telegrad_protocol.meta import Meta
from telegrad_protocol.tracing.recording import NODE, OPERATION

from .descriptions import Description, plain
from .kernel import noting
from .recorder import now


def noted(program: Program) -> Program:
    """Return the program with every operation, and every node that it evaluates, noted; made once and kept."""
    if program.noted is None:
        program.noted = program.with_steps(_noted_steps(program))
    return program.noted  # type: ignore[no-any-return]


def _noted_steps(program: Program) -> list[Any]:
    steps, begun = [], [0]
    described = iter(program.operations)
    nodes = [operation.node for operation in program.operations]
    place = 0
    for step in program.steps:
        if step.__class__ is Operation:
            operator, bound, node = next(described)
            description = Description(OPERATION, operator.op.name, bound, plain(operator))
            gpu = next((m.device for m in bound if isinstance(m, Meta) and m.device.type != "cpu"), None)
            run = noting(description, step.run, gpu)
            if node:
                is_first = place == 0 or nodes[place - 1] != node
                is_last = place + 1 == len(nodes) or nodes[place + 1] != node
                run = _as_part(run, node[1], begun, is_first, is_last) if is_first or is_last else run
            step = step._replace(run=run)
            place += 1
        steps.append(step)
    return steps


def _as_part(run: Run, node: str, begun: list[int], is_first: bool, is_last: bool) -> Run:
    """``run`` as the first operation of a node, which the node begins with, or the last, which it ends with."""

    def part(args: tuple[Any, ...]) -> Any:
        if is_first:
            begun[0] = now()
        try:
            return run(args)
        finally:
            recorder = context.current.profiler
            if is_last and recorder is not None:
                recorder.note(recorder.named(NODE, node), begun[0])

    return part
