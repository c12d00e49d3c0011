"""Compositions that compute half precision in float32 and round once, at their end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import bfloat16, float16, float32

F = TypeVar("F", bound=Callable[..., Any])
_HALVES = (float16, bfloat16)


def computed_in_float32(compose: F) -> F:
    """Wrap a composition whose first argument is a tensor; the result has that tensor's type."""

    @wraps(compose)
    def run(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        dtype = input.dtype
        if dtype not in _HALVES:
            return compose(input, *args, **kwargs)
        widened = compose(_wide(input), *map(_wide, args), **{name: _wide(value) for name, value in kwargs.items()})
        return widened.to(dtype)

    return run  # type: ignore[return-value]


def _wide(value: Any) -> Any:
    return value.to(float32) if isinstance(value, Tensor) and value.dtype in _HALVES else value
