"""Contracts of scans: cumulative sums, products and extrema along a dimension."""

from __future__ import annotations

from ..dtypes import DType, int64
from ..errors import ShapeError
from ..layout import wrap_dim
from ..meta import Meta
from .contract import op
from .reduce import check_real


def _accumulated(name: str, input: Meta, dim: int, dtype: DType | None) -> Meta:
    wrap_dim(name, dim, input.ndim)
    return input.like(dtype=dtype or (input.dtype if input.dtype.category >= 2 else int64))


@op(inplace=True)
def cumsum(input: Meta, dim: int, *, dtype: DType | None = None) -> Meta:
    """The sum of all elements up to each along a dimension."""
    return _accumulated("cumsum", input, dim, dtype)


@op(inplace=True)
def cumprod(input: Meta, dim: int, *, dtype: DType | None = None) -> Meta:
    """The product of all elements up to each along a dimension."""
    return _accumulated("cumprod", input, dim, dtype)


def _running(name: str, input: Meta, dim: int) -> tuple[Meta, Meta]:
    check_real(name, input)
    wrap_dim(name, dim, input.ndim)
    return input.like(), input.like(dtype=int64)


@op(returns=("values", "indices"))
def cummax(input: Meta, dim: int) -> tuple[Meta, Meta]:
    """The largest element up to each along a dimension, and where it was last."""
    return _running("cummax", input, dim)


@op(returns=("values", "indices"))
def cummin(input: Meta, dim: int) -> tuple[Meta, Meta]:
    """The smallest element up to each along a dimension, and where it was last."""
    return _running("cummin", input, dim)


@op(out=False, method=False)
def _linear_recurrence(decay: Meta, input: Meta, dim: int) -> Meta:
    """y[i] = decay[i] * y[i-1] + input[i] along a dimension: what the derivatives of products are made of."""
    wrap_dim("_linear_recurrence", dim, input.ndim)
    if decay.shape != input.shape:
        raise ShapeError(f"_linear_recurrence: {decay} does not have the shape of {input}")
    return input.like()
