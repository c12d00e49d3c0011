"""Arithmetic of a matrix and of one that is broadcast to it, in single or half precision, by the character of the type.

Row r of the matrix goes with row ``(first + r) // repeat`` of ``other``, counted again from its end on. That row is as
long as the matrix's in loops for rows, and one number in loops for columns. Each operation is rounded, as NumPy's are.
Loops that are called in place have a branch for that; see ``elementwise``.
"""

from __future__ import annotations

from typing import Any

from ..arithmetic import EXACT, inlined, is_same, rounded, typed, wide

Array = Any
_MATRIX, _OTHER = "T[:,::1]", "T[:,::1]"


@inlined
def _row_of(other: Array, first: int, r: int, repeat: int) -> Any:
    return other[(first + r) // repeat % other.shape[0]]


@inlined
def _add_rows(x: Array, other: Array, factor: float, first: int, repeat: int, out: Array) -> None:
    for r in range(x.shape[0]):
        row, added, target = x[r], _row_of(other, first, r, repeat), out[r]
        for c in range(row.size):
            target[c] = rounded(wide(row[c]) + factor * wide(added[c]), target)


@typed(_MATRIX, _OTHER, "float32", "int64", "int64", _MATRIX, flags=EXACT)
def add_rows(x: Array, other: Array, factor: float, first: int, repeat: int, out: Array) -> None:
    """x + factor * other"""
    if is_same(x, out):
        _add_rows(out, other, factor, first, repeat, out)
    else:
        _add_rows(x, other, factor, first, repeat, out)


@inlined
def _add_columns(x: Array, other: Array, factor: float, first: int, repeat: int, out: Array) -> None:
    for r in range(x.shape[0]):
        row, target = x[r], out[r]
        added = factor * wide(_row_of(other, first, r, repeat)[0])
        for c in range(row.size):
            target[c] = rounded(wide(row[c]) + added, target)


@typed(_MATRIX, _OTHER, "float32", "int64", "int64", _MATRIX, flags=EXACT)
def add_columns(x: Array, other: Array, factor: float, first: int, repeat: int, out: Array) -> None:
    """x + factor * other"""
    if is_same(x, out):
        _add_columns(out, other, factor, first, repeat, out)
    else:
        _add_columns(x, other, factor, first, repeat, out)


@inlined
def _multiply_rows(x: Array, other: Array, first: int, repeat: int, out: Array) -> None:
    for r in range(x.shape[0]):
        row, factors, target = x[r], _row_of(other, first, r, repeat), out[r]
        for c in range(row.size):
            target[c] = rounded(wide(row[c]) * wide(factors[c]), target)


@typed(_MATRIX, _OTHER, "float32", "int64", "int64", _MATRIX, flags=EXACT)
def multiply_rows(x: Array, other: Array, unused: float, first: int, repeat: int, out: Array) -> None:
    if is_same(x, out):
        _multiply_rows(out, other, first, repeat, out)
    else:
        _multiply_rows(x, other, first, repeat, out)


@inlined
def _multiply_columns(x: Array, other: Array, first: int, repeat: int, out: Array) -> None:
    for r in range(x.shape[0]):
        row, target = x[r], out[r]
        factor = wide(_row_of(other, first, r, repeat)[0])
        for c in range(row.size):
            target[c] = rounded(wide(row[c]) * factor, target)


@typed(_MATRIX, _OTHER, "float32", "int64", "int64", _MATRIX, flags=EXACT)
def multiply_columns(x: Array, other: Array, unused: float, first: int, repeat: int, out: Array) -> None:
    if is_same(x, out):
        _multiply_columns(out, other, first, repeat, out)
    else:
        _multiply_columns(x, other, first, repeat, out)


@inlined
def _divide_by_columns(x: Array, other: Array, first: int, repeat: int, out: Array) -> None:
    for r in range(x.shape[0]):
        row, target = x[r], out[r]
        divisor = wide(_row_of(other, first, r, repeat)[0])
        for c in range(row.size):
            target[c] = rounded(wide(row[c]) / divisor, target)


@typed(_MATRIX, _OTHER, "float32", "int64", "int64", _MATRIX, flags=EXACT)
def divide_by_columns(x: Array, other: Array, unused: float, first: int, repeat: int, out: Array) -> None:
    if is_same(x, out):
        _divide_by_columns(out, other, first, repeat, out)
    else:
        _divide_by_columns(x, other, first, repeat, out)
