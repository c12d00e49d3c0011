"""Batches of matrices for LAPACK on the host: copies in which it can work."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any
_PANELS_FROM, _PANEL = 192, 32
"""From this size on matrices are transposed in panels of so many rows, which stay in the cache."""


def matrices(array: Array) -> Array:
    """A batch of matrices with one dimension for the batch."""
    return array.reshape(math.prod(array.shape[:-2]), *array.shape[-2:])


def column_major(shape: tuple[int, ...], dtype: Any) -> Array:
    """An uninitialized batch of matrices whose columns are contiguous, as LAPACK returns them."""
    return np.empty((*shape[:-2], shape[-1], shape[-2]), dtype).swapaxes(-2, -1)


def columns_of(a: Array) -> Array:
    """A copy whose columns are contiguous, in which LAPACK can work."""
    copy = column_major(a.shape, a.dtype)
    copy_columns(copy, a)
    return copy


def copy_columns(target: Array, a: Array) -> None:
    """Copy matrices into others of contiguous columns: large ones whose rows are contiguous in panels."""
    if a.shape[-1] < _PANELS_FROM or a.strides[-2] < a.strides[-1]:
        np.copyto(target, a)
        return
    for start in range(0, a.shape[-2], _PANEL):
        rows = slice(start, start + _PANEL)
        target[..., rows, :] = a[..., rows, :]


def as_columns(a: Array) -> Array:
    """A batch of matrices whose columns are contiguous, with one dimension for the batch; without a copy if it is."""
    is_dense = a.swapaxes(-2, -1).flags.c_contiguous
    return matrices(a if is_dense else columns_of(a))


def optimal(answer: Any) -> int:
    """LAPACK answers the question for a workspace with a floating-point number."""
    return int(answer.real)
