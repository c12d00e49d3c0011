"""Contracts of sorting, ranking, and searching in sorted tensors."""

from __future__ import annotations

from telegrad_protocol.dtypes import int32, int64
from telegrad_protocol.errors import ArgumentError, ShapeError
from telegrad_protocol.layout import result_strides, wrap_dim
from telegrad_protocol.meta import Meta

from .contract import Scalar, op
from .reduce import check_real, chosen


def _ordered(name: str, input: Meta, dim: int) -> Meta:
    """Return the meta of a rearrangement along ``dim``, in the memory order of the input."""
    check_real(name, input)
    wrap_dim(name, dim, input.ndim)
    return input.like(strides=result_strides(input.shape, [(input.shape, input.strides)]))


@op(returns=("values", "indices"))
def sort(input: Meta, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> tuple[Meta, Meta]:
    """Sort along a dimension; return the elements and their former indices. NaN counts as the largest."""
    values = _ordered("sort", input, dim)
    return values, values.like(dtype=int64, strides=values.strides)


@op(name="sort.positional", out=False, returns=("values", "indices"))
def sort_positional(
    input: Meta, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Meta, Meta]:  # fmt: skip
    """Sort like ``sort``, with ``stable`` given first."""
    values = _ordered("sort", input, dim)
    return values, values.like(dtype=int64, strides=values.strides)


@op(out=False, differentiable=False)
def argsort(input: Meta, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Meta:
    """Return the indices that sort along a dimension."""
    values = _ordered("argsort", input, dim)
    return values.like(dtype=int64, strides=values.strides)


@op
def msort(input: Meta) -> Meta:
    """Sort along the first dimension."""
    return _ordered("msort", input, 0)


@op(returns=("values", "indices"))
def topk(input: Meta, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Meta, Meta]:
    """Return the ``k`` largest or smallest elements along a dimension, sorted, and their indices."""
    check_real("topk", input)
    at = wrap_dim("topk", dim, input.ndim)
    length = input.shape[at] if input.ndim else 1
    if not 0 <= k <= length:
        raise ArgumentError(f"topk: k = {k} is out of range for dimension {dim} of {input}")
    shape = (*input.shape[:at], k, *input.shape[at + 1 :]) if input.ndim else ()
    return input.like(shape), input.like(shape, dtype=int64)


@op(returns=("values", "indices"), out_rules=("separate",))
def kthvalue(input: Meta, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Meta, Meta]:
    """Return the ``k``-th smallest element along a dimension, counted from one, and its index."""
    length = input.shape[wrap_dim("kthvalue", dim, input.ndim)] if input.ndim else 1
    results = chosen("kthvalue", input, dim, keepdim)
    if not 1 <= k <= length:
        raise ArgumentError(f"kthvalue: selected number k out of range for dimension {dim}: {k} of {input}")
    return results


@op(name="median.dim", returns=("values", "indices"))
def median_dim(input: Meta, dim: int, keepdim: bool = False) -> tuple[Meta, Meta]:
    """Return the median along a dimension, the lower of two, and its index; NaN if any element is NaN."""
    return chosen("median", input, dim, keepdim)


@op(out=False)
def median(input: Meta) -> Meta:
    """Return the median of all elements, the lower of two; NaN if any element is NaN."""
    check_real("median", input)
    return input.like(())


@op(method=False, differentiable=False)
def searchsorted(
    sorted_sequence: Meta, input: Meta | Scalar, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Meta | None = None,
) -> Meta:  # fmt: skip
    """Return the positions at which elements would be inserted into sorted rows to keep them sorted."""
    if side not in (None, "left", "right"):
        raise ArgumentError(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    if side == "left" and right:
        raise ArgumentError("searchsorted: side and right contradict each other: right=True and side='left'")
    if sorted_sequence.ndim == 0:
        raise ShapeError(f"searchsorted: expected rows of at least one dimension, got {sorted_sequence}")
    if sorter is not None and (sorter.shape != sorted_sequence.shape or sorter.dtype is not int64):
        raise ShapeError(f"searchsorted: sorter must be int64 in the shape of {sorted_sequence}, got {sorter}")
    check_real("searchsorted", sorted_sequence)
    dtype = int32 if out_int32 else int64
    if not isinstance(input, Meta):
        _check_vector("searchsorted", sorted_sequence)
        return sorted_sequence.like((), dtype=dtype)
    _check_rows(sorted_sequence, input)
    return input.like(dtype=dtype)


def _check_vector(name: str, rows: Meta) -> None:
    if rows.ndim != 1:
        raise ShapeError(f"{name}: boundaries tensor must be 1 dimension where a number is searched, got {rows}")


def _check_rows(rows: Meta, input: Meta) -> None:
    check_real("searchsorted", input)
    if rows.ndim > 1 and rows.shape[:-1] != input.shape[:-1]:
        raise ShapeError(f"searchsorted: {rows} and {input} must be equal in all dimensions but the last")


@op(method=False, differentiable=False)
def bucketize(input: Meta | Scalar, boundaries: Meta, *, out_int32: bool = False, right: bool = False) -> Meta:
    """Return the number of the bucket between ``boundaries`` that every element falls into."""
    _check_vector("bucketize", boundaries)
    if isinstance(input, Meta):
        check_real("bucketize", input)
    dtype = int32 if out_int32 else int64
    return input.like(dtype=dtype) if isinstance(input, Meta) else boundaries.like((), dtype=dtype)
