"""Contracts of operations that make tensors out of nothing, random ones included."""

from __future__ import annotations

from ..dtypes import DType, get_default_dtype
from ..layout import Size
from ..meta import CPU, Device, Meta
from .contract import Scalar, op
from .rules import check_size


@op(out=False, method=False, differentiable=False)
def zeros(*size: int, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """A tensor of zeros."""
    return Meta.of(check_size("zeros", size), dtype or get_default_dtype(), device or CPU)


@op(out=False, method=False, differentiable=False)
def ones(*size: int, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """A tensor of ones."""
    return Meta.of(check_size("ones", size), dtype or get_default_dtype(), device or CPU)


@op(out=False, method=False, differentiable=False)
def zeros_like(input: Meta, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Zeros in the shape and layout of ``input``."""
    return like(input, dtype, device)


def like(input: Meta, dtype: DType | None, device: Device | None) -> Meta:
    """A new tensor in the memory order of ``input``."""
    from ..layout import result_strides

    return input.like(dtype=dtype, device=device, strides=result_strides(input.shape, [(input.shape, input.strides)]))


__all__ = ["Scalar", "Size", "like"]
