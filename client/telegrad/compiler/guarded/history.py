"""What results of a call were computed by, as the client knows it for backward passes: written down, and made again."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from telegrad._tensor.autograd_graph import DeferredNode, GradientEdge, OperationNode, new_node
from telegrad._tensor.tensor import Tensor

from .plain_run import ImpureError

_NONE: Final[Mapping[int, GradientEdge]] = MappingProxyType({})
_OF_WRITES: Final = frozenset(("torch::autograd::CopySlices", "AsStridedBackward0"))
"""Nodes of writes into views, which change the history of other tensors."""


class History:
    """The nodes that lead from the tensors that a call took to those that it made.

    A step is a node, with the numbers of its parents, or one of the tensors that were there before: its place among the
    arguments, or the tensor itself. The number of a node is that of its step.
    """

    def __init__(self, given: list[Tensor], others: list[Tensor]) -> None:
        self._steps: list[tuple[str, list[int]] | int | Tensor] = []
        self._wanted: set[int] = set()
        """The numbers that were returned for results."""
        self._pushed: list[int] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[GradientEdge] = []
        """Nodes that have a number: no others get their ``id``."""
        self._sources: dict[int, int | Tensor] = {id(one._node): one for one in others if one._node is not None}
        self._sources |= {id(one._node): place for place, one in enumerate(given) if one._node is not None}

    def add(self, node: GradientEdge) -> int:
        """Write down what leads to a node, and return its number; raises ImpureError where that cannot be made."""
        if id(node) in self._sources:
            raise ImpureError("it returns a tensor with the history of one that it took")
        for one in self._in_order(node):
            source = self._sources.get(id(one))
            if source is None:
                self._steps.append((one.name, [self._numbers[id(parent)] for parent in one.parents]))
            else:
                self._steps.append(source)
            self._kept.append(one)
            self._numbers[id(one)] = len(self._numbers)
        self._wanted.add(self._numbers[id(node)])
        return self._numbers[id(node)]

    def _in_order(self, node: GradientEdge) -> list[Any]:
        """Return the nodes without a number that lead to one, each after its parents."""
        order: list[Any] = []
        seen = set(self._numbers)
        stack: list[tuple[GradientEdge, bool]] = [(node, False)]
        while stack:
            one, is_ready = stack.pop()
            if is_ready:
                order.append(one)
            elif id(one) not in seen:
                seen.add(id(one))
                stack.append((one, True))
                if id(one) not in self._sources:
                    stack += [(parent, False) for parent in _parents(one)]
        return order

    def settle(self) -> None:
        """Keep nothing but what the nodes are made of."""
        self._numbers, self._sources, self._kept = {}, {}, []
        if len(self._wanted) == 1:
            self._pushed = self._order_of_walk(*self._wanted)

    def _order_of_walk(self, number: int) -> list[int]:
        """Return the steps that are tensors, in the order in which a walk from a node would have to note them at once.

        It then comes to them in the order in which it would by the nodes between.
        """
        seen, stack, met = {number}, [number], []
        while stack:
            step = self._steps[one := stack.pop()]
            if step.__class__ is not tuple:
                met.append(one)
                continue
            further = [parent for parent in dict.fromkeys(step[1]) if parent not in seen]
            seen.update(further)
            stack += further
        return met[::-1]

    def made(self, given: list[Tensor]) -> Mapping[int, GradientEdge]:
        """Return the nodes of the results anew, by number, for a call with these arguments."""
        if not self._wanted:
            return _NONE
        if len(self._wanted) == 1:
            (number,) = self._wanted
            name: Any = self._steps[number]
            edges = [_edge(self._steps[one], given) for one in self._pushed]
            return {number: DeferredNode(name[0], edges, self._expanded)}
        return dict(enumerate(self._nodes({}, given)))

    def _expanded(self, edges: list[GradientEdge]) -> tuple[GradientEdge, ...]:
        """Return the parents of the only node that is asked for, given what the tensors' nodes were."""
        (number,) = self._wanted
        nodes = self._nodes(dict(zip(self._pushed, edges, strict=True)), [])
        return cast("OperationNode", nodes[number]).parents

    def _nodes(self, known: dict[int, GradientEdge], given: list[Tensor]) -> list[GradientEdge]:
        """Return all nodes anew; those of tensors where they are not ``known``."""
        nodes: list[GradientEdge] = []
        for number, step in enumerate(self._steps):
            if step.__class__ is tuple:
                name, parents = step
                nodes.append(new_node([nodes[parent] for parent in parents], name))
            else:
                nodes.append(known.get(number) or _edge(step, given))
        return nodes


def _edge(step: Any, given: list[Tensor]) -> GradientEdge:
    tensor: Any = given[step] if step.__class__ is int else step
    return tensor._node or tensor._gradient_edge()  # type: ignore[no-any-return]


def _parents(node: GradientEdge) -> tuple[GradientEdge, ...]:
    if type(node) is not OperationNode or node.extras is not None or node.name in _OF_WRITES:
        raise ImpureError("it has a history that cannot be made again")
    return node.parents
