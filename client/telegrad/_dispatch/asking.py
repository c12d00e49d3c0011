"""Asks modes and classes what an operator returns, below autograd: the innermost mode first, then the classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from telegrad._ops.operand_classes import DISPATCHING, PATTERNS, modes_entered, overrides
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.listed import tensors_in
from telegrad_protocol.errors import ArgumentTypeError, OperatorError

_numbers: Final = count(-1, -1)


@contextmanager
def without_innermost() -> Iterator[Any]:
    """Leave the innermost mode in this block, and yield it."""
    before = overrides.dispatch_modes
    overrides.dispatch_modes = before[:-1]
    try:
        yield before[-1]
    finally:
        overrides.dispatch_modes = before


@contextmanager
def without_dispatch() -> Iterator[None]:
    """Let neither modes nor classes answer operations in this block."""
    before, overrides.ignores_dispatch = overrides.ignores_dispatch, True
    try:
        yield
    finally:
        overrides.ignores_dispatch = before


def push(mode: Any) -> int:
    """Enter a mode; the number that is returned leaves it again."""
    number = next(_numbers)
    modes_entered.add(number)
    for patterns in PATTERNS:
        patterns.clear()
    overrides.dispatch_modes = (*overrides.dispatch_modes, mode)
    return number


def pop(number: int) -> Any:
    """Leave the innermost mode, which was entered under this number."""
    *outer, mode = overrides.dispatch_modes
    overrides.dispatch_modes = tuple(outer)
    modes_entered.discard(number)
    return mode


def is_asked(args: Iterable[Any]) -> bool:
    """Whether a mode, or the class of one of the arguments, answers an operator."""
    if overrides.ignores_dispatch:
        return False
    return bool(overrides.dispatch_modes) or any(tensor.__class__ in DISPATCHING for tensor in tensors_in(args))


def ask(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what the first of the mode and the classes answers to an operator; it computes where nobody is there.

    Raises ArgumentTypeError where all of them return NotImplemented.
    """
    chosen: list[type] = []
    if not overrides.ignores_dispatch:
        for tensor in tensors_in((*args, *kwargs.values())):
            kind = tensor.__class__
            if kind in DISPATCHING and kind not in chosen:
                place = next((i for i, other in enumerate(chosen) if issubclass(kind, other)), len(chosen))
                chosen.insert(place, kind)
    types = tuple(chosen)
    mode = None
    with no_grad():
        if overrides.dispatch_modes and not overrides.ignores_dispatch:
            with without_innermost() as mode:
                result = mode.__torch_dispatch__(func, types, args, kwargs)
            if result is not NotImplemented:
                return _checked(func, result)
        elif not types:
            return func(*args, **kwargs)
        for kind in types:
            result = kind.__torch_dispatch__(func, types, args, kwargs)  # type: ignore[attr-defined]
            if result is not NotImplemented:
                return _checked(func, result)
    asked = [f"mode object {mode}"] * (mode is not None) + [f"tensor subclass {kind}" for kind in types]
    listed = "".join([f"  - {item}\n" for item in asked])
    raise ArgumentTypeError(
        f"Multiple dispatch failed for 'torch._ops.{func}'; all __torch_dispatch__ handlers returned NotImplemented:"
        f"\n\n{listed}"
    )


def _checked(func: Any, result: Any) -> Any:
    """Return what was answered to an operator. Raises OperatorError for a number or a text in place of a tensor."""
    if isinstance(result, (int, float, complex, str)):
        schema = getattr(func, "_schema", None)
        if schema is not None and [str(one.type) for one in schema.returns] == ["Tensor"]:
            raise OperatorError(f"Unable to cast {result} to Tensor")
    return result
