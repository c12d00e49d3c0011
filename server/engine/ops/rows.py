"""Sums and extrema along axes with NumPy, for the shapes in which NumPy's own are slow.

A row sum is a product with a vector of ones, which BLAS vectorizes and NumPy's ``add.reduce`` does not; long rows are
summed in pieces so that rounding errors stay small. Knows arrays only.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_PIECE = 2048
"""Longest row that one product sums; float32 rounding grows with it."""
BLOCK = 1 << 15
"""Elements of a block of rows that stays in cache while several passes go over it."""


@lru_cache(maxsize=64)
def _ones(length, dtype):
    found = np.ones(length, dtype)
    found.flags.writeable = False
    return found


def is_fast(x):
    """Whether ``x`` is of a type and layout that these functions take."""
    return x.dtype.char in "fd" and x.flags.c_contiguous and x.size > 0


def row_sums(x):
    """The sums of the rows of a matrix."""
    length = x.shape[1]
    if length <= _PIECE:
        return x.dot(_ones(length, x.dtype))
    whole = length - length % _PIECE
    pieces = x[:, :whole].reshape(len(x), -1, _PIECE)
    sums = np.add.reduce(np.matmul(pieces, _ones(_PIECE, x.dtype)), axis=1)
    return sums if whole == length else sums + x[:, whole:].dot(_ones(length - whole, x.dtype))


def column_sums(x):
    """The sums of the columns of a matrix."""
    if len(x) <= _PIECE:
        return _ones(len(x), x.dtype).dot(x)
    return np.add.reduce(x, axis=0)


def sum_into(x, axis, out, scale=None):
    """Sum over ``axis`` (None or a tuple) of what ``is_fast`` accepts, times ``scale``; False if it was not done."""
    lead = _leading(x.ndim, axis)
    if lead >= 0:
        sums = row_sums(x.reshape(-1, _product(x.shape[lead:])))
    elif {a % x.ndim for a in axis} == set(range(len(axis))):
        sums = column_sums(x.reshape(_product(x.shape[: len(axis)]), -1))
    else:
        return False
    sums = sums.reshape(out.shape)
    if scale is None:
        out[...] = sums
    else:
        np.multiply(sums, scale, out=out)
    return True


def _leading(ndim, axis):
    """How many leading axes stay, if ``axis`` names exactly the others; else -1."""
    if axis is None:
        return 0
    wrapped = {a % ndim for a in axis}
    lead = ndim - len(wrapped)
    return lead if wrapped == set(range(lead, ndim)) else -1


def _product(sizes):
    result = 1
    for size in sizes:
        result *= size
    return result


def row_blocks(rows, length):
    """Slices of rows that fit into the cache."""
    step = max(1, BLOCK // max(length, 1))
    return [slice(start, start + step) for start in range(0, rows, step)]
