"""``torch._check`` and its like: conditions of a program, which raise PyTorch's errors where they do not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, IndexOutOfRangeError, OperatorError
from telegrad_protocol.errors import NotSupportedError as _NotSupportedError

_DEFAULT = "Expected cond to be True, but got False. (Could this error message be improved? If so, please report it.)"


def _check_with(error_type: type[Exception], cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raise an error of this type where the condition does not hold; ``message`` is a function that returns a text."""
    if isinstance(cond, Tensor):
        raise ArgumentTypeError(
            "cond must be a bool, but got a Tensor. For tensor conditions, use torch._check_tensor_all() to assert "
            "that all elements are true."
        )
    if not cond:
        if message is not None and not callable(message):
            raise ArgumentTypeError("message must be a callable")
        raise error_type(_DEFAULT if message is None else str(message()))


def _check(cond: Any, message: Any = None) -> None:
    """Raise OperatorError, a RuntimeError, where the condition does not hold."""
    _check_with(OperatorError, cond, message)


def _check_index(cond: Any, message: Any = None) -> None:
    """Raise IndexOutOfRangeError where the condition does not hold."""
    _check_with(IndexOutOfRangeError, cond, message)


def _check_value(cond: Any, message: Any = None) -> None:
    """Raise ArgumentError, a ValueError, where the condition does not hold."""
    _check_with(ArgumentError, cond, message)


def _check_type(cond: Any, message: Any = None) -> None:
    """Raise ArgumentTypeError, a TypeError, where the condition does not hold."""
    _check_with(ArgumentTypeError, cond, message)


def _check_not_implemented(cond: Any, message: Any = None) -> None:
    """Raise NotSupportedError, a NotImplementedError, where the condition does not hold."""
    _check_with(_NotSupportedError, cond, message)


def _check_is_size(i: Any, message: Any = None, *, max: int | None = None) -> None:
    """Raise OperatorError where a number is not a size."""
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all_with(error_type: type[Exception], cond: Any, message: Any = None) -> None:
    """Raise an error of this type unless all elements of a tensor hold. One round trip."""
    _check_with(error_type, bool(cond.all()), message)


def _check_tensor_all(cond: Any, message: Any = None) -> None:
    """Raise OperatorError, a RuntimeError, unless all elements of a tensor hold. One round trip."""
    _check_tensor_all_with(OperatorError, cond, message)


def _assert(condition: Any, message: Any) -> None:
    """Raise AssertionError where the condition does not hold."""
    if not condition:
        raise AssertionError(message)
