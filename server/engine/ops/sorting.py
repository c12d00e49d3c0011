"""Sorting, ranking, and searching in sorted tensors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from server.engine import functional as F
from server.engine.array_library.indexing import check_index
from server.engine.registry import composite, implements
from telegrad_protocol.dtypes import BY_NAME, DType, result_type
from telegrad_protocol.ops import sorting as ops

from .reduce import select_backward


def _order(xp, input, dim, descending):
    """Indices of a stable sort with NaN as the largest; descending order reverses the sort of the reversed rows."""
    if not descending:
        return xp.argsort(input, axis=dim, kind="stable")
    backwards = xp.argsort(xp.flip(input, dim), axis=dim, kind="stable")
    return input.shape[dim] - 1 - xp.flip(backwards, dim)


def _scatter_backward(grad_values, input_meta, dim, indices):
    if input_meta.ndim == 0:
        return F.reshape(grad_values, input_meta.shape)
    zeros = F.zeros(input_meta.shape, dtype=grad_values.dtype, device=grad_values.device)
    return F.scatter(zeros, dim, indices, grad_values)


@implements(ops.sort, input=_scatter_backward)
def sort(xp, input, dim, descending, *, stable, out):
    values, indices = out
    if input.ndim == 0 or not input.size:
        values[...], indices[...] = input, 0
        return
    order = _order(xp, input, dim, descending)
    indices[...] = order
    values[...] = xp.take_along_axis(input, order, axis=dim)


@composite(ops.sort_positional)
def sort_positional(input, stable, dim, descending):
    return F.sort(input, dim, descending, stable=stable)


@implements(ops.argsort)
def argsort(xp, input, dim, descending, *, stable, out):
    out[...] = _order(xp, input, dim, descending) if input.ndim and input.size else 0


@composite(ops.msort)
def msort(input):
    return F.sort(input, 0)[0]


@implements(ops.topk, input=_scatter_backward)
def topk(xp, input, k, dim, largest, sorted, *, out):
    values, indices = out
    if input.ndim == 0 or not values.size:
        values[...], indices[...] = input if values.size else 0, 0
        return
    order = _top_indices(xp, xp.moveaxis(input, dim, -1), k, largest)
    order = xp.moveaxis(order, -1, dim)
    indices[...] = order
    values[...] = xp.take_along_axis(input, order, axis=dim)


_PARTITION_RATIO = 8
"""If at most one element in this many is wanted, partitioning first is faster than sorting all of them."""
_IN_LOOPS = np.dtype("float32"), np.dtype("int64")
_FEW = 4096
"""Types, and how many elements, for which a loop takes the first of equal elements, as a sort does and no partition."""


def _top_indices(xp, rows, k, largest):
    """Indices of the ``k`` largest or smallest elements of every row, in sorted order."""
    length = rows.shape[-1]
    is_for_loops = rows.size <= _FEW and rows.dtype in _IN_LOOPS
    if xp is not np or k * _PARTITION_RATIO > length or is_for_loops:
        return _order(xp, rows, rows.ndim - 1, largest)[..., :k]
    split = length - k if largest else k - 1
    candidates = np.argpartition(rows, split, axis=-1)
    candidates = candidates[..., split:] if largest else candidates[..., :k]
    candidates.sort(axis=-1)  # equal elements in the order of the input
    order = _order(xp, np.take_along_axis(rows, candidates, axis=-1), rows.ndim - 1, largest)
    return np.take_along_axis(candidates, order, axis=-1)


def select_gradient(grad_values, input_meta, dim, keepdim, indices):
    return select_backward(grad_values, input_meta, dim, keepdim, indices)


@implements(ops.kthvalue, input=select_gradient)
def kthvalue(xp, input, k, dim, keepdim, *, out):
    write_ranked(xp, input, k - 1, dim, out)


def write_ranked(xp, input, rank, dim, out):
    """Write the element of the given rank in ascending order; ``rank`` may be an array with one entry per row."""
    values, indices = out
    if input.ndim == 0 or not values.size:
        values[...], indices[...] = input if values.size else 0, 0
        return
    order = _order(xp, input, dim, False)
    if not isinstance(rank, int):
        order = xp.take_along_axis(order, xp.expand_dims(rank, dim), axis=dim)
    else:
        order = xp.expand_dims(xp.take(order, rank, axis=dim), dim)
    indices[...] = order.reshape(indices.shape)
    values[...] = xp.take_along_axis(input, order, axis=dim).reshape(values.shape)


@implements(ops.median_dim, input=select_gradient)
def median_dim(xp, input, dim, keepdim, *, out):
    length = input.shape[dim] if input.ndim else 1
    rank = (length - 1) // 2
    if input.ndim and input.dtype.kind == "f":
        is_nan = xp.isnan(input)
        first = length - xp.sum(is_nan, axis=dim)
        rank = xp.where(xp.any(is_nan, axis=dim), first, rank)
    write_ranked(xp, input, rank, dim, out)


@composite(ops.median)
def median(input):
    if input.numel == 0:
        return F.sum(input) if not input.dtype.is_floating_point else F.mean(input)
    return F.median(F.reshape(input, -1), 0)[0]


class _Typed(NamedTuple):
    """What decides the common type of two operands."""

    dtype: DType
    ndim: int


def _of_one_type(xp, rows, sought):
    """Return sorted rows and what is searched in them, both of the type that PyTorch compares them in."""
    if not hasattr(sought, "dtype") or rows.dtype == sought.dtype:
        return rows, xp.asarray(sought)
    common = result_type([_Typed(BY_NAME[str(operand.dtype)], operand.ndim) for operand in (rows, sought)])
    return rows.astype(common.name), sought.astype(common.name)


@implements(ops.searchsorted)
def searchsorted(xp, sorted_sequence, input, *, out_int32, right, side, sorter, out):
    bound_side = "right" if right or side == "right" else "left"
    if sorter is not None:
        length = sorted_sequence.shape[-1]
        check_index("searchsorted", sorter, length, f"rows of {length} elements")
        sorted_sequence = xp.take_along_axis(sorted_sequence, sorter, axis=-1)
    sorted_sequence, input = _of_one_type(xp, sorted_sequence, input)
    if sorted_sequence.ndim == 1:
        out[...] = xp.searchsorted(sorted_sequence, input, bound_side)
        return
    if not sorted_sequence.size:
        out[...] = 0
        return
    sequences = sorted_sequence.reshape(-1, sorted_sequence.shape[-1])
    rows, positions = input.reshape(len(sequences), -1), xp.empty(out.shape, out.dtype)
    for sequence, row, target in zip(sequences, rows, positions.reshape(len(sequences), -1), strict=True):
        target[...] = xp.searchsorted(sequence, row, bound_side)
    out[...] = positions


@implements(ops.bucketize)
def bucketize(xp, input, boundaries, *, out_int32, right, out):
    boundaries, input = _of_one_type(xp, boundaries, input)
    out[...] = xp.searchsorted(boundaries, input, "right" if right else "left")
