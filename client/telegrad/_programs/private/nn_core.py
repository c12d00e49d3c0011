"""``torch._C._nn``: functions of networks by the names of the compiled core."""

from __future__ import annotations

from typing import Any, Final

import telegrad
from telegrad._library.aten_functions import function_of
from telegrad._ops.functions import function
from telegrad._session.devices import as_device
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.ops import PUBLIC

from .core_functions import with_numbered_reduction


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


_LOSSES: Final = {
    "binary_cross_entropy": 3, "cross_entropy_loss": 3, "huber_loss": 2, "l1_loss": 2, "mse_loss": 2,
    "multi_margin_loss": 5, "multilabel_margin_loss": 2, "nll_loss": 3, "nll_loss2d": 3, "nll_loss_nd": 3,
    "smooth_l1_loss": 2, "soft_margin_loss": 2,
}  # fmt: skip
"""Losses, and the places of their reductions."""


def __getattr__(name: str) -> Any:
    if name in _LOSSES:
        return with_numbered_reduction(name, _LOSSES[name])
    run = None if name.startswith("__") else function_of(name)
    if name in PUBLIC and (run is None or run is function(name)):
        return function(name)
    if run is not None:
        return getattr(telegrad.ops.aten, name)
    raise AttributeError(f"torch._C._nn has no {name!r} here; use torch.nn.functional")
