"""What is known of a graph's slots and steps for operands of given metas: results, memory, what is read and written.

Memory has numbers: slots whose values may share memory have the same one. A root is the slot that first named a value,
so that two slots with one root are one value, whereas a view is another value in the same memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from server.engine.operators import OPERATORS, Operator
from server.engine.value import Value, memory_of
from telegrad_protocol.meta import Meta

from .described import block_of
from .graph import Slot, Step, replaced, slots_in

Known: TypeAlias = Meta | type | None
"""Of a slot: its meta; the class of a number; or None where only the data can tell the meta."""
RANDOM = -1
"""Stands for the state of the generators, as a memory that random operations read and write."""
EVERYTHING = -2
"""Stands for all memory, where a step's effects are not known."""


class Effects(NamedTuple):
    """The numbers of the memory that a step reads and writes."""

    reads: frozenset[int]
    writes: frozenset[int]


class Analysis:
    """Metas, roots and memory of all slots; for each step its effects, and its arguments with metas for slots."""

    def __init__(
        self, steps: Sequence[Step], known: Mapping[Slot, Known], memory: Mapping[Slot, int] | None = None,
        inferred: Mapping[Slot, Known] | None = None,
    ) -> None:  # fmt: skip
        self._inferred = inferred or {}
        self.known: dict[Slot, Known] = dict(known)
        self.roots: dict[Slot, Slot] = {slot: slot for slot in known}
        self._memory: dict[Slot, int] = dict(memory or {})
        self._merged: list[int] = list(range(max(self._memory.values(), default=-1) + 1))
        for slot in known:
            self._memory.setdefault(slot, self._new_memory())
        self.bound: list[tuple[Any, ...] | None] = [self._infer(step) for step in steps]
        """None where a meta is not known, or a number is given anew with each run."""
        self.effects = [self._effects_of(step) for step in steps]
        self.written = frozenset().union(*[effects.writes for effects in self.effects])

    def _new_memory(self) -> int:
        self._merged.append(len(self._merged))
        return self._merged[-1]

    def memory_of(self, slot: Slot) -> int:
        """The number of a slot's memory."""
        number = self._memory[slot]
        while self._merged[number] != number:
            number = self._merged[number]
        return number

    def share(self, slots: Iterable[Slot]) -> None:
        """Note that the values of these slots may share memory."""
        numbers = {self.memory_of(slot) for slot in slots}
        for number in numbers:
            self._merged[number] = min(numbers)

    def _infer(self, step: Step) -> tuple[Any, ...] | None:
        _, args, outs = step
        known = {slot: self.known[slot] for slot in slots_in(args)}
        metas: Any = (None,) * len(outs)
        bound = None
        if None not in known.values():
            bound = replaced(args, {slot: sample_of(item) for slot, item in known.items()})
            metas = self._results(step, bound)
        for slot, meta in zip(outs, metas, strict=False):
            self.known[slot], self.roots[slot], self._memory[slot] = meta, slot, self._new_memory()
        self._note_aliases(step)
        return None if any([isinstance(item, type) for item in known.values()]) else bound

    def _results(self, step: Step, bound: tuple[Any, ...]) -> Sequence[Known]:
        """The metas of a step's results, by its shape rule where they are not known from before."""
        if step.outs and step.outs[0] in self._inferred:
            return [self._inferred[slot] for slot in step.outs]
        inferred = step.operator.op.infer(bound)
        if inferred is None or step.operator.op.data_dependent:
            return (None,) * len(step.outs)
        return inferred if isinstance(inferred, tuple) else (inferred,)

    def _note_aliases(self, step: Step) -> None:
        operator, args, outs = step
        op = operator.op
        if op.mutates:
            targets = [slot for place in op.mutates for slot in slots_in((args[place],))]
            for slot, target in zip(outs, targets, strict=False):
                self.roots[slot] = self.roots[target]
                self.share((slot, target))
        elif is_opaque(operator):
            self.share((*slots_in(args), *outs))
        elif op.view_of is not None:
            self.share((*slots_in((args[op.view_of],)), *outs))

    def _effects_of(self, step: Step) -> Effects:
        operator, args, _ = step
        op = operator.op
        if is_opaque(operator):
            return Effects(frozenset((EVERYTHING,)), frozenset((EVERYTHING,)))
        viewed = set(slots_in((args[op.view_of],))) if op.view_of is not None else ()
        reads = {self.memory_of(slot) for slot in slots_in(args) if slot not in viewed}
        writes = {self.memory_of(slot) for place in op.mutates for slot in slots_in((args[place],))}
        if draws_random_numbers(operator):
            writes.add(RANDOM)
        return Effects(frozenset(reads), frozenset(writes))

    def is_written(self, slot: Slot) -> bool:
        """Whether any step writes into the memory of a slot."""
        return EVERYTHING in self.written or self.memory_of(slot) in self.written


def sample_of(known: Known) -> Any:
    """What a shape rule is given for a slot: a meta, or a number of the class that the slot's numbers have."""
    return known(1) if isinstance(known, type) else known


def is_opaque(operator: Operator) -> bool:
    """Whether an operation consists of others, of which nothing is known here."""
    return operator.composite is not None or OPERATORS[operator.op.base.name].composite is not None


def draws_random_numbers(operator: Operator) -> bool:
    """Whether the result depends on a generator, and changes it."""
    return operator.op.is_random or any([kernel.wants_generator for kernel in operator.kernels.values()])


def shared_memory(values: Sequence[Any]) -> tuple[int, ...]:
    """A number for each value, the same for values in the same memory; what programs are specialised and kept by."""
    try:
        if len(set(map(block_of, values))) == len(values):  # each memory has a block, which is there once
            return _distinct(len(values))
    except AttributeError:  # numbers have no storage
        pass
    keys = [id(memory_of(v.storage)) if v.__class__ is Value else -1 - place for place, v in enumerate(values)]
    numbers: dict[Any, int] = {}
    return tuple([numbers.setdefault(key, len(numbers)) for key in keys])


@cache
def _distinct(count: int) -> tuple[int, ...]:
    return tuple(range(count))
