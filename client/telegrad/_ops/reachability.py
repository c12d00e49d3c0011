"""Reachability on the client: just enough of the graph to know which leaves a backward pass will give a ``.grad``.

The graph itself, with saved values and formulas, is the server's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

if TYPE_CHECKING:
    from telegrad._tensor.tensor import Tensor


class Node:
    """A result: what it was computed from, as far as that requires a gradient."""

    __slots__ = ("name", "parents", "retained")

    def __init__(self, parents: tuple[Reach, ...], name: str = "") -> None:
        self.parents = parents
        self.name = name
        self.retained: ReferenceType[Tensor] | None = None


class GradFn:
    """What a tensor was computed by, as far as the client knows."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def name(self) -> str:
        """Such as ``AddBackward0``."""
        return self._node.name

    def __repr__(self) -> str:
        return f"<{self.name()}>"


class Leaf:
    """A tensor that receives a ``.grad``."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor: ReferenceType[Tensor] = ref(tensor)


Reach = Node | Leaf


class Aliases:
    """What all views of one memory share: the node that an in-place operation gave their root."""

    __slots__ = ("node", "version")

    def __init__(self) -> None:
        self.node: Reach | None = None
        self.version = 0


def receivers(roots: Iterable[Reach]) -> list[Tensor]:
    """The tensors that a backward pass from ``roots`` gives a gradient: leaves, and results that retain theirs."""
    seen: set[Reach] = set(roots)
    stack = list(seen)
    found: list[Tensor] = []
    while stack:
        node = stack.pop()
        if isinstance(node, Leaf):
            holder = node.tensor()
        else:
            holder = node.retained() if node.retained is not None else None
            for parent in node.parents:
                if parent not in seen:
                    seen.add(parent)
                    stack.append(parent)
        if holder is not None:
            found.append(holder)
    return found
