"""Contracts of what runs along a dimension: cumulative sums, products and extrema; differences of neighbours."""

from __future__ import annotations

from telegrad_protocol.dtypes import DType, bool_, int64
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import result_strides, wrap_dim
from telegrad_protocol.meta import Meta

from .contract import op
from .reduce import check_differentiable, check_real


def _accumulated(name: str, input: Meta, dim: int, dtype: DType | None) -> Meta:
    wrap_dim(name, dim, input.ndim)
    if dtype is bool_:
        raise DTypeError(
            f"{name}: not implemented for bool; without dtype= the results of {input} are counted in int64"
        )
    return input.like(dtype=dtype or (input.dtype if input.dtype.category >= 2 else int64))


@op(inplace=True)
def cumsum(input: Meta, dim: int, *, dtype: DType | None = None) -> Meta:
    """Compute running sums along a dimension: y[i] = input[0] + ... + input[i]."""
    return _accumulated("cumsum", input, dim, dtype)


@op(inplace=True)
def cumprod(input: Meta, dim: int, *, dtype: DType | None = None) -> Meta:
    """Compute running products along a dimension: y[i] = input[0] * ... * input[i]."""
    return _accumulated("cumprod", input, dim, dtype)


@op
def logcumsumexp(input: Meta, dim: int) -> Meta:
    """Compute log(cumsum(exp(input))) along a dimension without overflow."""
    check_differentiable("logcumsumexp", input.dtype, input)
    wrap_dim("logcumsumexp", dim, input.ndim)
    return input.like()


def _running(name: str, input: Meta, dim: int) -> tuple[Meta, Meta]:
    check_real(name, input)
    wrap_dim(name, dim, input.ndim)
    return input.like(), input.like(dtype=int64)


@op(returns=("values", "indices"))
def cummax(input: Meta, dim: int) -> tuple[Meta, Meta]:
    """Compute the largest of the elements so far along a dimension, and the index of the last one of that size."""
    return _running("cummax", input, dim)


@op(returns=("values", "indices"))
def cummin(input: Meta, dim: int) -> tuple[Meta, Meta]:
    """Compute the smallest of the elements so far along a dimension, and the index of the last one of that size."""
    return _running("cummin", input, dim)


@op
def diff(input: Meta, n: int = 1, dim: int = -1, prepend: Meta | None = None, append: Meta | None = None) -> Meta:
    """Compute the ``n``-th differences of neighbours along a dimension: y[i] = input[i + 1] - input[i]."""
    if input.ndim == 0:
        raise ShapeError(f"diff: expects a tensor of at least one dimension, got {input}")
    if n < 0:
        raise ArgumentError(f"diff: order must be non-negative but got {n}")
    if n == 0:
        return input.like(strides=result_strides(input.shape, [(input.shape, input.strides)]))
    at = wrap_dim("diff", dim, input.ndim)
    length = input.shape[at]
    for extra in (prepend, append):
        if extra is not None:
            length += _extension(input, extra, at)
    left = length - n if n < length else 0
    return input.like((*input.shape[:at], left, *input.shape[at + 1 :]))


def _extension(input: Meta, extra: Meta, at: int) -> int:
    around = [(meta.shape[:at], meta.shape[at + 1 :]) for meta in (input, extra)]
    if extra.ndim != input.ndim or around[0] != around[1]:
        raise ShapeError(f"diff: {extra} cannot be put before or after {input} along dimension {at}")
    return extra.shape[at]


@op(out=False, method=False)
def _linear_recurrence(decay: Meta, input: Meta, dim: int) -> Meta:
    """Compute y[i] = decay[i] * y[i - 1] + input[i] along a dimension, as derivatives of products need it."""
    wrap_dim("_linear_recurrence", dim, input.ndim)
    if decay.shape != input.shape:
        raise ShapeError(f"_linear_recurrence: {decay} does not have the shape of {input}")
    return input.like()
