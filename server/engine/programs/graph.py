"""A list of operations on numbered slots, and its plain execution: one dispatch after the other.

A slot is filled once, by an input, a constant or one step, and names that value from then on: the result of an in-place
operation has a slot of its own, which names the same value as its target's. A graph is below autograd.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from server.engine.device import cancellation
from server.engine.dispatcher import dispatch
from server.engine.operators import Operator
from server.engine.value import Value
from telegrad_protocol.errors import ArgumentError, AutogradError


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for a value, or for a number that is given anew with each run."""

    number: int

    def __hash__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return f"%{self.number}"


class Step(NamedTuple):
    """One operation: bound canonical arguments, as ``dispatcher.dispatch`` takes them, with slots in place of tensors.

    ``outs`` has a slot for each result, one for a single result, and none for an operation that returns nothing.
    """

    operator: Operator
    args: tuple[Any, ...]
    outs: tuple[Slot, ...]


class Graph:
    """Steps in order; the slots that come in; those that are wanted afterwards; values that belong to the graph.

    A slot is known before it is read: ArgumentError otherwise, or where one is filled twice.
    """

    __slots__ = ("constants", "freed", "inputs", "outputs", "steps")

    def __init__(
        self, steps: Sequence[Step], inputs: Sequence[Slot], outputs: Sequence[Slot],
        constants: Mapping[Slot, Value] | None = None,
    ) -> None:  # fmt: skip
        self.steps = tuple(steps)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.constants = dict(constants or {})
        self._check()
        self.freed = last_uses(self.steps, self.inputs, self.outputs)
        """For each step, the slots that nothing reads after it."""

    def _check(self) -> None:
        known: set[Slot] = set()
        for where, slots in (("an input", self.inputs), ("a constant", self.constants)):
            _fill(known, slots, where)
        for position, step in enumerate(self.steps):
            _require(known, slots_in(step.args), f"step {position}, {step.operator.op.name}")
            _fill(known, step.outs, f"step {position}, {step.operator.op.name}")
        _require(known, self.outputs, "the outputs")

    def __repr__(self) -> str:
        return "\n".join(map(text_of, self.steps))


def _fill(known: set[Slot], slots: Any, where: str) -> None:
    for slot in slots:
        if slot in known:
            raise ArgumentError(f"program: slot {slot} is filled a second time, by {where}")
        known.add(slot)


def _require(known: set[Slot], slots: Any, where: str) -> None:
    for slot in slots:
        if slot not in known:
            raise ArgumentError(f"program: slot {slot} is read before it is filled, by {where}")


def slots_in(items: Any) -> Iterator[Slot]:
    """The slots among arguments, in lists too."""
    for item in items:
        if item.__class__ is Slot:
            yield item
        elif item.__class__ is tuple:
            yield from slots_in(item)


def replaced(items: tuple[Any, ...], values: Mapping[Slot, Any]) -> tuple[Any, ...]:
    """Arguments with what ``values`` has in the places of slots, in lists too."""
    return tuple([_replaced(item, values) for item in items])


def _replaced(item: Any, values: Mapping[Slot, Any]) -> Any:
    if item.__class__ is Slot:
        return values[item]
    return replaced(item, values) if item.__class__ is tuple else item


def last_uses(
    steps: Sequence[Step], inputs: Sequence[Slot], outputs: Sequence[Slot]
) -> tuple[tuple[Slot, ...], ...]:  # fmt: skip
    """For each step the slots that it reads or fills and that nothing needs afterwards; outputs are in none of them."""
    needed = set(outputs)
    freed: list[tuple[Slot, ...]] = []
    for step in reversed(steps):
        ended = [slot for slot in dict.fromkeys((*slots_in(step.args), *step.outs)) if slot not in needed]
        needed.update(ended)
        freed.append(tuple(ended))
    return tuple(reversed(freed))


def run(graph: Graph, values: Sequence[Any]) -> tuple[Any, ...]:
    """Execute a graph on values for its inputs, in order, and return those of its outputs.

    Values must not require a gradient (AutogradError). Each is dropped after its last use.
    """
    check_inputs(len(graph.inputs), values)
    table: dict[Slot, Any] = {**graph.constants, **dict(zip(graph.inputs, values))}
    for (operator, args, outs), freed in zip(graph.steps, graph.freed):
        if cancellation.requested:
            cancellation.stop()
        keep(table, outs, dispatch(operator, replaced(args, table)))
        for slot in freed:
            del table[slot]
    return tuple([table[slot] for slot in graph.outputs])


def keep(table: dict[Slot, Any], outs: tuple[Slot, ...], result: Any) -> None:
    """Enter a step's results into a table of values."""
    if len(outs) == 1:
        table[outs[0]] = result[0] if result.__class__ is tuple else result
    elif outs:
        table.update(zip(outs, result, strict=True))


def check_inputs(count: int, values: Sequence[Any]) -> None:
    """Refuse another number of values than a graph has inputs, and values that require a gradient."""
    if len(values) != count:
        raise ArgumentError(f"program: takes {count} inputs, got {len(values)}")
    for position, value in enumerate(values):
        if value.__class__ is Value and value.autograd is not None and value.autograd.requires_grad:
            raise AutogradError(
                f"program: input {position}, {value.meta}, requires a gradient, and programs run below autograd; give "
                "it the value without its history (detach), and what computes gradients as steps of the program"
            )


def text_of(step: Step) -> str:
    """A step as a line of text: ``%2 = add(%0, %1, 1)``."""
    outs = ", ".join(map(repr, step.outs))
    return f"{outs}{' = ' if outs else ''}{step.operator.op.name}({', '.join(map(repr, step.args))})"
