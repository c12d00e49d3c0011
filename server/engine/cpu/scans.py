"""Cumulative sums, for which NumPy's ``accumulate`` takes one element at a time.

Along rows, groups of neighbours are scanned by a product with a triangular matrix of ones, and then the sums of the
preceding groups are added. Along columns, whole rows are added.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library.indexing import sums_in
from server.engine.ops import scans as generic
from server.engine.registry import kernel
from telegrad_protocol.ops import scans as ops

from .memory import BLOCK_BYTES
from .rows import add_column, is_fast

Array = Any
_GROUP = 32
"""Elements of a group, which is the size of the triangular matrix."""
_WIDE = 256
"""Rows at least this long, in elements, are added as wholes."""


@kernel(ops.cumsum, keys.CPU)
def cumsum(xp, input, dim, *, dtype, out):
    if not out.size or not out.ndim or input.dtype is not out.dtype:
        generic.cumsum(xp, input, dim, dtype=dtype, out=out)
        return
    width = math.prod(out.shape[dim % out.ndim + 1 :])
    if width == 1 and out.shape[dim] >= 2 * _GROUP and is_fast(input) and out.flags.c_contiguous:
        length = out.shape[dim]
        _along_rows(input.reshape(-1, length), out.reshape(-1, length))
    elif width >= _WIDE:
        _down_columns(np.moveaxis(input, dim, 0), np.moveaxis(out, dim, 0))
    else:
        generic.cumsum(xp, input, dim, dtype=dtype, out=out)


def _down_columns(source: Array, target: Array) -> None:
    running = np.zeros(target.shape[1:], sums_in(np, target.dtype))
    for row, result in zip(source, target, strict=True):
        running += row
        result[...] = running


def _along_rows(x: Array, out: Array) -> None:
    rows, length = x.shape
    block = BLOCK_BYTES // x.itemsize
    step = max(1, block // length)
    for start in range(0, rows, step):
        before = np.zeros((min(step, rows - start), 1))
        for column in range(0, length, block):
            part = slice(start, start + step), slice(column, column + block)
            before = _running_sums(x[part], out[part], before)


def _running_sums(x: Array, out: Array, before: Array) -> Array:
    """Write a block's running sums, which begin with ``before`` in every row; return their last column."""
    whole = x.shape[1] - x.shape[1] % _GROUP
    if whole:
        sums = x[:, :whole].reshape(-1, _GROUP).dot(_triangle(x.dtype.char))
        ends = np.add.accumulate(sums[:, -1].reshape(len(x), -1), axis=1, dtype=np.float64)
        if not np.isfinite(ends[:, -1]).all():  # an infinity's product with a zero of the triangle is NaN
            whole = 0
        else:
            starts = np.concatenate((before, before + ends[:, :-1]), axis=1)
            add_column(sums, starts.astype(x.dtype).reshape(-1))
            out[:, :whole] = sums.reshape(len(x), whole)
            before = before + ends[:, -1:]
    if whole == x.shape[1]:
        return before
    wide = np.add.accumulate(x[:, whole:], axis=1, dtype=np.float64)
    wide += before
    out[:, whole:] = wide
    return wide[:, -1:]


@cache
def _triangle(char: str) -> Array:
    """The upper triangular matrix of ones: x @ triangle are the running sums of the rows of x."""
    return np.triu(np.ones((_GROUP, _GROUP), char))
