"""Nested dicts, lists and tuples, and what is in them, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def leaves_of(tree: Any) -> list[Any]:
    """Return everything in a nested structure that is no dict, list or tuple."""
    leaves: list[Any] = []
    mapped(tree, leaves.append)
    return leaves


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return the structure with what ``change`` makes of everything in it."""
    if isinstance(tree, dict):
        changed = {key: mapped(item, change) for key, item in tree.items()}
        return changed if type(tree) is dict else type(tree)(changed)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[mapped(item, change) for item in tree])
    if isinstance(tree, (list, tuple)):
        return type(tree)([mapped(item, change) for item in tree])
    return change(tree)


def with_leaves(tree: Any, leaves: list[Any]) -> Any:
    """Return the structure with these in the place of what is in it."""
    rest = iter(leaves)
    return mapped(tree, lambda _: next(rest))
