"""Where the matrices of a product lie, as BLAS can take them. Plain arithmetic on shapes and strides, in elements."""

from __future__ import annotations

import functools
import math
from itertools import pairwise
from typing import NamedTuple

from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta

from .cublaslt import Side

_ALIGNMENT = 256
"""The alignment of all memory of the allocator, in bytes."""


class Matrices(NamedTuple):
    """A batch of matrices: element (b, i, j) is at offset + b * step + i * row_step + j * column_step.

    ``is_transposed``: against the dimensions of the tensor that they are.
    """

    dtype: DType
    batch: int
    rows: int
    columns: int
    step: int
    row_step: int
    column_step: int
    offset: int
    is_transposed: bool = False

    @property
    def T(self) -> Matrices:
        """All matrices transposed."""
        dtype, batch, rows, columns, step, row_step, column_step, offset, is_transposed = self
        return Matrices(dtype, batch, columns, rows, step, column_step, row_step, offset, not is_transposed)

    @property
    def is_by_rows(self) -> bool:
        """Whether rows are contiguous and do not overlap."""
        runs = self.column_step == 1 or self.columns <= 1
        return runs and (self.row_step >= self.columns or self.rows <= 1)

    @property
    def is_by_columns(self) -> bool:
        """Whether columns are contiguous and do not overlap."""
        runs = self.row_step == 1 or self.rows <= 1
        return runs and (self.column_step >= self.rows or self.columns <= 1)

    @property
    def is_blas(self) -> bool:
        """Whether BLAS takes the matrices without a copy."""
        return self.is_by_rows or self.is_by_columns

    @property
    def compact(self) -> Matrices:
        """The matrices of a row-major copy of the tensor."""
        tensor = self.T if self.is_transposed else self
        copy = packed(self.dtype, self.batch, tensor.rows, tensor.columns)
        return copy.T if self.is_transposed else copy


def packed(dtype: DType, batch: int, rows: int, columns: int) -> Matrices:
    """Row-major matrices without gaps."""
    return Matrices(dtype, batch, rows, columns, rows * columns, columns, 1, 0)


def matrices(meta: Meta) -> Matrices:
    """A tensor of two or three dimensions as a batch of matrices."""
    batch, step = (meta.shape[0], meta.strides[0]) if meta.ndim == 3 else (1, 0)
    (rows, columns), (row_step, column_step) = meta.shape[-2:], meta.strides[-2:]
    return Matrices(meta.dtype, batch, rows, columns, step, row_step, column_step, meta.offset)


def column(meta: Meta) -> Matrices:
    """A vector as a matrix of one column."""
    return Matrices(meta.dtype, 1, meta.shape[0], 1, 0, meta.strides[0], 1, meta.offset)


def flattened(meta: Meta) -> Matrices:
    """All but the last dimension as rows; with strides of 0, which BLAS does not take, if rows are not evenly apart."""
    if meta.is_contiguous and meta.numel:
        columns = meta.shape[-1]
        rows = meta.numel // columns
        row_step = 0 if rows == 1 else columns
        return Matrices(meta.dtype, 1, rows, columns, 0, row_step, meta.strides[-1], meta.offset)
    dims = [(n, s) for n, s in zip(meta.shape[:-1], meta.strides[:-1], strict=True) if n != 1]
    is_even = all(outer == size * inner for (_, outer), (size, inner) in pairwise(dims))
    steps = (dims[-1][1] if dims else 0, meta.strides[-1]) if is_even else (0, 0)
    return Matrices(meta.dtype, 1, math.prod(meta.shape[:-1]), meta.shape[-1], 0, *steps, meta.offset)


def spread(meta: Meta, shape: tuple[int, ...]) -> Matrices:
    """A tensor that broadcasts to a batch of matrices, or to one, as those matrices."""
    missing = len(shape) - meta.ndim
    sizes, strides = (1,) * missing + tuple(meta.shape), (0,) * missing + tuple(meta.strides)
    steps = [0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True)]
    batch, step = (shape[0], steps[0]) if len(shape) == 3 else (1, 0)
    (rows, columns), (row_step, column_step) = shape[-2:], steps[-2:]
    return Matrices(meta.dtype, batch, rows, columns, step, row_step, column_step, meta.offset)


def spread_column(meta: Meta, rows: int) -> Matrices:
    """A tensor that broadcasts to a vector, as a matrix of one column."""
    step = meta.strides[0] if meta.ndim and meta.shape[0] != 1 else 0
    return Matrices(meta.dtype, 1, rows, 1, 0, step, 1, meta.offset)


@functools.lru_cache(maxsize=1 << 12)
def side(of: Matrices) -> tuple[Side, bool]:
    """Row-major matrices as BLAS sees them, which takes them for transposed ones; or others, and True."""
    dtype, batch, rows, columns, step, row_step, column_step, _, _ = of
    transposed = not of.is_by_rows
    if transposed:
        rows, columns, row_step = columns, rows, column_step
    leading = max(row_step if rows > 1 else columns, columns, 1)
    return Side(dtype, columns, rows, leading, step if batch > 1 else 0, alignment(of)), transposed


def alignment(of: Matrices) -> int:
    """The alignment of the addresses of all matrices, in bytes."""
    step = of.step if of.batch > 1 else 0
    return math.gcd(of.offset * of.dtype.itemsize, step * of.dtype.itemsize, _ALIGNMENT)
