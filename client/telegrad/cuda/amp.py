"""``autocast`` and ``GradScaler`` of the GPU, under the older names of ``torch.cuda.amp``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

from telegrad.amp.autocast_mode import autocast as _autocast
from telegrad.amp.custom_functions import custom_bwd as _custom_bwd
from telegrad.amp.custom_functions import custom_fwd as _custom_fwd
from telegrad.amp.grad_scaler import GradScaler as _GradScaler
from telegrad.amp.grad_scaler import OptState as OptState
from telegrad_protocol.dtypes import DType, float16

from .devices import is_available as _is_available

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]

custom_bwd = partial(_custom_bwd, device_type="cuda")


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: DType | None = None) -> Callable[..., Any]:
    """``amp.custom_fwd(fwd, device_type="cuda", ...)``"""
    return _custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def amp_definitely_not_available() -> bool:
    """Whether neither the server has a GPU nor this process what programs use TPUs with."""
    return not (_is_available() or find_spec("torch_xla"))


class autocast(_autocast):
    """``amp.autocast("cuda", ...)``"""

    def __init__(self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """``amp.GradScaler("cuda", ...)``"""

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
