"""Recording a backward pass as a program: the engine makes the pass, and the Record key shows each of its operations.

An operand is a value that this pass made, a saved tensor of the node that is being visited, or a constant; if it is
anything else, the pass is not recorded. When each value of the pass is freed is noted too, so that a replay frees it at
the same point.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeAlias
from weakref import ReferenceType, ref

from server.engine import context
from server.engine.autograd import sparing
from server.engine.autograd.gradients import accumulate
from server.engine.autograd.graph import AccumulateGrad, Edge, Node
from server.engine.autograd.graph_task import GraphTask
from server.engine.autograd.node import OpNode
from server.engine.operators import Operator
from server.engine.signature import metas_of
from server.engine.value import Value

from . import record_key
from .backward_program import (
    Accumulation,
    EdgeTarget,
    IntermediateElement,
    NamedOperation,
    NodePattern,
    Operation,
    Program,
    Release,
    SavedElement,
)
from .saved_operands import SavedOperands

Places: TypeAlias = tuple[tuple[int, Any], ...]
"""Where some of an operation's arguments come from, by place."""


class RecordingTask(GraphTask):
    """A pass over the graph from one edge on that leaves a program.

    ``_freed`` has one list more than there are steps: the numbers of the values that were freed after each of them.
    """

    lets_spend = True
    __slots__ = (
        "_freed",
        "_identity",
        "_is_accumulating",
        "_is_repeatable",
        "_numbers",
        "_operations",
        "_order",
        "_refs",
        "_saved",
        "_steps",
    )

    def __init__(self, retain_graph: bool) -> None:
        super().__init__(retain_graph, False, ())
        self._steps: list[Any] = []
        self._freed: list[list[int]] = [[]]
        self._numbers: dict[int, int] = {}
        self._operations: list[NamedOperation] = []
        self._refs: list[ReferenceType[Value]] = []
        self._order: list[Node] = []
        self._identity: tuple[int, str] | None = None
        self._saved = SavedOperands()
        self._is_repeatable, self._is_accumulating = True, False

    def record(self, edge: Edge, gradients: list[Value]) -> Program | None:
        """Make the pass that begins with the one gradient of the list; returns None if it cannot be repeated."""
        current = context.current
        self._track(gradients[0])
        before = record_key.start(current, self)
        try:
            self.execute_from(edge, gradients)
        finally:
            record_key.stop(current, before)
            self._refs.clear()
        return self._program() if self._is_repeatable else None

    def note_beginning(self, operator: Operator, args: tuple[Any, ...]) -> None:
        """Do nothing: an operation is noted when it has been executed."""

    def note_elements_read(self, name: str) -> None:
        """Give up: what the pass does depends on elements."""
        self.note_other(name)

    def visit(self, node: Node, wanted: set[Node] | None) -> Sequence[Value | None] | None:
        number = len(self._order)
        self._order.append(node)
        grads = self.pending.pop(node, None)
        if node.retained or not isinstance(node, AccumulateGrad | OpNode):
            self._is_repeatable = False
            if grads is not None:
                self.pending[node] = grads
            return super().visit(node, wanted)
        if grads is None:
            return None
        if isinstance(node, AccumulateGrad):
            self._accumulate(number, node, grads)
            return None
        self._identity = number, node.name
        self._is_repeatable = self._is_repeatable and node.plan.has_known_results
        if not self.retain_graph and sparing.spares(node, grads):
            results = self._saved.take_turns(node, grads, partial(self._release, number))
            is_released = node.saved is None
        else:
            results, is_released = self._saved.apply(node, grads), False
        self._identity = None
        if not self.retain_graph and not is_released:
            node.release()
            if node.saved is None:
                self._note(Release(number, ()))
        return results

    def _release(self, number: int, needed: Sequence[tuple[int, Any]]) -> None:
        """Note that a node lets go of what it has saved; the values that it still needs are the pass's own then."""
        taken = [(slot, self._track(value), value.meta) for slot, value in needed if value.__class__ is Value]
        self._note(Release(number, (), tuple(taken)))

    def _accumulate(self, number: int, leaf: AccumulateGrad, grads: list[Value | None]) -> None:
        if grads[0] is None:
            return
        value = self._numbers.get(id(grads[0]), -1)
        self._is_repeatable = self._is_repeatable and value >= 0
        self._note(Accumulation(number, value, False, ()))
        self._is_accumulating = True
        try:
            accumulate(leaf.leaf, grads.pop(), False)  # type: ignore[arg-type]
        finally:
            self._is_accumulating = False

    def note_operation(self, operator: Operator, args: tuple[Any, ...], signature: Any, result: Any) -> None:
        """Add an operation that a backend has run to the program."""
        if not self._is_repeatable or self._is_accumulating:
            return
        plan, sources = operator.plans.get(signature), self._sources(args)
        if plan is None or not plan.outs or sources is None:
            self._is_repeatable = False
            return
        if result.__class__ is tuple:
            results: Any = tuple([self._track(value) for value in result])
        else:
            results = self._track(result)
        self._operations.append(NamedOperation(operator, metas_of(args), self._identity))
        self._steps.append(Operation(plan.run, *sources, results, (), _spendable(sources[1], args, plan.outs)))
        self._freed.append([])

    def _sources(self, args: tuple[Any, ...]) -> tuple[list[Any], Places, Places, Places] | None:
        """Return an operation's arguments without tensors, and where these come from; None if that is not known."""
        constants, numbers = list(args), self._numbers
        intermediate, saved, lists = [], [], []
        for place, arg in enumerate(args):
            if arg.__class__ is Value:
                number = numbers.get(id(arg))
                if number is not None:
                    intermediate.append((place, number))
                else:
                    slot = self._saved.place_of(arg)
                    if slot is None:
                        return None
                    saved.append((place, (len(self._order) - 1, *slot)))
            elif arg.__class__ is tuple and any([item.__class__ is Value for item in arg]):
                items = tuple([self._source_of(item) if item.__class__ is Value else item for item in arg])
                if any([source is None and item is not None for source, item in zip(items, arg)]):
                    return None
                lists.append((place, items))
            else:
                continue
            constants[place] = None
        return constants, tuple(intermediate), tuple(saved), tuple(lists)

    def note_other(self, name: str) -> None:
        """Note that the pass cannot be repeated as a program of backends' operations."""
        self._is_repeatable = False

    def note_upload(self, value: Value) -> None:
        """Note that the pass cannot be repeated: a request has come in between."""
        self._is_repeatable = False

    def _note(self, step: Any) -> None:
        self._steps.append(step)
        self._freed.append([])

    def _track(self, value: Value) -> int:
        """Return the number of a value that the pass makes, and note when it is freed."""
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._refs)
            self._refs.append(ref(value, partial(self._note_freed, id(value), number)))
        return number

    def _note_freed(self, key: int, number: int, _: Any) -> None:
        del self._numbers[key]
        self._freed[-1].append(number)

    def _source_of(self, value: Value) -> IntermediateElement | SavedElement | None:
        number = self._numbers.get(id(value))
        if number is not None:
            return IntermediateElement(number)
        place = self._saved.place_of(value)
        return None if place is None else SavedElement((len(self._order) - 1, *place))

    def _program(self) -> Program:
        """Return the program of the pass that was just made."""
        return Program(_patterns(self._order), self._finished(set()), self._operations)

    def _finished(self, needed: set[int]) -> list[Any]:
        """Return the steps, with the values that leave the table after each; those ``needed`` stay in it.

        A value that is still alive is held by others, as the base of a view or as a leaf's gradient. It leaves the
        table after the last step that needs it, so that a replay does not hold it either.
        """
        steps: list[Any] = []
        all_freed, used = set(chain.from_iterable(self._freed)), set(needed)
        for step, freed in zip(reversed(self._steps), reversed(self._freed[1:]), strict=True):
            if step.__class__ is Operation:
                run, arguments, intermediate, saved, lists, results, _, spent = step
                touched = _touched(step)
                if spent >= 0 and (spent in used or touched.count(spent) != 1):
                    spent = -1
                freed = freed + [number for number in touched if number not in needed and number not in all_freed]
                needed.update(touched)
                used.update(touched)
                step = Operation(run, arguments, intermediate, saved, lists, results, _in_order(freed), spent)
            elif step.__class__ is Accumulation:
                freed = [number for number in freed if number != step.value]
                step = Accumulation(step.node, step.value, step.value not in needed, _in_order(freed))
                needed.add(step.value)
                used.add(step.value)
            else:
                step = Release(step.node, _in_order(freed), step.taken)
            needed.update(freed)
            steps.append(step)
        return steps[::-1]


