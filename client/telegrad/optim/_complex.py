"""Complex parameters: optimizers see them as pairs of real numbers, which share their memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor


def has_complex(tensors: Iterable[Tensor]) -> bool:
    """Whether any tensor is complex."""
    return any([tensor._meta.dtype.is_complex for tensor in tensors])


def real(value: Any) -> Any:
    """Return a complex tensor as pairs of real numbers, which share its memory; anything else as it is."""
    return function("view_as_real")(value.detach()) if isinstance(value, Tensor) and value.is_complex() else value


def all_real(tensors: Sequence[Any]) -> list[Any]:
    """Return a list with every complex tensor as pairs of real numbers."""
    return [real(tensor) for tensor in tensors]
