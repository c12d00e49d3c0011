"""Paths between nodes of a graph."""

from __future__ import annotations

from collections.abc import Sequence

from telegrad.fx.node import Node


def validate_partition(partition: Sequence[Node]) -> bool:
    """Whether no path leads from one of these nodes over another one back to them, so that they can become one."""
    inside = set(partition)
    waiting = [user for node in inside for user in node.users if user not in inside]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in inside:
            return False
        if node not in seen:
            seen.add(node)
            waiting.extend(node.users)
    return True
