"""The part of the backward graph that a run leaves: written down by its nodes, and made anew after each run.

A node is the same operation on the same metas; what it has saved are inputs of the run or outputs of the executable. So
whatever is done with the graph afterwards, hooks and second derivatives included, is what it is after instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from server.engine.autograd.graph import AccumulateGrad, Edge, Node, SavedOutput, SavedTensor, SavedTensorList
from server.engine.autograd.inplace import edge_of
from server.engine.autograd.node import GradientPlan, OpNode
from server.engine.operators import Operator
from server.engine.programs.graph import Slot
from server.engine.value import Value
from telegrad_protocol.meta import Meta


class Input(NamedTuple):
    """The history of an input, by the place of that input among the program's values."""

    place: int


PatternEdge: TypeAlias = "tuple[int, int] | Input | None"
"""Where a gradient flows: a node of the run by its number, and which of its outputs; or into an input."""


class SavedInput(NamedTuple):
    """An input that a node has saved, with its history."""

    place: int


class SavedResult(NamedTuple):
    """A value that a node has saved, and what made it: the ``number`` of the node's own result, if that is not None."""

    output: int
    history: PatternEdge
    number: int | None


class NodePattern(NamedTuple):
    """A node of the graph; a list in ``saved`` stands for a list of tensors."""

    plan: GradientPlan
    edges: tuple[PatternEdge, ...]
    metas: tuple[Meta, ...]
    saved: tuple[Any, ...]
    composed: tuple[Operator, tuple[PatternEdge, ...]] | None


class UnknownHistoryError(Exception):
    """A graph has what cannot be made anew."""


def made_anew(patterns: Sequence[NodePattern], values: Sequence[Value], outputs: Sequence[Value]) -> list[OpNode]:
    """Return the nodes of a run, in the order in which their operations were recorded."""
    nodes: list[OpNode] = []
    for plan, edges, metas, saved, composed in patterns:
        node = OpNode(plan, [_edge(edge, nodes, values) for edge in edges], metas, [])
        node.saved = [_saved(item, node, nodes, values, outputs) for item in saved]
        if composed is not None:
            node.composed = composed[0], [_edge(edge, nodes, values) for edge in composed[1]]
        nodes.append(node)
    return nodes


def _edge(edge: PatternEdge, nodes: Sequence[OpNode], values: Sequence[Value]) -> Any:
    if edge is None:
        return None
    return edge_of(values[edge.place]) if isinstance(edge, Input) else (nodes[edge[0]], edge[1])


def _saved(item: Any, own: OpNode, nodes: Sequence[OpNode], values: Sequence[Value], outputs: Sequence[Value]) -> Any:
    if isinstance(item, SavedInput):
        return SavedTensor(values[item.place])
    if isinstance(item, SavedResult):
        if item.number is not None:
            return SavedOutput(outputs[item.output], own, item.number)
        return SavedTensor.of(outputs[item.output], _edge(item.history, nodes, values))
    if isinstance(item, list):
        return SavedTensorList(tuple([_saved(one, own, nodes, values, outputs) for one in item]))
    return item


class HistoryWriter:
    """Writes down the nodes that lead from results of a run to its inputs, which are ``values``.

    ``slot_of`` returns what stands for a value's memory and meta in the recorded graph, ``output_of`` the number of
    the output that a slot is. ``before`` are the histories that the inputs had.
    """

    def __init__(
        self, values: Sequence[Value], before: Sequence[Any], slot_of: Callable[[Any], Slot | None],
        output_of: Callable[[Slot], int],
    ) -> None:  # fmt: skip
        self._values, self._slot_of, self._output_of = values, slot_of, output_of
        self._leaves = {id(value): place for place, value in reversed(list(enumerate(values)))}
        self._outside = {edge: place for place, edge in reversed(list(enumerate(before))) if edge is not None}
        self._numbers: dict[Node, int] = {}

    def written(self, roots: Iterable[Node]) -> tuple[list[NodePattern], Mapping[Node, int]]:
        """Return the patterns of all nodes that these depend on, in order, and the number of each node.

        Raises UnknownHistoryError for nodes that are no operation's, and values that nothing is known of.
        """
        nodes = self._reached(roots)
        self._numbers = {node: number for number, node in enumerate(nodes)}
        return [self._pattern(node) for node in nodes], self._numbers

    def _reached(self, roots: Iterable[Node]) -> list[OpNode]:
        reached: dict[OpNode, None] = {}
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if node.__class__ is not OpNode or node.saved is None or node.retained:
                raise UnknownHistoryError(node.name)
            if node in reached:
                continue
            reached[node] = None
            edges = [*node.edges, *map(_history_of, _tensors_in(node.saved))]
            waiting += [edge[0] for edge in edges if edge is not None and not self._is_outside(edge)]
        return sorted(reached, key=lambda node: node.sequence)

    def _is_outside(self, edge: Any) -> bool:
        return edge in self._outside or edge[0].__class__ is AccumulateGrad

    def _edge(self, edge: Any) -> PatternEdge:
        if edge is None:
            return None
        if edge in self._outside:
            return Input(self._outside[edge])
        node, output = edge
        place = self._leaves.get(id(node.leaf)) if isinstance(node, AccumulateGrad) else None
        if place is not None:
            return Input(place)
        number = self._numbers.get(node)
        if number is None:
            raise UnknownHistoryError(node.name)
        return number, output

    def _pattern(self, node: OpNode) -> NodePattern:
        composed = getattr(node, "composed", None)
        edges = tuple([self._edge(edge) for edge in node.edges])
        if any([edge.__class__ is tuple and edge[0] >= self._numbers[node] for edge in edges]):
            raise UnknownHistoryError(node.name)
        return NodePattern(
            node.plan, edges, node.metas, tuple([self._saved(item, node) for item in node.saved or ()]),
            None if composed is None else (composed[0], tuple([self._edge(edge) for edge in composed[1]])),
        )  # fmt: skip

    def _saved(self, item: Any, node: OpNode) -> Any:
        if item.__class__ is SavedTensorList:
            return [self._saved(one, node) for one in item.items]
        if not isinstance(item, SavedTensor):
            return item
        if item.version != item.storage.version:  # it was modified, which the pass will refuse
            raise UnknownHistoryError(node.name)
        if item.value is not None:
            place = self._leaves.get(id(item.value))
            if place is None:
                raise UnknownHistoryError(node.name)
            return SavedInput(place)
        slot = self._slot_of(item)
        if slot is None:
            raise UnknownHistoryError(node.name)
        if item.__class__ is SavedOutput:
            return SavedResult(self._output_of(slot), None, item.output)
        history = None if item.node is None else self._edge((item.node, item.output))
        return SavedResult(self._output_of(slot), history, None)


def _history_of(saved: SavedTensor) -> Edge | None:
    """Return what made a saved value, unless that is the node that has saved it."""
    if saved.value is not None or saved.node is None or isinstance(saved, SavedOutput):
        return None
    return saved.node, saved.output  # type: ignore[return-value]


def _tensors_in(saved: Iterable[Any]) -> list[SavedTensor]:
    lists = [item.items if item.__class__ is SavedTensorList else (item,) for item in saved]
    return [item for items in lists for item in items if isinstance(item, SavedTensor)]
