"""Recorded backward passes as specialised graphs: what compiled functions leave to a later pass is fused there, too.

A pass is told as a graph of its operations, from the saved tensors and the gradient that it begins with to the
gradients of leaves. Leaves take their gradients over as in any pass, and nodes free what they saved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from server.engine import context
from server.engine.replay.backward_program import (
    Accumulation,
    IntermediateElement,
    NamedOperation,
    Operation,
    Program,
    Release,
    SavedElement,
    SavedPlace,
    Values,
    saved_at,
    unpacked,
)
from telegrad_protocol.meta import Meta

from .executable import Executable
from .execution import Execution
from .graph import Graph, Slot, Step
from .specialise import Specialisation, optimised

Executed = Callable[[Executable, Execution], object]
_log = logging.getLogger(__name__)


class FusedPass:
    """The pass of a program, executed with its chains fused once their kernels are there."""

    __slots__ = ("_awaited", "_executable", "_places", "_released", "_tail")

    def __init__(self, program: Program, gradient: Meta) -> None:
        written = _Written(program, gradient)
        self._places = tuple(written.places)
        self._released = tuple([step.node for step in program.steps if step.__class__ is Release])
        self._tail = program.with_steps([
            Accumulation(node, number, True, ()) for number, node in enumerate(written.leaves)
        ])  # fmt: skip
        self._executable: Executable | None = None
        with context.current.below_autocast():
            self._awaited: Specialisation | None = optimised(written.graph(), written.metas)

    def becomes_ready(self) -> bool:
        """Whether the kernels are there now, and were not when this was asked the last time."""
        awaited = self._awaited
        if awaited is None or not awaited.is_compiled():
            return False
        self._awaited = None
        try:
            with context.current.below_autocast():
                executable = awaited.executable()
        except Exception:
            _log.exception("a backward pass could not be fused; its operations are executed one by one")
            return False
        self._executable = executable if executable.describe().fused else None
        return self._executable is not None

    def run(self, nodes: list[Any], values: Values, executed: Executed | None = None) -> bool:
        """Make the pass from the gradient that is value 0; False where it is not fused, or may fail.

        ``executed`` is told of the execution once it is over.
        """
        executable = self._executable
        if executable is None or not all([_is_unmodified(saved_at(place, nodes)) for place in self._places]):
            return False
        taken = [values.pop(0), *[_saved(place, nodes) for place in self._places]]
        for number in self._released:
            nodes[number].saved = None
        execution = executable.begin(taken)
        taken.clear()
        execution.advance()
        if executed is not None:
            executed(executable, execution)
        gradients = dict(enumerate(execution.outputs()))
        del execution
        self._tail.run(nodes, gradients)
        return True


def _is_unmodified(saved: Any) -> bool:
    return bool(saved.storage.version == saved.version)


def _saved(place: SavedPlace, nodes: list[Any]) -> Any:
    return unpacked(saved_at(place, nodes), nodes[place[0]])


class _Written:
    """A program's operations as steps; inputs are the gradient, then the saved tensors in ``places``."""

    def __init__(self, program: Program, gradient: Meta) -> None:
        self._count = 0
        self._steps: list[Step] = []
        self._values = {0: self._new()}
        self._saved: dict[SavedPlace, Slot] = {}
        self._inputs, self.metas = [self._values[0]], [gradient]
        self._outputs: list[Slot] = []
        self.leaves: list[int] = []
        """The numbers of the leaves' nodes, in the order in which they get their gradients."""
        named = iter(program.operations)
        for step in program.steps:
            if isinstance(step, Operation):
                self._write(step, next(named))
            elif isinstance(step, Release):
                for slot, number, meta in step.taken:
                    self._values[number] = self._saved_slot((step.node, slot, -1), meta)
            elif isinstance(step, Accumulation):
                self.leaves.append(step.node)
                self._outputs.append(self._values[step.value])

    @property
    def places(self) -> list[SavedPlace]:
        """Where the saved tensors are that operations take."""
        return list(self._saved)

    def graph(self) -> Graph:
        """Return the graph of all operations."""
        return Graph(self._steps, self._inputs, self._outputs)

    def _new(self) -> Slot:
        self._count += 1
        return Slot(self._count - 1)

    def _write(self, step: Operation, named: NamedOperation) -> None:
        args, bound = list(step.arguments), named.bound
        for place, number in step.intermediate:
            args[place] = self._values[number]
        for place, saved in step.saved:
            args[place] = self._saved_slot(saved, bound[place])
        for place, items in step.lists:
            args[place] = tuple(self._items(items, bound[place]))
        numbers = step.results if isinstance(step.results, tuple) else (step.results,)
        outs = tuple([self._new() for _ in numbers])
        self._steps.append(Step(named.operator, tuple(args), outs))
        self._values.update(zip(numbers, outs, strict=True))

    def _items(self, items: Sequence[Any], metas: Sequence[Any]) -> Iterator[Any]:
        for item, meta in zip(items, metas, strict=True):
            if isinstance(item, SavedElement):
                yield self._saved_slot(item.place, meta)
            else:
                yield self._values[item.number] if isinstance(item, IntermediateElement) else item

    def _saved_slot(self, place: SavedPlace, meta: Meta) -> Slot:
        slot = self._saved.get(place)
        if slot is None:
            slot = self._saved[place] = self._new()
            self._inputs.append(slot)
            self.metas.append(meta)
        return slot


def fused_pass(program: Program, gradient: Meta) -> FusedPass | None:
    """Return the fused pass of a program that begins with a gradient of this meta; None where it cannot be one."""
    if len({meta.device for step in program.operations for meta in step.bound if isinstance(meta, Meta)}) > 1:
        return None
    try:
        return FusedPass(program, gradient)
    except Exception:
        _log.exception("a backward pass could not be fused; its operations are executed one by one")
        return None
