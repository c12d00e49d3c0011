"""Contracts of element-wise operations: arithmetic, comparison, logic, elementary functions."""

from __future__ import annotations

from ..dtypes import DType
from ..errors import ArgumentError
from ..meta import Device, Meta
from .contract import Scalar, op, pointwise
from .creation import like


@pointwise
def add(input: Meta | Scalar, other: Meta | Scalar, *, alpha: Scalar = 1) -> Meta:
    """input + alpha * other"""


@pointwise
def mul(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """input * other"""


@pointwise
def neg(input: Meta) -> Meta:
    """-input"""


@pointwise(promotion="int_to_float")
def exp(input: Meta) -> Meta:
    """e ** input"""


@op(out=False, method=False)
def _to_copy(input: Meta, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """A copy with another dtype or on another device, in the same memory order."""
    return like(input, dtype, device)


__all__ = ["ArgumentError"]
