"""Decorators for ``forward`` and ``backward`` of functions of the program that are called under autocast."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType, float64
from telegrad_protocol.errors import ArgumentError

from .autocast_mode import autocast, get_autocast_dtype, is_autocast_enabled


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Callable[..., Any]:
    """Decorate a ``forward`` that notes for ``backward`` whether autocast is on.

    With ``cast_inputs`` it runs without autocast where that is on, on arguments of this type.
    """
    _check(device_type)
    if fwd is None:
        return partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @wraps(fwd)
    def decorate_fwd(*args: Any, **kwargs: Any) -> Any:
        is_on = is_autocast_enabled(device_type)
        args[0]._dtype = get_autocast_dtype(device_type)
        args[0]._fwd_used_autocast = is_on and cast_inputs is None
        if not is_on or cast_inputs is None:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*cast_values(args, device_type, cast_inputs), **cast_values(kwargs, device_type, cast_inputs))

    return decorate_fwd


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate a ``backward`` that runs with autocast as ``forward`` did."""
    _check(device_type)
    if bwd is None:
        return partial(custom_bwd, device_type=device_type)

    @wraps(bwd)
    def decorate_bwd(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, args[0]._dtype, args[0]._fwd_used_autocast):
            return bwd(*args, **kwargs)

    return decorate_bwd


def _check(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ArgumentError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def cast_values(value: Any, device_type: str, dtype: DType) -> Any:
    """Return containers with tensors in floating point cast, but for doubles and those on other devices."""
    if isinstance(value, Tensor):
        takes_part = value.is_floating_point() and value.device.type == device_type and value.dtype is not float64
        return value.to(dtype) if takes_part else value
    if isinstance(value, dict):
        return {
            cast_values(key, device_type, dtype): cast_values(item, device_type, dtype) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return type(value)([cast_values(item, device_type, dtype) for item in value])
    return value
