"""How calls are written: looked at once for all calls that are written so, and kept. Knows no session."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.ops import Op

_CAPACITY = 1 << 15
_PATTERNS: dict[tuple[Any, ...], CallPattern] = {}


class CallPattern:
    """How a call is written: how many arguments are given by place, which by name, and the types of all.

    ``values`` are the arguments by place and then those by name. They are told apart here, once: operands, lists, and
    attributes, which make a key with the pattern. What is not given is the same in every call of the pattern.
    """

    __slots__ = (
        "attributes", "floats", "given", "hides", "is_cacheable", "is_leading", "is_plain", "lists", "names", "op",
        "positions", "shown", "sources", "tensors",
    )  # fmt: skip

    def __init__(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values = (*args, *kwargs.values())
        self.op = op
        self.given, self.names = len(args), tuple(kwargs)
        self.sources = _sources(op, args, kwargs)
        places = {source: position for position, source in enumerate(self.sources)}
        self.is_cacheable = not any(_is_proxy(value) for value in values)
        kinds = [_kind_of(value) for value in values]
        tensors, lists, floats, others = ([i for i, k in enumerate(kinds) if k is kind] for kind in _KINDS)
        self.is_plain = len(tensors) == len(values)
        self.tensors = _picking(tensors)
        self.positions = [places.get(i, -1) for i in tensors]
        self.is_leading = self.positions == list(range(len(tensors)))
        shown = [i for i in tensors if places.get(i) not in op.no_grad]
        self.hides, self.shown = len(shown) < len(tensors), _picking(shown)
        self.lists = [(i, places.get(i, -1)) for i in lists]
        self.floats = _picking(floats) if floats else None
        self.attributes = _picking(others) if others else None

    @staticmethod
    def of(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallPattern:
        """The pattern of a call, the same for all calls that are written so."""
        key = (op, len(args), *kwargs, *map(type, args), *map(type, kwargs.values()))
        found = _PATTERNS.get(key)
        if found is not None:
            return found
        if len(_PATTERNS) >= _CAPACITY:
            _PATTERNS.clear()
        made = CallPattern(op, args, kwargs)
        if made.is_cacheable:
            _PATTERNS[key] = made
        return made

    def bind(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """All arguments in declared order."""
        return self.op.bind(values[: self.given], dict(zip(self.names, values[self.given :], strict=True)))


def count() -> int:
    """Return how many patterns are cached."""
    return len(_PATTERNS)


class _Place:
    """Stands for an argument, to see where it is bound."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def _sources(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | None]:
    """Which value each parameter gets; sizes that are not in a tuple count by their first."""
    start, given = op.varargs_at, len(args)
    if 0 <= start < given and type(args[start]) is int:
        args = args[: start + 1]
    places = tuple([_Place(i) for i in range(len(args))])
    bound = op.bind(places, {name: _Place(given + i) for i, name in enumerate(kwargs)})
    return [each.index if type(each) is _Place else None for each in bound]


_KINDS = ("tensor", "list", "float", "other")


def _kind_of(value: Any) -> str:
    if isinstance(value, Tensor):
        return "tensor"
    if isinstance(value, (tuple, list)):
        return "list"
    if isinstance(value, (float, complex, np.inexact)):
        return "float"
    return "none" if value is None else "other"


def _is_proxy(value: Any) -> bool:
    """Whether it claims another class than its own, as a weak proxy does: then its type does not tell what it is."""
    return value.__class__ is not type(value)


def _picking(indices: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """What gives the tuple of these values."""
    if not indices:
        return itemgetter(slice(0))
    if indices == list(range(indices[0], indices[-1] + 1)):
        return itemgetter(slice(indices[0], indices[-1] + 1))
    return itemgetter(*indices)
