"""Numbers that a program gives as tensors of one element, and sizes and dimensions that it gives one by one.

Examples are ``x.narrow(0, start, 2)`` and ``x.uniform_(low, high)`` with tensors, and ``x.squeeze(0, 1)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.params import Param

_INTEGERS = frozenset(("int", "int?", "size", "size?", "int|size", "int|size?", "sizes?", "sizes??"))
_LISTS_OF_INTEGERS = frozenset(("size", "size?", "int|size", "int|size?"))
_REALS = frozenset(("float", "float?", "scalar", "scalar?"))
_LISTS = frozenset(("indices_or_sections",))
"""Parameters for which a tensor of one dimension stands for a list of integers."""


def read_numbers(
    op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments with numbers in place of tensors where the form takes numbers; None where there are none.

    Waits for the elements: one round trip for each such tensor.
    """
    if (gathered := _gathered(op, args)) is not None:
        return gathered, kwargs
    by_name = {param.name: param for param in op.params}
    listed = [_read(_param_at(op, position), argument) for position, argument in enumerate(args)]
    named = {name: _read(by_name.get(name), argument) for name, argument in kwargs.items()}
    if any(new is not old for new, old in zip((*listed, *named.values()), (*args, *kwargs.values()), strict=True)):
        return tuple(listed), named
    return None


def _gathered(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the operand and a tuple of the integers that follow it, where such a list is all that the form takes."""
    if op.positional != 2 or len(args) < 3 or op.params[1].kind.name not in _LISTS_OF_INTEGERS:
        return None
    return (args[0], args[1:]) if all([type(argument) is int for argument in args[1:]]) else None


def _param_at(op: Op, position: int) -> Param | None:
    if 0 <= op.varargs_at <= position:
        return op.params[op.varargs_at]
    return op.params[position] if position < len(op.params) else None


def _read(param: Param | None, argument: Any) -> Any:
    if param is None:
        return argument
    if param.kind.name in _REALS and isinstance(argument, Tensor):
        return argument if argument.ndim or argument.requires_grad else argument.item()
    if param.kind.name not in _INTEGERS:
        return argument
    if isinstance(argument, (list, tuple)):
        items = [_read(param, item) for item in argument]
        return items if any(new is not old for new, old in zip(items, argument, strict=True)) else argument
    if isinstance(argument, np.integer) or (
        isinstance(argument, np.ndarray) and not argument.ndim and argument.dtype.kind in "iu"
    ):
        return int(argument)
    if not isinstance(argument, Tensor) or argument.dtype.category != 1:
        return argument
    if argument.ndim == 1 and param.name in _LISTS:
        return argument.tolist()
    return argument.item() if argument.numel() == 1 else argument
