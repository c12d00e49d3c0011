"""Factorizations of batches of small real matrices, in which a call of LAPACK per matrix would cost the most.

What they return, signs and pivots included, is what LAPACK returns. Matrices are in column-major order: element (i, j)
of matrix b is at [b, j, i]. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arithmetic import compiled_for_reals, inlined
from ..blas import product
from ..signals import lanes_of, transpose_block
from ..slots import specialized

Array = Any
_N, _T = ord("N"), ord("T")
_LEAST, _LEAST_SINGLE = 1e-280, 1e-30
"""Sums of squares that are smaller than these, in double and single precision, are not exact enough."""
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


@specialized
def read_matrix(matrix: Array, columns: Array) -> None:
    """Read a matrix, so that its columns are contiguous: in squares as wide as a vector where its rows are."""
    one, size = columns[0, 0], columns.itemsize
    lanes, rows, count = lanes_of(one), matrix.shape[0], matrix.shape[1]
    if matrix.strides[1] != size or rows < lanes or count < lanes:
        for j in range(count):
            for i in range(rows):
                columns[j, i] = matrix[i, j]
        return
    for row in range(0, rows, lanes):
        i = min(row, rows - lanes)
        for column in range(0, count, lanes):
            j = min(column, count - lanes)
            source = matrix.ctypes.data + i * matrix.strides[0] + j * size
            transpose_block(one, source, matrix.strides[0], columns[j:, i:].ctypes.data, columns.strides[0])


@specialized
def _square(vector: Array) -> Any:
    total = vector.dtype.type(0)
    for i in range(vector.size):
        total += vector[i] * vector[i]
    return total


@specialized
def _largest(vector: Array) -> Any:
    top = vector.dtype.type(0)
    for i in range(vector.size):
        size = abs(vector[i])
        top = size if size > top else top
    return top


@specialized
def _reflect(column: Array, tail: Array) -> float:
    """Make all of a column but its first element 0; ``tail`` gets the reflection's vector, whose factor is returned.

    NaN where squares of the elements are too large or too small to be summed.
    """
    total = np.float64(_square(column[1:]))
    least = _LEAST if column.itemsize == 8 else _LEAST_SINGLE
    if not least < total < np.inf and _largest(column[1:]) != 0:
        return np.nan
    first = np.float64(column[0])
    length = -math.copysign(math.sqrt(first * first + total), first)
    factor = tail.dtype.type(1 / (first - length) if total > 0 else 0)
    for i in range(tail.size):
        tail[i] = column[i] * factor
    tail[0] = 1
    if total == 0:
        return 0.0
    column[0] = length
    return (length - first) / length


@specialized
def _subtract_from(column: Array, tail: Array, factor: float) -> None:
    by = column.dtype.type(factor)
    for i in range(column.size):
        column[i] -= by * tail[i]


@specialized
def _apply_to_four(tail: Array, factor: float, a: Array, b: Array, c: Array, d: Array) -> None:
    """Reflect four columns."""
    p, q, r, s = a[0] * 0, a[0] * 0, a[0] * 0, a[0] * 0
    for i in range(tail.size):
        p += tail[i] * a[i]
        q += tail[i] * b[i]
        r += tail[i] * c[i]
        s += tail[i] * d[i]
    _subtract_from(a, tail, p * factor)
    _subtract_from(b, tail, q * factor)
    _subtract_from(c, tail, r * factor)
    _subtract_from(d, tail, s * factor)


@specialized
def _apply_to_one(tail: Array, factor: float, a: Array) -> None:
    """Reflect a column."""
    p = a[0] * 0
    for i in range(tail.size):
        p += tail[i] * a[i]
    _subtract_from(a, tail, p * factor)


@specialized
def factorize_panel(columns: Array, begin: int, end: int, tails: Array, factors: Array) -> bool:
    """Factorize some columns; ``tails`` gets their reflections. False where one of them cannot be computed."""
    for k in range(begin, end):
        for i in range(begin, k):
            tails[k - begin, i] = 0
        tail = tails[k - begin, k:]
        factor = _reflect(columns[k, k:], tail)
        if math.isnan(factor):
            return False
        factors[k - begin] = factor
        j = k + 1
        while j + 4 <= end:
            _apply_to_four(tail, factor, columns[j, k:], columns[j + 1, k:], columns[j + 2, k:], columns[j + 3, k:])
            j += 4
        while j < end:
            _apply_to_one(tail, factor, columns[j, k:])
            j += 1
    return True


@specialized
def combine(inner: Array, factors: Array, combined: Array, count: int) -> None:
    """The negative of the triangle by which reflections are one product, from the products of their vectors.

    Column i of the triangle is row i of ``combined`` (Schreiber and Van Loan).
    """
    for i in range(count):
        for j in range(i):
            total = inner[i, j] * 0
            for p in range(j, i):
                total += combined[p, j] * inner[i, p]
            combined[i, j] = -total * factors[i]
        combined[i, i] = -factors[i]
        for j in range(i + 1, count):
            combined[i, j] = 0


@specialized
def _solve(columns: Array, size: int) -> bool:
    """Solve the triangular systems, in place; False where an element of the diagonal is 0."""
    for k in range(size):
        if columns[k, k] == 0:
            return False
    for side in range(size, columns.shape[0]):
        x = columns[side]
        for k in range(size - 1, -1, -1):
            x[k] = x[k] / columns[k, k]
            _subtract_from(x[:k], columns[k, :k], x[k])
    return True


@compiled_for_reals(
    "int64", "T[:,:]", "T[:,:]", "T[:,::1]", "T[:,::1]", "T[:,::1]", "T[:,::1]", "T[:,:,::1]", "T[::1]", returns="int64"
)
def least_squares(
    function: int, matrix: Array, sides: Array, columns: Array, tails: Array, before: Array, after: Array,
    squares: Array, factors: Array,
) -> int:  # fmt: skip
    """Solve A X = B for an A of at least as many rows as columns; return whether that could be done.

    X is in the first elements of what ``columns`` has behind those of A, of which it has all, then those of B.
    ``function`` is the address of BLAS's product. The rest is scratch memory: of a panel's reflections, twice of as
    many numbers for every column, of two squares, and of the reflections' factors.
    """
    size, rows, item, most = matrix.shape[1], columns.shape[1], columns.itemsize, tails.shape[0]
    read_matrix(matrix, columns)
    read_matrix(sides, columns[size:])
    top = _largest(columns[size:].reshape(-1))
    if top != 0 and not top * top > (_LEAST if item == 8 else _LEAST_SINGLE):
        return 0
    zero, one = columns.dtype.type(0), columns.dtype.type(1)
    v, w, y, inner, combined = (
        tails.ctypes.data, before.ctypes.data, after.ctypes.data, squares[0].ctypes.data, squares[1].ctypes.data
    )  # fmt: skip
    for begin in range(0, size, most):
        end = min(begin + most, size)
        count, length, others = end - begin, rows - begin, columns.shape[0] - end
        if not factorize_panel(columns, begin, end, tails, factors):
            return 0
        start, rest = v + begin * item, columns.ctypes.data + (end * rows + begin) * item
        product(function, _T, _N, count, count, length, start, rows, start, rows, zero, inner, most)
        combine(squares[0], factors, squares[1], count)
        product(function, _T, _N, count, others, length, start, rows, rest, rows, zero, w, most)
        product(function, _T, _N, count, others, count, combined, most, w, most, zero, y, most)
        product(function, _N, _N, length, others, count, start, rows, y, most, one, rest, rows)
    return int(_solve(columns, size))
