"""Which tensors a backward pass gives a ``.grad``: leaves, and results that retain theirs. Knows no session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .autograd_graph import ClientNode, DeferredNode, GradientEdge, GradientNode, LeafNode, OperationNode, StandInNode


class Receivers(NamedTuple):
    """The tensors that a backward pass gives a ``.grad``; ``are_certain`` tells whether a gradient reaches all.

    ``stand_ins`` are the nodes of those among them that stand in place of another leaf; ``moved`` are those of which
    the server knows what form their gradients have.
    """

    tensors: list[Any]
    are_certain: bool
    stand_ins: list[StandInNode]
    moved: list[Any]

    @staticmethod
    def usual(roots: Any) -> list[Any] | None:
        """Return the tensors if C finds them, which looks at nodes without extras alone; else Python does (0098)."""
        return None


def gradient_receivers(roots: Iterable[GradientEdge]) -> Receivers | None:
    """Return the tensors that a backward pass from ``roots`` gives a ``.grad``: leaves, and results that retain theirs.

    Return None where the pass calls hooks or functions of the client's program. ``roots`` are walked here and not by
    ``reachable``, since the order of the result must not change from run to run.
    """
    found = Receivers.usual(roots)
    if found is not None:
        return Receivers(found, True, [], [])
    seen: set[GradientEdge] = set(roots)
    stack = list(seen)
    receivers: list[Any] = []
    stand_ins: list[StandInNode] = []
    moved: list[Any] = []
    are_certain = True
    while stack:
        node = stack.pop()
        extras = node.extras
        if extras is None and type(node) is OperationNode:  # nearly all nodes
            for parent in node.parents:
                if parent not in seen:
                    seen.add(parent)
                    stack.append(parent)
            continue
        if extras is not None:
            if extras.watched or node.__class__ is ClientNode or extras.hooked():
                return None
            are_certain = are_certain and node.__class__ is not GradientNode
            if isinstance(node, StandInNode):
                stand_ins.append(node)
        if isinstance(node, LeafNode):
            tensor = node.tensor()
            if tensor is not None and tensor._requires_grad:
                receivers.append(tensor)
                if extras is not None and extras.is_moved:
                    moved.append(tensor)
            continue
        if extras is not None:
            receivers += extras.retaining()
        edges = node.edges if isinstance(node, DeferredNode) and node.is_deferred else node.parents
        for parent in edges:
            if parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return Receivers(receivers, are_certain, stand_ins, moved)


def receivers_at(node: GradientEdge) -> list[Any]:
    """Return the tensors that the gradients of a node are stored in."""
    if isinstance(node, LeafNode):
        leaf = node.tensor()
        return [] if leaf is None or not (leaf._requires_grad or leaf._session.holds_gradients) else [leaf]
    return [] if node.extras is None else node.extras.retaining()


def moved_at(node: GradientEdge) -> list[Any]:
    """Return the leaf of a node, if its gradients may have another form than it has now."""
    return receivers_at(node) if node.extras is not None and node.extras.is_moved else []