def _in_order(numbers: list[int]) -> tuple[int, ...]:
    """Return the numbers in their order, each once."""
    return tuple(numbers) if len(numbers) < 2 else tuple(sorted(set(numbers)))


def _spendable(intermediate: Sequence[tuple[int, int]], args: tuple[Any, ...], outs: Sequence[Any]) -> int:
    """The number of an operation's first operand, where that is large and laid out as the first result; else -1.

    The gradient that a pass begins with, which has the number 0, is none: others may hold it in each pass.
    """
    if not intermediate or intermediate[0][0] or outs[0] is not args[0].meta:
        return -1
    return -1 if args[0].meta.nbytes < args[0].backend.least_spent else intermediate[0][1] or -1


def _touched(step: Operation) -> list[int]:
    """The numbers of the values that an operation takes and makes."""
    touched = [number for _, number in step.intermediate]
    for _, items in step.lists:
        touched += [item.number for item in items if item.__class__ is IntermediateElement]
    if step.results.__class__ is int:
        touched.append(step.results)
    else:
        touched += step.results  # type: ignore[arg-type]  # results are no single number here
    return touched


def _patterns(order: list[Node]) -> list[NodePattern]:
    numbers = {id(node): number for number, node in enumerate(order)}
    seen: set[int] = set()
    return [_pattern(node, numbers, seen) for node in order]


def _pattern(node: Any, numbers: dict[int, int], seen: set[int]) -> NodePattern:
    if node.__class__ is AccumulateGrad:
        return NodePattern(node.leaf.meta, ())
    targets: list[EdgeTarget | None] = []
    for edge in node.edges:
        if edge is None:
            targets.append(None)
            continue
        following, output = edge
        number = numbers[id(following)]
        targets.append(EdgeTarget(number, output, number not in seen))
        seen.add(number)
    return NodePattern(node.plan, tuple(targets))
