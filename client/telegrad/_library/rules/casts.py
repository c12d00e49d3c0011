"""Kernels of the autocast keys: they cast an operator's tensors, and run it below autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._session.thread_modes import thread
from telegrad.amp.autocast_mode import autocast
from telegrad.amp.custom_functions import cast_values
from telegrad_protocol.autocast import DEVICE_TYPES
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, OperatorError

from .. import keys
from ..overloads import OpOverload
from ..state import ExcludeDispatchKeyGuard


def key_of(device_type: Any) -> str:
    """Return the autocast key of a type of device. Raises ArgumentError where autocast knows none."""
    if not isinstance(device_type, str):
        raise ArgumentError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    keys.key_of_device(device_type)
    if device_type not in DEVICE_TYPES:
        raise ArgumentError(f"Device type '{device_type}' does not support autocast.")
    return f"Autocast{keys.key_of_device(device_type)}"


def kernel(overload: OpOverload, key: str, device_type: str, dtype: DType) -> Callable[..., Any]:
    """Return the kernel that casts an operator's floating-point tensors on a type of device to ``dtype``."""
    own = keys.DispatchKeySet(key)

    def run(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise OperatorError(f"Custom ops do not support kwargs yet, got {[*kwargs]}")
        cast = cast_values(args, device_type, dtype)
        if device_type not in thread.autocast.enabled:
            return overload(*cast)
        with ExcludeDispatchKeyGuard(own), autocast(device_type, enabled=False):
            return overload(*cast)

    return run
