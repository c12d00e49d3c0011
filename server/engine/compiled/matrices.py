"""Factorizations of batches of small real matrices, in which a call of LAPACK per matrix would cost the most.

What they return, signs and pivots included, is what LAPACK returns. Matrices are in column-major order: element (i, j)
of matrix b is at [b, j, i]. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arithmetic import compiled_for_reals, inlined

Array = Any
_LARGE, _SMALL = 1e150, 1e-150
"""Beyond these the square of a number is not exact in double precision."""


@inlined
def _subtract(target: Array, factor: float, row: Array) -> None:
    for i in range(target.size):
        target[i] -= factor * row[i]


@compiled_for_reals("T[:,:,:]", "T[:,:,::1]", "int32[:,::1]", "int32[::1]")
def lu_factor(source: Array, factors: Array, pivots: Array, infos: Array) -> None:
    """Write the factorizations of ``source``, element (i, j) of which is at [b, i, j], and info."""
    for b in range(factors.shape[0]):
        matrix = factors[b]
        columns, rows = matrix.shape
        for j in range(columns):
            for i in range(rows):
                matrix[j, i] = source[b, i, j]
        infos[b] = 0
        for k in range(min(rows, columns)):
            column = matrix[k, k:]
            chosen, top = 0, abs(column[0])
            for i in range(column.size):
                if abs(column[i]) > top:
                    chosen, top = i, abs(column[i])
            pivots[b, k] = k + chosen + 1
            pivot = column[chosen]
            if pivot == 0:
                infos[b] = k + 1 if infos[b] == 0 else infos[b]
                continue
            if chosen != 0:
                for j in range(columns):
                    matrix[j, k], matrix[j, k + chosen] = matrix[j, k + chosen], matrix[j, k]
            below = matrix[k, k + 1 :]
            for i in range(below.size):
                below[i] = below[i] / pivot
            for j in range(k + 1, columns):
                _subtract(matrix[j, k + 1 :], matrix[j, k], below)


@inlined
def _solve_lower(factor: Array, side: Array, is_unit: bool) -> None:
    for i in range(side.shape[0]):
        row = side[i]
        for k in range(i):
            _subtract(row, factor[i, k], side[k])
        if not is_unit:
            pivot = factor[i, i]
            for c in range(row.size):
                row[c] = row[c] / pivot


@inlined
def _solve_upper(factor: Array, side: Array, is_unit: bool) -> None:
    for i in range(side.shape[0] - 1, -1, -1):
        row = side[i]
        for k in range(i + 1, side.shape[0]):
            _subtract(row, factor[i, k], side[k])
        if not is_unit:
            pivot = factor[i, i]
            for c in range(row.size):
                row[c] = row[c] / pivot


@compiled_for_reals("T[:,:,:]", "T[:,:,::1]", "boolean", "boolean")
def solve_triangular(factors: Array, sides: Array, is_upper: bool, is_unit: bool) -> None:
    """Solve in place; the element (i, j) of a factor is at [b, i, j], and so is that of a right side."""
    for b in range(sides.shape[0]):
        if is_upper:
            _solve_upper(factors[b], sides[b], is_unit)
        else:
            _solve_lower(factors[b], sides[b], is_unit)


@compiled_for_reals("T[:,:,:]", "int32[:,::1]", "T[:,:,::1]")
def lu_solve(factors: Array, pivots: Array, sides: Array) -> None:
    """Solve in place, given LU factorizations; elements are where ``solve_triangular`` has them."""
    for b in range(sides.shape[0]):
        side = sides[b]
        for k in range(side.shape[0]):
            chosen = pivots[b, k] - 1
            if chosen != k:
                for c in range(side.shape[1]):
                    side[k, c], side[chosen, c] = side[chosen, c], side[k, c]
        _solve_lower(factors[b], side, True)
        _solve_upper(factors[b], side, False)


@compiled_for_reals("T[:,:,:]", "T[:,:,::1]", "int32[::1]")
def cholesky(source: Array, factors: Array, infos: Array) -> None:
    """Write the lower factors of ``source``, of which the lower triangle is read; at [b, i, j] is element (i, j)."""
    for b in range(factors.shape[0]):
        matrix = factors[b]
        size = matrix.shape[0]
        for j in range(size):
            for i in range(size):
                matrix[j, i] = 0 if i < j else source[b, i, j]
        infos[b] = 0
        for k in range(size):
            column = matrix[k, k:]
            if not column[0] > 0:
                infos[b] = k + 1
                break
            root = math.sqrt(column[0])
            for i in range(column.size):
                column[i] = column[i] / root
            for j in range(1, column.size):
                _subtract(matrix[k + j, k + j :], column[j], column[j:])


@inlined
def _length(column: Array) -> float:
    """The Euclidean norm, without overflow."""
    top = 0.0
    for i in range(column.size):
        top = max(top, abs(np.float64(column[i])))
    scale = 1e-160 if top > _LARGE else 1e250 if top < _SMALL else 1.0
    total = 0.0
    for i in range(column.size):
        scaled = np.float64(column[i]) * scale
        total += scaled * scaled
    return math.sqrt(total) / scale


@inlined
def _apply(reflector: Array, factor: float, column: Array) -> None:
    """Reflect a column: subtract the product of the reflector, the first element of which is 1, and their product."""
    along = column[0]
    for i in range(1, column.size):
        along += reflector[i] * column[i]
    along = along * factor
    column[0] -= along
    for i in range(1, column.size):
        column[i] -= along * reflector[i]


@compiled_for_reals("T[:,:,:]", "T[:,:,::1]", "T[::1]", "T[:,:,::1]", "T[:,:,:]")
def qr(source: Array, reflectors: Array, factors: Array, q: Array, r: Array) -> None:
    """Write Q, column-major, and R, whose element (i, j) is at [b, i, j]; their sizes say how many columns are wanted.

    ``reflectors``, for one matrix in column-major order, and ``factors`` are scratch memory.
    """
    matrix = reflectors[0]
    columns, rows = matrix.shape
    for b in range(q.shape[0]):
        for j in range(columns):
            for i in range(rows):
                matrix[j, i] = source[b, i, j]
        for k in range(factors.size):
            column = matrix[k, k:]
            rest = _length(column[1:])
            factors[k] = 0
            if rest == 0:
                continue
            alpha = np.float64(column[0])
            beta = -math.copysign(math.hypot(alpha, rest), alpha)
            factors[k] = (beta - alpha) / beta
            below = column[1:]
            for i in range(below.size):
                below[i] = below[i] / (alpha - beta)
            for j in range(k + 1, columns):
                _apply(column, factors[k], matrix[j, k:])
            column[0] = beta
        for i in range(r.shape[1]):
            for j in range(columns):
                r[b, i, j] = matrix[j, i] if i <= j else 0
        for j in range(q.shape[1]):
            for i in range(rows):
                q[b, j, i] = 1 if i == j else 0
        for k in range(factors.size - 1, -1, -1):
            for j in range(k, q.shape[1]):
                _apply(matrix[k, k:], factors[k], q[b, j, k:])
