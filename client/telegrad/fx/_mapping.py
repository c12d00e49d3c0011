"""Arguments of nodes: walks over the tuples, lists, dictionaries and slices that hold nodes and constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .immutable_collections import immutable_dict, immutable_list


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Return an argument with every leaf replaced by what ``fn`` gives; lists and dictionaries become immutable."""
    if isinstance(a, tuple):
        items = [map_aggregate(item, fn) for item in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(item, fn) for item in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(value, fn) for key, value in a.items()})
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def leaves(a: Any) -> Iterator[Any]:
    """Give the leaves of an argument, in order."""
    if isinstance(a, (tuple, list)):
        for item in a:
            yield from leaves(item)
    elif isinstance(a, dict):
        for item in a.values():
            yield from leaves(item)
    elif isinstance(a, slice):
        yield from leaves((a.start, a.stop, a.step))
    else:
        yield a
