"""``torch._utils``: small functions that packages share with PyTorch's own modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad import cuda
from telegrad._ops.functions import function
from telegrad._other_devices import get_device_module
from telegrad._tensor.tensor import Tensor


def _get_available_device_type() -> str | None:
    """Return the type of the server's accelerators; None if it has none."""
    return "cuda" if cuda.is_available() else None


def _get_device_module(device_type: str) -> Any:
    """Return the module of a type of device."""
    return get_device_module(device_type)


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elements of tensors one after another."""
    flat: Tensor = function("cat")([tensor.reshape(-1) for tensor in tensors])
    return flat


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return parts of a flat tensor, of the shapes of these."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple([part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)])
