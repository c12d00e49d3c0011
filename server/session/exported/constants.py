"""What a program computes of its own tensors alone is computed once, when it is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.programs.analysis import draws_random_numbers
from server.engine.programs.graph import Slot, keep, replaced, slots_in
from server.engine.value import Value
from telegrad_protocol.exported.arguments import Binder
from telegrad_protocol.exported.checking import operation_of
from telegrad_protocol.exported.description import ProgramDescription, Step


def folded(
    program: ProgramDescription, constants: Mapping[Slot, Value], binder: Binder
) -> tuple[list[Step], dict[Slot, Value]]:
    """Return the steps that are left, and all constants with what the other steps have made of them.

    Steps are left that write, draw numbers, depend on sizes, or make what is written to or returned.
    """
    roots = _roots(program)
    kept_apart = {*_written(program, roots), *[roots.get(output.value, output.value) for output in program.outputs]}
    known: dict[Slot, Any] = dict(constants)
    rest = []
    for step in program.steps:
        op = operation_of(step)
        operator = OPERATORS[op.name]
        is_fixed = not (op.mutates or draws_random_numbers(operator) or _has_sizes(step.args))
        if is_fixed and kept_apart.isdisjoint([roots.get(out, out) for out in step.outs]):
            args = binder.bind(op, step.args, {})
            operands = list(slots_in(args))
            if operands and all([slot in known for slot in operands]):
                keep(known, tuple(map(Slot, step.outs)), dispatch(operator, replaced(args, known)))
                continue
        rest.append(step)
    read = {slot for step in rest for slot in _numbers_in(step)} | {output.value for output in program.outputs}
    return rest, {slot: value for slot, value in known.items() if slot.number in read}


def _has_sizes(item: Any) -> bool:
    """Whether an argument has a formula in it."""
    if isinstance(item, dict):
        return "sum" in item or any(map(_has_sizes, item.values()))
    return isinstance(item, list) and any(map(_has_sizes, item))


def _numbers_in(step: Step) -> Iterator[int]:
    """Yield the numbers of the tensors that a step takes."""
    for param in operation_of(step).params:
        item = step.args.get(param.name) if param.kind.holds_tensors else None
        if param.kind.name.startswith("tensors"):
            yield from [number for number in item or () if number is not None]
        elif isinstance(item, int):
            yield item


def _roots(program: ProgramDescription) -> dict[int, int]:
    """Return, for each value that may be a view, the value whose memory it may show."""
    roots: dict[int, int] = {}
    for step in program.steps:
        op = operation_of(step)
        if op.view_of is not None:
            source = step.args[op.params[op.view_of].name]
            roots.update(dict.fromkeys(step.outs, roots.get(source, source)))
    return roots


def _written(program: ProgramDescription, roots: Mapping[int, int]) -> set[int]:
    """Return the values whose memory steps write to."""
    written = set()
    for step in program.steps:
        op = operation_of(step)
        for position in op.mutates:
            item = step.args.get(op.params[position].name)
            for number in item if isinstance(item, list) else (item,):
                if isinstance(number, int):
                    written.add(roots.get(number, number))
    return written
