"""``torch._C._nn``: functions of networks by the names of the compiled core."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._session.devices import as_device
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.ops import PUBLIC


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """Return device, dtype, ``non_blocking`` and memory format that the arguments of ``Module.to`` name."""
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    non_blocking = bool(kwargs.get("non_blocking", False))
    for value in args:
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, DType):
            dtype = value
        elif isinstance(value, bool):
            non_blocking = value
        elif value is not None:
            device = value
    if dtype is not None and not isinstance(dtype, DType):
        raise ArgumentTypeError(f"to: expected a dtype, not {dtype!r}")
    return None if device is None else as_device(device), dtype, non_blocking, kwargs.get("memory_format")


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return function(name)
    raise AttributeError(f"torch._C._nn has no {name!r} here; use torch.nn.functional")
