"""Writing a program while the engine makes a pass: every operation is seen through the Record key.

What an operation gets is a gradient of this pass, a saved value of the node whose turn it is, or a constant; where it
is anything else, nothing is recorded. When an intermediate result dies is noted too: it tells when a replay frees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any
from weakref import ReferenceType, ref

from server.engine import context, keys
from server.engine.autograd.engine import _Run, accumulate
from server.engine.autograd.graph import AccumulateGrad, Edge, Node, Saved, SavedList
from server.engine.autograd.node import OpNode
from server.engine.dispatcher import BOXED, redispatch
from server.engine.operators import Operator
from server.engine.plan import run_backend
from server.engine.value import Value

from .backward_program import Accumulation, Goal, Held, Intermediate, Program, Release, SavedItem, Shape, Step

_BELOW = keys.below(keys.RECORD)


class RecordingRun(_Run):
    """The engine's pass over the graph from one edge on, which leaves a program."""

    __slots__ = ("_ended", "_is_plain", "_is_quiet", "_node", "_numbers", "_order", "_refs", "_steps")

    def __init__(self, retain_graph: bool) -> None:
        super().__init__(retain_graph, False, ())
        self._steps: list[Any] = []
        self._ended: list[list[int]] = [[]]
        self._numbers: dict[int, int] = {}
        self._refs: list[ReferenceType[Value]] = []
        self._order: list[Node] = []
        self._node: OpNode | None = None
        self._is_plain, self._is_quiet = True, False

    def record(self, edge: Edge, gradients: list[Value]) -> Program | None:
        """Make the pass that begins with the one gradient of the list; None where it cannot be repeated."""
        global _active
        current = context.current
        self._track(gradients[0])
        self._receive(edge, gradients.pop())
        before, _active = current.included, self
        current.included |= keys.RECORD
        try:
            self._drain([edge[0]])
        finally:
            current.included, _active = before, None
            self._refs.clear()
        return self._program() if self._is_plain else None

    def _visit(self, node: Node, wanted: set[Node] | None) -> Sequence[Value | None] | None:
        number = len(self._order)
        self._order.append(node)
        grads = self.pending.pop(node, None)
        if node.retained or not isinstance(node, AccumulateGrad | OpNode):
            self._is_plain = False
            if grads is not None:
                self.pending[node] = grads
            return super()._visit(node, wanted)
        if grads is None:
            return None
        if isinstance(node, AccumulateGrad):
            self._arrive(number, node, grads)
            return None
        self._node = node
        self._is_plain = self._is_plain and node.tape.is_foreseen
        results = node.apply(grads)
        self._node = None
        if not self.retain_graph:
            node.release()
            if node.saved is None:
                self._note(Release(number, ()))
        return results

    def _arrive(self, number: int, leaf: AccumulateGrad, grads: list[Value | None]) -> None:
        if grads[0] is None:
            return
        value = self._numbers.get(id(grads[0]), -1)
        self._is_plain = self._is_plain and value >= 0
        self._note(Accumulation(number, value, False, ()))
        self._is_quiet = True
        try:
            accumulate(leaf.leaf, grads.pop(), False)  # type: ignore[arg-type]
        finally:
            self._is_quiet = False

    def note_operation(self, operator: Operator, args: tuple[Any, ...], signature: Any, result: Any) -> None:
        """An operation that a backend has run."""
        if not self._is_plain or self._is_quiet:
            return
        plan = operator.plans.get(signature)
        sources = [self._source(arg) for arg in args]
        if plan is None or not plan.outs or None in sources:
            self._is_plain = False
            return
        given = [(place, source) for place, source in enumerate(sources) if source is not _CONSTANT]
        places = {place for place, _ in given}
        constants = [None if place in places else arg for place, arg in enumerate(args)]
        if result.__class__ is tuple:
            results: Any = tuple([self._track(value) for value in result])
        else:
            results = self._track(result)
        self._note(Step(
            plan.run, constants,
            tuple([(p, s.number) for p, s in given if s.__class__ is Intermediate]),
            tuple([(p, s.held) for p, s in given if s.__class__ is SavedItem]),
            tuple([(p, s) for p, s in given if s.__class__ is tuple]), results, (),
        ))  # fmt: skip

    def _note(self, step: Any) -> None:
        self._steps.append(step)
        self._ended.append([])

    def _track(self, value: Value) -> int:
        """The number of an intermediate result; its end will be noted."""
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._refs)
            self._refs.append(ref(value, partial(self._end, id(value), number)))
        return number

    def _end(self, key: int, number: int, _: Any) -> None:
        del self._numbers[key]
        self._ended[-1].append(number)

    def _source(self, arg: Any) -> Any:
        """Where an argument comes from; None where that is not known."""
        if arg.__class__ is tuple and any([item.__class__ is Value for item in arg]):
            items = tuple([item if item.__class__ is not Value else self._source_of(item) for item in arg])
            return None if any([given is not None and item is None for item, given in zip(items, arg)]) else items
        return self._source_of(arg) if arg.__class__ is Value else _CONSTANT

    def _source_of(self, value: Value) -> Intermediate | SavedItem | None:
        number = self._numbers.get(id(value))
        if number is not None:
            return Intermediate(number)
        held = self._held(value) if self._node is not None else None
        return None if held is None else SavedItem(held)

    def _held(self, value: Value) -> Held | None:
        """The place of what the node whose turn it is has saved."""
        number, node = len(self._order) - 1, self._node
        for place, kept in enumerate(node.saved or ()):  # type: ignore[union-attr]
            for element, item in enumerate(kept.items) if isinstance(kept, SavedList) else ((-1, kept),):
                if _is_of(item, value):
                    return number, place, element
        return None

    def _program(self) -> Program:
        """What is still alive is held by others, as the base of a view or as a leaf's gradient: it ends where it was
        needed last, so that a replay does not hold it either.
        """
        steps: list[Any] = []
        mortal, needed = set(chain.from_iterable(self._ended)), set[int]()
        for step, dead in zip(reversed(self._steps), reversed(self._ended[1:]), strict=True):
            ended = set(dead)
            if step.__class__ is Accumulation:
                step = step._replace(is_last=step.value not in needed)
                ended.discard(step.value)
                needed.add(step.value)
            elif step.__class__ is Step:
                touched = _touched(step)
                ended.update(number for number in touched if number not in needed and number not in mortal)
                needed.update(touched)
            needed.update(ended)
            steps.append(step._replace(ended=tuple(sorted(ended))))
        return Program(_shapes(self._order), steps[::-1])


