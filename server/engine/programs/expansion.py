"""Operations that consist of others are replaced by these, so that passes see what is computed.

A composite runs on values that have a meta and no memory, and what it calls is noted. What depends on elements cannot
be noted, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from server.engine import context
from server.engine.autograd.derivation import Trace, tracing
from server.engine.operators import OPERATORS, Operator
from server.engine.signature import metas_of
from server.engine.value import Value
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.meta import Meta

from .analysis import Known, is_opaque, sample_of
from .graph import Graph, Slot, Step, replaced, slots_in


class _Steps(Trace):
    """Notes operations as steps; values have slots."""

    def __init__(self, new_slot: Callable[[], Slot]) -> None:
        super().__init__()
        self.noted: list[Step] = []
        self.known: dict[Slot, Meta] = {}
        self._new_slot = new_slot
        self._slots: dict[int, Slot] = {}

    def enter(self, slot: Slot, meta: Meta) -> Value:
        """A value without memory for a slot."""
        value = self.value(meta)
        self._slots[id(value)] = slot
        self.known[slot] = meta
        return value

    def slot_of(self, value: Value) -> Slot:
        """The slot of a value of this trace."""
        return self._slots[id(value)]

    def add(self, operator: Operator, args: tuple[Any, ...]) -> Any:
        """Note an operation and return its results; one that consists of others is taken apart."""
        op = operator.op
        if operator.composite is not None:
            keywords = dict(zip(operator.keyword_names, args[op.positional :], strict=True))
            return operator.composite(*args[: op.positional], **keywords)
        if is_opaque(operator):
            return self._add_form(operator, args)
        return self._add_plain(operator, args)

    def _add_form(self, operator: Operator, args: tuple[Any, ...]) -> Any:
        """The in-place or ``out=`` form of what consists of others: its results are copied into the targets."""
        op = operator.op
        op.infer(metas_of(args))
        result = self.add(OPERATORS[op.base.name], args[: len(op.base.params)])
        targets = tuple([args[position] for position in op.mutates])
        for target, computed in zip(targets, result if isinstance(result, tuple) else (result,), strict=True):
            self._add_plain(OPERATORS["copy_"], (target, computed, False))
        return targets if isinstance(result, tuple) else targets[0]

    def _add_plain(self, operator: Operator, args: tuple[Any, ...]) -> Any:
        op = operator.op
        inferred = op.infer(metas_of(args))
        if inferred is None and op.data_dependent:
            raise NotSupportedError(f"{op.public}: the shape of its result depends on elements")
        metas = () if inferred is None else inferred if isinstance(inferred, tuple) else (inferred,)
        if op.mutates and len(metas) > len(op.mutates):
            raise NotSupportedError(f"{op.public}: it is not known which of its results are its targets")
        outs = tuple([self._new_slot() for _ in metas])
        self.noted.append(Step(operator, self._with_slots(args), outs))
        if op.mutates:
            targets = tuple([args[position] for position in op.mutates])
            for slot, target in zip(outs, targets):
                self._slots[id(target)] = slot
            return None if inferred is None else targets if isinstance(inferred, tuple) else targets[0]
        values = tuple([self.enter(slot, meta) for slot, meta in zip(outs, metas)])
        return values if isinstance(inferred, tuple) else values[0]

    def _with_slots(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([self._with_slot(arg) for arg in args])

    def _with_slot(self, arg: Any) -> Any:
        if arg.__class__ is Value:
            return self.slot_of(arg)
        return self._with_slots(arg) if arg.__class__ is tuple else arg


def traced(function: Callable[..., Any], metas: Sequence[Meta]) -> Graph:
    """The graph of a function of values: what it calls on values of these metas, which have no memory.

    Operations that consist of others are taken apart. NotSupportedError where what it calls depends on elements.
    """
    counter = iter(range(1 << 62))
    trace = _Steps(lambda: Slot(next(counter)))
    inputs = [Slot(next(counter)) for _ in metas]
    values = [trace.enter(slot, meta) for slot, meta in zip(inputs, metas)]
    with context.grad_mode(False), tracing(trace):
        result = function(*values)
    results = result if isinstance(result, tuple) else () if result is None else (result,)
    return Graph(trace.noted, inputs, [trace.slot_of(value) for value in results])


def expanded(
    steps: Sequence[Step], known: Mapping[Slot, Known], outputs: Sequence[Slot]
) -> tuple[list[Step], tuple[Slot, ...]]:
    """Steps without composites, where these can be taken apart, and the slots that the outputs are then."""
    metas: dict[Slot, Known] = dict(known)
    numbers = [slot.number for slot in (*known, *[s for step in steps for s in step.outs])]
    counter = iter(range(max(numbers, default=0) + 1, 1 << 62))
    names: dict[Slot, Slot] = {}
    result: list[Step] = []
    for step in steps:
        step = Step(step.operator, replaced(step.args, _renaming(step.args, names)), step.outs)
        parts = _parts(step, metas, lambda: Slot(next(counter)))
        if parts is None:
            result.append(step)
            _infer(step, metas)
            continue
        trace, outs = parts
        result += trace.noted
        for noted in trace.noted:
            _infer(noted, metas)
        names.update(zip(step.outs, outs))
    return result, tuple([names.get(slot, slot) for slot in outputs])


def _renaming(items: tuple[Any, ...], names: Mapping[Slot, Slot]) -> dict[Slot, Slot]:
    return {slot: names.get(slot, slot) for slot in slots_in(items)}


def _infer(step: Step, metas: dict[Slot, Known]) -> None:
    """Enter the metas of a step's results; None where they are not known."""
    op = step.operator.op
    operands = {slot: metas[slot] for slot in slots_in(step.args)}
    inferred: Any = None
    if not op.data_dependent and None not in operands.values():
        inferred = op.infer(replaced(step.args, {slot: sample_of(item) for slot, item in operands.items()}))
    results = inferred if isinstance(inferred, tuple) else (inferred,) * len(step.outs)
    metas.update(zip(step.outs, results))


def _parts(
    step: Step, metas: Mapping[Slot, Known], new_slot: Callable[[], Slot]
) -> tuple[_Steps, tuple[Slot, ...]] | None:
    """What a composite consists of, and the slots of its results; None for other steps, and where it cannot be told."""
    operands = {slot: metas[slot] for slot in slots_in(step.args)}
    if not is_opaque(step.operator) or not all([isinstance(known, Meta) for known in operands.values()]):
        return None
    trace = _Steps(new_slot)
    values = {slot: trace.enter(slot, meta) for slot, meta in operands.items() if isinstance(meta, Meta)}
    try:
        with tracing(trace):
            result = trace.add(step.operator, replaced(step.args, values))
        results = result if isinstance(result, tuple) else () if result is None else (result,)
        return trace, tuple([trace.slot_of(value) for value in results])
    except (NotSupportedError, KeyError, TypeError):
        return None
