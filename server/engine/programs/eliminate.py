"""Passes that make a list of steps shorter: what nobody needs, what is computed twice, and what is the same every time.

Each takes the steps with their analysis, and returns new steps. What mutates memory or draws random numbers stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from server.engine.dispatcher import dispatch
from server.engine.operators import Operator
from server.engine.signature import number_identity
from server.engine.value import Value

from .analysis import Analysis, is_opaque
from .graph import Slot, Step, keep, replaced, slots_in


def without_dead(steps: Sequence[Step], analysis: Analysis, outputs: Sequence[Slot]) -> list[Step]:
    """Leave out the steps whose results nothing reads."""
    needed, kept = set(outputs), []
    for step, effects in zip(reversed(steps), reversed(analysis.effects)):
        if effects.writes or not needed.isdisjoint(step.outs):
            needed.update(slots_in(step.args))
            kept.append(step)
    return kept[::-1]


def _is_pure(operator: Operator) -> bool:
    """Whether equal operands give equal results, in memory of their own or as views."""
    return not operator.op.mutates and not is_opaque(operator) and not operator.op.data_dependent


def without_repeated(
    steps: Sequence[Step], analysis: Analysis, outputs: Sequence[Slot]
) -> tuple[list[Step], dict[Slot, Slot]]:
    """Leave out steps that compute what an earlier one has computed, and say which slots stand for theirs.

    Results that are wanted afterwards, or that are written to, keep memory of their own.
    """
    escaping = {analysis.memory_of(slot) for slot in outputs}
    same: dict[Slot, Any] = {}
    first: dict[Any, tuple[Slot, ...]] = {}
    kept, versions = [], dict.fromkeys(analysis.written, 0)
    for step, effects in zip(steps, analysis.effects):
        step = Step(step.operator, _renamed(step.args, same), step.outs)
        for number in effects.writes:
            versions[number] += 1
        is_private = not any([analysis.is_written(s) or analysis.memory_of(s) in escaping for s in step.outs])
        if effects.writes or not is_private or not _is_pure(step.operator):
            kept.append(step)
            continue
        reads = tuple(sorted([(number, versions.get(number, 0)) for number in effects.reads]))
        key = step.operator, _identity(step.args), reads
        earlier = first.setdefault(key, step.outs)
        if earlier is step.outs:
            kept.append(step)
        else:
            same.update(zip(step.outs, earlier))
    return kept, same


def _renamed(items: tuple[Any, ...], names: Mapping[Slot, Slot]) -> tuple[Any, ...]:
    return replaced(items, {slot: names.get(slot, slot) for slot in slots_in(items)}) if names else items


def _identity(item: Any) -> Any:
    """What tells arguments apart: numbers that are equal and mean different things differ."""
    if item.__class__ is tuple:
        return tuple(map(_identity, item))
    return item, number_identity(item)


def folded(
    steps: Sequence[Step], analysis: Analysis, outputs: Sequence[Slot], constants: Mapping[Slot, Value]
) -> tuple[list[Step], dict[Slot, Value]]:
    """Compute the steps that depend on constants alone; returns the others, and all constants with those results.

    Constants must not change from here on, so what is written to is none. What is wanted afterwards is made anew.
    """
    escaping = {analysis.memory_of(slot) for slot in outputs}
    values: dict[Slot, Any] = {
        slot: value for slot, value in constants.items() if not analysis.is_written(slot)
    }  # fmt: skip
    rest = []
    for step, effects in zip(steps, analysis.effects):
        operands = list(slots_in(step.args))
        is_private = not any([analysis.is_written(s) or analysis.memory_of(s) in escaping for s in step.outs])
        is_constant = bool(operands) and all([slot in values for slot in operands])
        if is_constant and is_private and not effects.writes and _is_pure(step.operator):
            keep(values, step.outs, dispatch(step.operator, replaced(step.args, values)))
        else:
            rest.append(step)
    read = {slot for step in rest for slot in slots_in(step.args)} | set(outputs)
    return rest, {slot: value for slot, value in {**constants, **values}.items() if slot in read}
