"""Writes down what one node does for a gradient, as a pass of that node alone is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.engine import context
from server.engine.autograd import node_program
from server.engine.autograd.node import OpNode
from server.engine.autograd.node_program import Modes, NodeProgram, NodeStep, Source
from server.engine.value import Value
from telegrad_protocol.meta import Meta

from . import record_key
from .backward_program import IntermediateElement, Operation, SavedElement
from .backward_recording import RecordingTask


class NodeRecording(RecordingTask):
    """A pass over one node."""

    __slots__ = ()
    lets_spend = False

    def apply(self, node: OpNode, grads: list[Value | None], modes: Modes) -> tuple[Any, NodeProgram | None]:
        """Ask the node; return its gradients, and what it has done, None where that cannot be repeated."""
        gradient: Any = grads[0]
        meta, current = gradient.meta, context.current
        self._order, self._identity = [node], (0, node.name)
        self._track(gradient)
        before = record_key.start(current, self)
        try:
            results = self._saved.apply(node, grads)
            made = [None if one is None else self._numbers.get(id(one), -1) for one in results]
            count = len(self._refs)
        finally:
            record_key.stop(current, before)
            self._refs.clear()
        if not self._is_repeatable or -1 in made or not all(map(_has_plain_lists, self._steps)):
            return results, None
        return results, self._node_program(meta, modes, len(node.saved or ()), count, made)

    def _node_program(
        self, meta: Meta, modes: Modes, saved: int, count: int, results: Sequence[int | None]
    ) -> NodeProgram:  # fmt: skip
        """Return the program, whose table has each value of the recording behind those that the node has saved."""
        steps = [_step(step, saved) for step in self._finished({one for one in results if one is not None})]
        sources = [None if one is None else saved + one for one in results]
        return NodeProgram(meta, modes, saved + count, steps, sources)


def _has_plain_lists(step: Operation) -> bool:
    """Return whether lists of an operation hold nothing but tensors, and None."""
    kinds = {type(item) for _, items in step.lists for item in items}
    return kinds <= {IntermediateElement, SavedElement, type(None)}


def _place(source: Any, count: int) -> Source:
    """Return the place in the table of a node's values."""
    if source.__class__ is IntermediateElement:
        return count + source.number
    _, slot, element = source.place
    return slot if element < 0 else (slot, element)


def _step(step: Operation, count: int) -> NodeStep:
    sources: list[tuple[int, Source]] = [(place, count + number) for place, number in step.intermediate]
    sources += [(place, _place(SavedElement(saved), count)) for place, saved in step.saved]
    sources += [(place, [None if one is None else _place(one, count) for one in items]) for place, items in step.lists]
    results = step.results
    made = count + results if isinstance(results, int) else tuple([count + one for one in results])
    return NodeStep(step.run, tuple(step.arguments), tuple(sources), made, tuple([count + one for one in step.freed]))


def _record(node: OpNode, grads: list[Value | None], modes: Modes) -> tuple[Any, NodeProgram | None]:
    return NodeRecording(False).apply(node, grads, modes)


node_program.prepare(_record)
