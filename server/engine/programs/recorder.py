"""Writing down what is executed: the Record key tells of each operation, and a graph comes of it.

A value is known by its memory and its meta, since autograd makes values anew over what it has saved. What is neither
given nor made by an operation cannot be told, and the record is given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from weakref import ReferenceType, ref

from server.engine.operators import Operator
from server.engine.value import Storage, Value
from telegrad_protocol.meta import Meta

from .graph import Graph, Slot, Step


class Recorder:
    """Notes operations as steps of a graph. ``reason`` says why there is none, empty while there may be one."""

    lets_spend = True

    def __init__(self) -> None:
        self.reason = ""
        self.inputs: list[Slot] = []
        self.steps: list[Step] = []
        self.plans: list[Any] = []
        """The plans that have executed the steps; None for one that has none."""
        self._count = 0
        self._slots: dict[tuple[int, Meta], Slot] = {}
        self._metas: dict[int, list[Meta]] = {}
        """The metas of known values, by the number of their storage."""
        self._storages: dict[int, ReferenceType[Storage]] = {}

    def __len__(self) -> int:
        return len(self.steps)

    def enter(self, value: Value) -> Slot:
        """Note a value as an input, unless it is one already."""
        known = self.slot_of(value)
        if known is not None:
            return known
        slot = self._name(value)
        self.inputs.append(slot)
        return slot

    def enter_number(self) -> Slot:
        """Return what stands for a number that is given with each run, as an input."""
        slot = Slot(self._count)
        self._count += 1
        self.inputs.append(slot)
        return slot

    def slot_of(self, value: Value) -> Slot | None:
        """Return what stands for a value; None if it is not known."""
        return self._slots.get((id(value.storage), value.meta))

    def give_up(self, reason: str) -> None:
        """Note why there will be no graph."""
        self.reason = self.reason or reason

    def graph(self, outputs: Sequence[Slot]) -> Graph:
        """Return the graph of what was noted."""
        return Graph(self.steps, self.inputs, outputs)

    def note_beginning(self, operator: Operator, args: tuple[Any, ...]) -> None:
        """Do nothing: an operation is noted when it has been executed."""

    def note_operation(self, operator: Operator, args: tuple[Any, ...], signature: Any, result: Any) -> None:
        """Add a step."""
        plan = operator.plans.get(signature)
        if plan is None or (plan.outs is None and not operator.op.mutates):
            self.give_up(f"what {operator.op.public} returns depends on elements")
        bound = () if self.reason else self._replaced(args)
        if not self.reason:
            made = result if result.__class__ is tuple else () if result is None else (result,)
            self.steps.append(Step(operator, bound, tuple([self._name(value) for value in made])))
            self.plans.append(plan)

    def note_other(self, name: str) -> None:
        """Give up: an operation is more than what backends execute."""
        self.give_up(f"{name} is more than operations of backends")

    def note_upload(self, value: Value) -> None:
        """Give up: what comes from outside is no part of what was given."""
        self.give_up("elements come from outside")

    def note_elements_read(self, name: str) -> None:
        """Give up: what an operation does with other elements is not known."""
        self.note_other(name)

    def _replaced(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([self._replacement(item) for item in items])

    def _replacement(self, item: Any) -> Any:
        if item.__class__ is tuple:
            return self._replaced(item)
        if item.__class__ is not Value:
            return item
        slot = self.slot_of(item)
        if slot is None:
            self.give_up(f"a value of {item.meta} comes from outside")
        return slot

    def _name(self, value: Value) -> Slot:
        slot, storage = Slot(self._count), value.storage
        self._count += 1
        number = id(storage)
        if number not in self._storages:
            self._storages[number] = ref(storage, partial(self._forget, number))
        self._slots[number, value.meta] = slot
        self._metas.setdefault(number, []).append(value.meta)
        return slot

    def _forget(self, number: int, _: Any) -> None:
        for meta in self._metas.pop(number):
            self._slots.pop((number, meta), None)
        del self._storages[number]