def _touched(step: Step) -> list[int]:
    """The numbers of what an operation takes and gives."""
    listed = [item.number for _, items in step.lists for item in items if item.__class__ is Intermediate]
    given = step.results if isinstance(step.results, tuple) else (step.results,)
    return [*[number for _, number in step.intermediate], *listed, *given]


def _is_of(kept: Any, value: Value) -> bool:
    return isinstance(kept, Saved) and kept.storage is value.storage and kept.meta is value.meta


def _shapes(order: list[Node]) -> list[Shape]:
    numbers = {id(node): number for number, node in enumerate(order)}
    met: set[int] = set()
    return [_shape(node, numbers, met) for node in order]


def _shape(node: Any, numbers: dict[int, int], met: set[int]) -> Shape:
    if node.__class__ is AccumulateGrad:
        return Shape(node.leaf.meta, ())
    goals: list[Goal | None] = []
    for edge in node.edges:
        if edge is None:
            goals.append(None)
            continue
        following, output = edge
        target = numbers[id(following)]
        goals.append(Goal(target, output, target not in met))
        met.add(target)
    return Shape(node.tape, tuple(goals))


class _Constant:
    """What is the same in every pass."""


_CONSTANT = _Constant()
_active: RecordingRun | None = None


def _record(operator: Operator, args: tuple[Any, ...], signature: tuple[Any, ...], key_set: int) -> Any:
    """Run an operation and write it down; what its kernel calls for itself is part of it."""
    lower, current = key_set & _BELOW, context.current
    current.included &= ~keys.RECORD
    try:
        result = redispatch(operator, args, signature, lower)
    finally:
        current.included |= keys.RECORD
    if _active is not None and operator.resolved[lower] is run_backend:
        _active.note_operation(operator, args, signature, result)
    elif _active is not None:
        _active._is_plain = False
    return result


BOXED[keys.RECORD] = _record
