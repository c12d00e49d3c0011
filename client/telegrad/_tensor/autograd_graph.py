"""The client's autograd graph: enough of it to know which leaves a backward pass will give a ``.grad``.

It has nodes and their parents only. Saved values and derivative formulas are in the server's graph. Knows no tensors
beyond weak references to those that receive gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import ReferenceType


class OperationNode:
    """The operation that a tensor was computed by; ``parents`` are the edges of its operands that require a gradient.

    ``retained`` refers to the tensor if its ``retain_grad`` was called.
    """

    __slots__ = ("name", "parents", "retained")

    def __init__(self, parents: tuple[GradientEdge, ...], name: str = "") -> None:
        self.parents = parents
        self.name = name
        self.retained: ReferenceType[Any] | None = None


class LeafNode:
    """A leaf tensor, which receives a ``.grad``; refers to it weakly."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: ReferenceType[Any]) -> None:
        self.tensor = tensor


GradientEdge = OperationNode | LeafNode
"""Where the gradient of a tensor goes."""


class GradFn:
    """What ``Tensor.grad_fn`` shows: the name of the operation that a tensor was computed by."""

    def __init__(self, node: OperationNode) -> None:
        self._node = node

    def name(self) -> str:
        """Return a name such as ``AddBackward0``."""
        return self._node.name

    def __repr__(self) -> str:
        return f"<{self.name()}>"


class Aliases:
    """What all views of one memory share: how often it was written by a differentiated operation, and the last such.

    A view that has seen an older ``version`` takes over ``node`` before it is used (``Tensor._refresh``).
    """

    __slots__ = ("node", "version")

    def __init__(self) -> None:
        self.node: GradientEdge | None = None
        self.version = 0


def reachable(roots: Iterable[GradientEdge]) -> set[GradientEdge]:
    """Return all nodes that gradients of ``roots`` flow to, the roots included."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        node = stack.pop()
        for parent in node.parents if isinstance(node, OperationNode) else ():
            if parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return seen


def gradient_receivers(roots: Iterable[GradientEdge]) -> list[Any]:
    """Return the tensors that a backward pass from ``roots`` gives a ``.grad``: leaves, and results that retain theirs.

    ``roots`` are walked here and not by ``reachable``, since the order of the result must not change from run to run.
    """
    seen: set[GradientEdge] = set(roots)
    stack = list(seen)
    receivers: list[Any] = []
    while stack:
        node = stack.pop()
        if isinstance(node, LeafNode):
            tensor = node.tensor()
        else:
            tensor = node.retained() if node.retained is not None else None
            for parent in node.parents:
                if parent not in seen:
                    seen.add(parent)
                    stack.append(parent)
        if tensor is not None:
            receivers.append(tensor)
    return receivers
