"""The nodes of a graph in order, as a list that may change while it is walked; and where new nodes go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class NodeList:
    """The nodes of a graph, from the first to the last or, reversed, from the last to the first."""

    def __init__(self, graph: Any, direction: str = "_next") -> None:
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return int(self.graph._len)

    def __iter__(self) -> Iterator[Any]:
        node = getattr(self.graph._root, self.direction)
        while node is not self.graph._root:
            if not node._erased:
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> Iterator[Any]:
        return iter(NodeList(self.graph, "_prev" if self.direction == "_next" else "_next"))


class InsertPoint:
    """Lets a graph put new nodes at a place; as a context manager, until the end of the block."""

    def __init__(self, graph: Any, insert: Callable[[Any], None]) -> None:
        self.graph = graph
        self._before, graph._insert = graph._insert, insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.graph._insert = self._before
