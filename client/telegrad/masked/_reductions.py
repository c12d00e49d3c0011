"""Reductions, normalizations and scans over the elements that a mask chooses, under ``torch.masked``'s names.

``mask`` is a tensor that broadcasts to the input and is true, or not 0, where an element counts; without one, all do. A
result of no elements is the operation's identity, where it has one. Results that belong to masked elements are
unspecified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor import dtype_limits as _limits
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType, bool_, int64

Dims = int | Sequence[int] | None


def _filled(input: Tensor, mask: Tensor | None, value: Any, dtype: DType | None = None) -> Tensor:
    """Return the input in a type, with ``value`` where the mask is false."""
    converted = input if dtype is None else input.to(dtype)
    if mask is None:
        return converted
    return function("where")(mask.to(bool_), converted, converted.new_full((), value))  # type: ignore[no-any-return]


def _counted(input: Tensor, dtype: DType | None) -> DType:
    """Return the type of sums and products."""
    return dtype or (int64 if input.dtype.category < 2 else input.dtype)


def _extreme(input: Tensor, largest: bool) -> Any:
    """Return the largest or the smallest number of the input's type."""
    if input.dtype.category >= 2:
        return math.inf if largest else -math.inf
    if input.dtype is bool_:
        return largest
    limits = _limits.integer_limits(input.dtype)
    return limits.max if largest else limits.min


def _dims(input: Tensor, dim: Dims) -> list[int]:
    listed = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    return [d % max(input.ndim, 1) for d in listed]


def sum(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return the sums of the chosen elements."""
    kind = _counted(input, dtype)
    dims = _dims(input, dim)
    values = _filled(input, mask, 0, kind)
    return values.sum(dims, keepdim, dtype=kind) if dims else values


def prod(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return the products of the chosen elements."""
    result = _filled(input, mask, 1, _counted(input, dtype))
    for d in sorted(_dims(input, dim), reverse=True):
        result = result.prod(d, keepdim)
    return result


def amax(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return the largest of the chosen elements."""
    values = input if dtype is None else input.to(dtype)
    return _filled(values, mask, _extreme(values, False)).amax(_dims(input, dim), keepdim)


def amin(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return the smallest of the chosen elements."""
    values = input if dtype is None else input.to(dtype)
    return _filled(values, mask, _extreme(values, True)).amin(_dims(input, dim), keepdim)


def argmax(
    input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the index of the largest of the chosen elements, in the type of the input or ``dtype``."""
    values = input if dtype is None else input.to(dtype)
    return _filled(values, mask, _extreme(values, False)).argmax(dim, keepdim).to(values.dtype)


def argmin(
    input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the index of the smallest of the chosen elements, in the type of the input or ``dtype``."""
    values = input if dtype is None else input.to(dtype)
    return _filled(values, mask, _extreme(values, True)).argmin(dim, keepdim).to(values.dtype)


def _count(input: Tensor, dims: list[int], keepdim: bool, mask: Tensor | None) -> Tensor:
    chosen = function("ones_like")(input, dtype=int64) if mask is None else mask.expand(input.shape).to(bool_).to(int64)
    return chosen.sum(dims, keepdim) if dims else chosen


def mean(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return the means of the chosen elements."""
    kind = dtype or input.dtype
    total = sum(input, dim, keepdim=keepdim, dtype=kind, mask=mask)
    return total / _count(input, _dims(input, dim), keepdim, mask)


def var(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, *, correction: float | None = None,
    keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the variances of the chosen elements; ``correction``, by default 1, is subtracted from their number."""
    kind = dtype or (input.dtype if input.dtype.category >= 2 else None)
    values, dims = input.float() if kind is None else input.to(kind), _dims(input, dim)
    count = _count(input, dims, True, mask)
    centred = values - _over(_filled(values, mask, 0), dims) / count
    squares = (centred * centred.conj()).real if centred.is_complex() else centred * centred
    less = 1 if correction is None and (unbiased is None or unbiased) else correction or 0
    result = (_over(_filled(squares, mask, 0), dims) / (count - less).clamp(min=0)).to(values.dtype)
    return result if keepdim or not dims else result.squeeze(dims)


def _over(values: Tensor, dims: list[int]) -> Tensor:
    return values.sum(dims, True) if dims else values


def std(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, *, correction: float | None = None,
    keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the standard deviations of the chosen elements."""
    return var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask).sqrt()


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return the medians of the chosen elements, the lower of two."""
    values = input if dtype is None else input.to(dtype)
    if mask is None:
        return values.median(dim, keepdim)[0]
    return _filled(values, mask, math.nan).nanmedian(dim, keepdim)[0]


def norm(
    input: Tensor, ord: float | None = 2.0, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the vector norms of order ``ord`` of the chosen elements."""
    order = 2.0 if ord is None else float(ord)
    values = _filled(input, mask, math.inf if order == -math.inf else 0, dtype)
    return function("linalg_vector_norm")(values, order, _dims(input, dim), keepdim)  # type: ignore[no-any-return]


def logsumexp(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return the logarithms of the sums of the exponentials of the chosen elements."""
    values = input if dtype is None else input.to(dtype)
    return _filled(values, mask, _extreme(values, False)).logsumexp(_dims(input, dim), keepdim).to(values.dtype)


def softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Return the softmax of the chosen elements along a dimension."""
    return _filled(input, mask, -math.inf, dtype).softmax(dim)


def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Return the logarithm of the softmax of the chosen elements along a dimension."""
    return _filled(input, mask, -math.inf, dtype).log_softmax(dim)


def softmin(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Return the softmax of the negative of the chosen elements along a dimension."""
    return (-_filled(input, mask, math.inf, dtype)).softmax(dim)


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return the chosen elements divided by their norm along a dimension, at least ``eps``."""
    length = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled(input, mask, 0, dtype) / length.clamp(min=eps)


def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Return the running sums of the chosen elements along a dimension."""
    kind = _counted(input, dtype)
    return _filled(input, mask, 0, kind).cumsum(dim, dtype=kind)


def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Return the running products of the chosen elements along a dimension."""
    kind = _counted(input, dtype)
    return _filled(input, mask, 1, kind).cumprod(dim, dtype=kind)


def logaddexp(
    input: Tensor, other: Tensor, *, dtype: DType | None = None, input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the logarithm of the sum of the exponentials of the chosen elements of two tensors."""
    one, two = _filled(input, input_mask, -math.inf, dtype), _filled(other, other_mask, -math.inf, dtype)
    return one.logaddexp(two)
