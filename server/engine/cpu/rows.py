"""Sums, products and broadcasts on the rows and columns of matrices, for which NumPy is slow. Knows arrays only.

A row sum is a product with a vector of ones, which BLAS vectorises and NumPy's ``add.reduce`` does not. Long rows are
summed in pieces, so that rounding errors stay small. A term that is constant along rows or columns is added as a rank-1
update, which BLAS does at twice the speed of NumPy's broadcasting.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from server.engine.array_library.host_libraries import linear_algebra

from .halves import is_half, narrow, widened
from .memory import BLOCK_BYTES, constant, scratch

Array = Any
_PIECE = 2048
"""The longest row that one product sums, in elements; the rounding error of float32 grows with it."""
_SHORT = 128
"""For rows shorter than this, in elements, one product of whole matrices is cheaper than a dot product per row."""


@functools.cache
def _rank_one_update(char: str) -> Any:
    """BLAS's A += alpha * x * y.T, by the character of the dtype."""
    return getattr(linear_algebra().blas, {"f": "sger", "d": "dger"}[char])


def is_fast(array: Array) -> bool:
    """Whether these functions take the array: row-major float32 or float64, and not empty."""
    return array.dtype.char in "fd" and array.flags.c_contiguous and array.size > 0


def is_fast_or_half(array: Array) -> bool:
    """Whether ``in_row_blocks`` takes the array."""
    return array.dtype.char in "fdeE" and array.flags.c_contiguous and array.size > 0


def row_blocks(rows: int, length: int, itemsize: int) -> list[slice]:
    """Slices of rows of at most ``BLOCK_BYTES`` each."""
    step = max(1, BLOCK_BYTES // (length * itemsize))
    return [slice(start, start + step) for start in range(0, rows, step)]


def in_row_blocks(inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> Iterable[tuple[slice, Sequence[Array]]]:
    """Slices of rows with these rows of all matrices, which have one dtype; half precision passes through float32."""
    first, arrays = inputs[0], inputs + outputs
    if is_half(first):
        return _wide_blocks(inputs, outputs)
    if first.nbytes <= BLOCK_BYTES:
        return ((_ALL, arrays),)
    return [(block, [a[block] for a in arrays]) for block in row_blocks(len(first), first.shape[1], first.itemsize)]


_ALL = slice(None)


def _wide_blocks(inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> Iterator[tuple[slice, Sequence[Array]]]:
    for block in row_blocks(len(inputs[0]), inputs[0].shape[1], 4):
        wide = [widened(array[block], f"input {i}") for i, array in enumerate(inputs)]
        targets = [_target(array[block], i) for i, array in enumerate(outputs)]
        yield block, [*wide, *targets]
        for array, target in zip(outputs, targets, strict=True):
            narrow(target, array[block])


def _target(part: Array, number: int) -> Array:
    return scratch(f"output {number}", part.shape, "f")


def row_products(x: Array, vector: Array) -> Array:
    """x @ vector; long rows are multiplied in pieces."""
    length = x.shape[1]
    if length <= _PIECE:
        return x.dot(vector)
    whole = length - length % _PIECE
    pieces = x[:, :whole].reshape(len(x), -1, _PIECE)
    sums = np.add.reduce(np.vecdot(pieces, vector[:whole].reshape(-1, _PIECE)), axis=1)
    return sums if whole == length else sums + x[:, whole:].dot(vector[whole:])


def row_sums(x: Array) -> Array:
    """The sums of the rows of a matrix."""
    length = x.shape[1]
    if length <= _PIECE:
        return x.dot(constant(1, length, x.dtype.char))
    whole = length - length % _PIECE
    pieces = x[:, :whole].reshape(len(x), -1, _PIECE)
    sums = np.add.reduce(np.matmul(pieces, constant(1, _PIECE, x.dtype.char)), axis=1)
    return sums if whole == length else sums + x[:, whole:].dot(constant(1, length - whole, x.dtype.char))


def row_dots(x: Array, y: Array) -> Array:
    """The dot products of the rows of x and y."""
    length = x.shape[1]
    if length < _SHORT:
        return row_sums(np.multiply(x, y, out=scratch("products", x.shape, x.dtype.char)))
    if length <= _PIECE:
        return np.vecdot(x, y)
    whole = length - length % _PIECE
    shape = len(x), -1, _PIECE
    sums = np.add.reduce(np.vecdot(x[:, :whole].reshape(shape), y[:, :whole].reshape(shape)), axis=1)
    return sums if whole == length else sums + np.vecdot(x[:, whole:], y[:, whole:])


def column_sums(x: Array, out: Array) -> None:
    """Write the sums of the columns of a matrix; for many rows, partial sums are added in float64."""
    rows, length = x.shape
    if rows <= _PIECE and x.nbytes <= BLOCK_BYTES:
        constant(1, rows, x.dtype.char).dot(x, out)
        return
    step = min(_PIECE, max(1, BLOCK_BYTES // (length * x.itemsize)))
    total = np.zeros(length)
    for start in range(0, rows, step):
        part = x[start : start + step]
        total += constant(1, len(part), x.dtype.char).dot(part)
    np.copyto(out, total, casting="same_kind")


def times_column(x: Array, column: Array, out: Array) -> None:
    """out = x * column[:, None]"""
    if len(x) == 1:
        np.multiply(x, column[0], out=out)
    else:
        np.multiply(x, column[:, None], out=out)


def add_column(x: Array, column: Array) -> None:
    """x += column[:, None]"""
    if len(x) == 1:
        np.add(x, column[0], out=x)
    else:
        add_outer(x, column, constant(1, x.shape[1], x.dtype.char))


def add_row(x: Array, row: Array) -> None:
    """x += row"""
    if len(x) == 1:
        np.add(x, row, out=x)
    else:
        add_outer(x, constant(1, len(x), x.dtype.char), row)


def write_outer(out: Array, column: Array, row: Array) -> None:
    """out = column[:, None] * row"""
    if len(out) == 1:
        np.multiply(row, column[0], out=out[0])
    else:
        out.fill(0)
        add_outer(out, column, row)


def add_outer(x: Array, column: Array, row: Array) -> None:
    """x += column[:, None] * row, for a row-major matrix"""
    columns = x.T
    updated = _rank_one_update(x.dtype.char)(1.0, row, column, a=columns, overwrite_a=1)
    if updated is not columns:  # the wrapper made a copy
        x[...] = updated.T
