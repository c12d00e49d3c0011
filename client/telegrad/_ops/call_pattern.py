"""Patterns of calls: how a call is written, worked out once for all calls that are written so. Knows no session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Final

import numpy as np

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.contract import is_integer

_MAX_PATTERNS = 1 << 15
"""The cache is emptied at this size."""
_PATTERNS: dict[tuple[Any, ...], CallPattern] = {}


class CallPattern:
    """How a call is written: the operation, how many arguments are positional, the names of the others, types of all.

    The ``values`` of a call are its positional arguments and then those by keyword. For all calls of the pattern this
    says which of the values are what:

    * ``tensors`` picks the tensors, ``attributes`` what a plan depends on besides, None where there is no such value.
    * ``floats`` are the indices of floats and complex numbers, ``lists`` those of lists, ``others`` those of
      ``attributes``; ``tensor_lists`` pairs the index of each list that has tensors with the position of its parameter.
    * ``positions`` are the parameters of the tensors, -1 for one of several values that a parameter takes together;
      ``is_leading`` tells that they are the first parameters, ``is_plain`` that all values are tensors,
      ``is_single`` that the first value is one and no other is.
    * ``has_no_grad`` tells that some of the tensors are never differentiated; ``differentiable`` picks the others.
    * ``has_places`` tells that where operands begin in their memory may matter: some are changed, or seen by a view.
    * ``sources`` has the index of the value of each parameter, None where the call leaves the parameter out;
      ``device_source`` is that of the device on which a result is made.
    * ``no_grad`` are the parameters that are never differentiated; ``updates`` tells that tensors in lists are changed
      as optimizers change them.
    * ``is_usual`` tells that the operation makes or changes one tensor, given others, or lists of tensors, as calls do
      that are done in C.
    * ``is_cacheable`` tells that the types of the values decide all of this, which the types of proxies do not.
    """

    __slots__ = (
        "attributes",
        "device_source",
        "differentiable",
        "floats",
        "given",
        "has_no_grad",
        "has_places",
        "is_cacheable",
        "is_leading",
        "is_plain",
        "is_single",
        "is_usual",
        "lists",
        "names",
        "no_grad",
        "op",
        "others",
        "positions",
        "sources",
        "tensor_lists",
        "tensors",
        "updates",
    )  # fmt: skip

    def __init__(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values = (*args, *kwargs.values())
        _require_dim_of_keepdim(op, args, kwargs)
        self.op = op
        self.given, self.names = len(args), tuple(kwargs)
        self.sources = _sources(op, args, kwargs)
        self.device_source = next(
            (source for p, source in zip(op.params, self.sources, strict=True) if p.kind.name == "device?"), None
        )
        position_of = {source: position for position, source in enumerate(self.sources)}
        self.is_cacheable = not any(_is_proxy(value) for value in values)
        kinds = [_kind_of(value) for value in values]
        tensors, lists, floats, others = (
            [i for i, its_kind in enumerate(kinds) if its_kind is kind] for kind in _KINDS
        )
        self.is_plain = len(tensors) == len(values)
        self.is_single = tensors == [0]
        self.tensors = _picker(tensors)
        self.positions = [position_of.get(i, -1) for i in tensors]
        self.is_leading = self.positions == list(range(len(tensors)))
        differentiable = [i for i in tensors if position_of.get(i) not in op.no_grad]
        self.has_no_grad, self.differentiable = len(differentiable) < len(tensors), _picker(differentiable)
        self.lists, self.floats, self.others = lists, floats, others
        self.has_places = bool(op.mutates) or op.view_of is not None
        placed = [(i, position_of.get(i, -1)) for i in lists]
        self.tensor_lists = [(i, position) for i, position in placed if position in op.tensor_positions]
        self.attributes = _picker(others) if others else None
        self.no_grad, self.updates = op.no_grad, bool(op.updates and self.tensor_lists)
        has_few = len(op.returns) <= 1 and (len(op.mutates) <= 1 or self.updates)
        self.is_usual = has_few

    @staticmethod
    def of(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallPattern:
        """Return the pattern of a call, the same object for all calls that are written so."""
        key = (op, len(args), *kwargs, *map(type, args), *map(type, kwargs.values()))
        pattern = _PATTERNS.get(key)
        if pattern is not None:
            return pattern
        if len(_PATTERNS) >= _MAX_PATTERNS:
            _PATTERNS.clear()
        pattern = CallPattern(op, args, kwargs)
        if pattern.is_cacheable:
            _PATTERNS[key] = pattern
        return pattern

    def bind(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments for all parameters of the operation, in declared order."""
        return self.op.bind(values[: self.given], dict(zip(self.names, values[self.given :], strict=True)))


def count() -> int:
    """Return how many patterns are cached."""
    return len(_PATTERNS)


def types_of(values: tuple[Any, ...], names: Iterable[str] = ()) -> tuple[Any, ...]:
    """Return the types of values, and names after them; ``map`` and comprehensions are slower for so few."""
    types: list[Any] = []
    for value in values:
        types.append(type(value))
    types += names
    return tuple(types)


_KEEPDIM_OF_DIM: Final = frozenset(("sum", "mean", "prod"))
"""Reductions that take ``keepdim`` only where ``dim`` is written too, though its default means all dimensions."""


def _require_dim_of_keepdim(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if op.public not in _KEEPDIM_OF_DIM or len(args) > 1:
        return
    if kwargs.keys() & {"keepdim", "keepdims"} and not kwargs.keys() & {"dim", "axis"}:
        raise ArgumentTypeError(f"{op.public}: keepdim is given without dim, which says what is kept: {op.signature}")


class _Placeholder:
    """Stands for the value of this index while it is bound, to see which parameter gets it."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def _sources(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | None]:
    """Return for each parameter the index of its value; of sizes that are not in a tuple, that of the first."""
    start, given = op.varargs_at, len(args)
    if 0 <= start < given and is_integer(args[start]):
        args = args[: start + 1]
    placeholders = tuple([_Placeholder(i) for i in range(len(args))])
    bound = op.bind(placeholders, {name: _Placeholder(given + i) for i, name in enumerate(kwargs)})
    return [argument.index if type(argument) is _Placeholder else None for argument in bound]


Miss = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, CallPattern | None]]
"""Runs a call whose pattern is not cached; returns its result, and its pattern if calls of it can be cached."""
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
    """Tell whether a value claims another class than its own, as a weak proxy of a tensor does."""
    return value.__class__ is not type(value)


def _picker(indices: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return a function that picks the values of these indices as a tuple."""
    if not indices:
        return itemgetter(slice(0))
    if indices == list(range(indices[0], indices[-1] + 1)):
        return itemgetter(slice(indices[0], indices[-1] + 1))
    return itemgetter(*indices)
