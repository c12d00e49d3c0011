"""LDL factorizations of batches of small real symmetric matrices, of which a call of LAPACK each would cost the most.

Pivots are diagonal blocks of one row or two, chosen as Bunch and Kaufman do ("Some stable methods for calculating
inertia and solving symmetric linear systems", 1977), and what is returned is what LAPACK returns. Matrices are in
column-major order: element (i, j) of matrix b is at [b, j, i]. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

import math
from typing import Any

from ..arithmetic import compiled_for_reals, inlined

Array = Any
_GROWTH = (1 + math.sqrt(17)) / 8
"""A pivot of one row may be smaller than others by this factor, so that elements grow least."""


@inlined
def _largest(column: Array, start: int) -> int:
    """Return where from ``start`` on the element is that is largest in magnitude, of several the first."""
    found = start
    for i in range(start + 1, column.size):
        if abs(column[i]) > abs(column[found]):
            found = i
    return found


@inlined
def _choose(matrix: Array, k: int) -> tuple[int, bool]:
    """Return which row the pivot at ``k`` is exchanged with, and whether it has two rows."""
    diagonal, size = abs(matrix[k, k]), matrix.shape[0]
    row = _largest(matrix[k], k + 1)
    highest = abs(matrix[k, row])
    if diagonal >= _GROWTH * highest:
        return k, False
    beside = 0.0 * diagonal
    for j in range(k, row):
        beside = max(beside, abs(matrix[j, row]))
    for i in range(row + 1, size):
        beside = max(beside, abs(matrix[row, i]))
    if diagonal >= _GROWTH * highest * (highest / beside):
        return k, False
    return row, abs(matrix[row, row]) < _GROWTH * beside


@inlined
def _exchange(matrix: Array, k: int, at: int, other: int) -> None:
    """Exchange rows and columns ``at`` and ``other``, which is the later one, of what is left from ``k`` on."""
    for i in range(other + 1, matrix.shape[0]):
        matrix[at, i], matrix[other, i] = matrix[other, i], matrix[at, i]
    for i in range(at + 1, other):
        matrix[at, i], matrix[i, other] = matrix[i, other], matrix[at, i]
    matrix[at, at], matrix[other, other] = matrix[other, other], matrix[at, at]
    if at > k:
        matrix[k, at], matrix[k, other] = matrix[k, other], matrix[k, at]


@inlined
def _eliminate_one(matrix: Array, k: int) -> None:
    column, reciprocal = matrix[k], 1 / matrix[k, k]
    for j in range(k + 1, matrix.shape[0]):
        factor = reciprocal * column[j]
        for i in range(j, matrix.shape[0]):
            matrix[j, i] -= factor * column[i]
    for i in range(k + 1, matrix.shape[0]):
        column[i] *= reciprocal


@inlined
def _eliminate_two(matrix: Array, k: int) -> None:
    first, second, beside = matrix[k], matrix[k + 1], matrix[k, k + 1]
    upper, lower = matrix[k + 1, k + 1] / beside, matrix[k, k] / beside
    scale = 1 / (upper * lower - 1) / beside
    for j in range(k + 2, matrix.shape[0]):
        left = scale * (upper * first[j] - second[j])
        right = scale * (lower * second[j] - first[j])
        for i in range(j, matrix.shape[0]):
            matrix[j, i] -= first[i] * left + second[i] * right
        first[j], second[j] = left, right


@inlined
def _factorize(matrix: Array, pivots: Array) -> int:
    """Factorize the lower triangle in place, and return the info."""
    size, k, info = matrix.shape[0], 0, 0
    while k < size:
        is_pair, other = False, k
        highest = 0.0 * matrix[k, k]
        for i in range(k, size):
            highest = max(highest, abs(matrix[k, i]))
        if highest == 0 or math.isnan(matrix[k, k]):
            info = k + 1 if info == 0 else info
        else:
            if k + 1 < size:
                other, is_pair = _choose(matrix, k)
            at = k + 1 if is_pair else k
            if other != at:
                _exchange(matrix, k, at, other)
            if is_pair:
                _eliminate_two(matrix, k)
            else:
                _eliminate_one(matrix, k)
        if is_pair:
            pivots[k] = pivots[k + 1] = -other - 1
        else:
            pivots[k] = other + 1
        k += 2 if is_pair else 1
    return info


@compiled_for_reals("T[:,:,:]", "T[:,:,::1]", "int32[:,::1]", "int32[::1]")
def ldl_factor(source: Array, factors: Array, pivots: Array, infos: Array) -> None:
    """Write factorizations of the lower triangles of ``source``, whose element (i, j) is at [b, i, j], pivots and info.

    Pivots are counted from 1, and negative where they have two rows.
    """
    for b in range(factors.shape[0]):
        matrix = factors[b]
        for j in range(matrix.shape[0]):
            for i in range(matrix.shape[0]):
                matrix[j, i] = source[b, i, j] if i >= j else 0
        infos[b] = _factorize(matrix, pivots[b])
