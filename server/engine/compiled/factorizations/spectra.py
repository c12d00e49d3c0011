"""Eigenvalues and singular values of many small real matrices: Householder's reduction, and then implicit QL steps.

Steps are those of Bowdler, Martin, Reinsch and Wilkinson, on a tridiagonal matrix that is held in double precision.
Matrices that need to be scaled, or do not converge, are left to LAPACK. Functions release the GIL and run on one
thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arithmetic import compiled, compiled_for_reals
from ..slots import specialized

Array = Any
_LARGE, _LARGE_SINGLE = 1e120, 1e12
"""Elements larger than these, or all smaller than one over them, are left to LAPACK."""
_EXACT, _EXACT_SINGLE = 1.1e-16, 1e-9
"""What may be neglected beside its neighbours on the diagonal, for results of double and of single precision."""
_UNIT = 32
"""Numbers at a multiple of which loops over rows begin."""
_STEPS = 50
"""Steps for one eigenvalue, of which two are usual."""


@specialized
def is_moderate(matrix: Array) -> bool:
    """Whether no element is too large, or not finite, and not all are too small."""
    top = 0.0
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            size = abs(np.float64(matrix[i, j]))
            if not size < np.inf:
                return False
            top = max(top, size)
    large = _LARGE if matrix.itemsize == 8 else _LARGE_SINGLE
    return top == 0 or 1 / large < top < large


@specialized
def dot(a: Array, b: Array) -> Any:
    total = a[0] * 0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@specialized
def add(target: Array, factor: float, vector: Array) -> None:
    for i in range(target.size):
        target[i] += factor * vector[i]


@specialized
def add_two(target: Array, a: float, x: Array, b: float, y: Array) -> None:
    for i in range(target.size):
        target[i] += a * x[i] + b * y[i]


@specialized
def reflection(x: Array) -> tuple[float, float]:
    """Replace a vector by that of the reflection that leaves its first element only; return its factor and that one."""
    total = np.float64(dot(x, x)) - np.float64(x[0]) * np.float64(x[0])
    first = np.float64(x[0])
    rest = 0.0
    for i in range(1, x.size):
        rest = max(rest, abs(np.float64(x[i])))
    if rest == 0 or total <= 0:
        x[:] = 0
        x[0] = 1
        return 0.0, first
    length = -math.copysign(math.sqrt(first * first + total), first)
    factor = x.dtype.type(1 / (first - length))
    for i in range(x.size):
        x[i] *= factor
    x[0] = 1
    return (length - first) / length, length


@specialized
def _tridiagonal(a: Array, diagonal: Array, beside: Array, factors: Array, products: Array) -> None:
    """Reduce a symmetric matrix, both triangles of which are read; its rows keep the reflections behind the diagonal.

    In front of a reflection are zeros, so that loops begin at whole vectors: odd ends cost more than they save.
    """
    size = a.shape[0]
    for k in range(size - 1):
        diagonal[k] = a[k, k]
        factor, beside[k] = reflection(a[k, k + 1 :])
        factors[k] = factor
        start = (k + 1) // _UNIT * _UNIT
        a[k, start : k + 1] = 0
        products[start : k + 1] = 0
        if factor == 0:
            continue
        v, p = a[k, start:], products[start:]
        for i in range(k + 1, size):
            products[i] = dot(a[i, start:], v) * v.dtype.type(factor)
        add(p, v.dtype.type(-0.5 * factor) * dot(p, v), v)
        for i in range(k + 1, size):
            add_two(a[i, start:], -a[k, i], p, -products[i], v)
    diagonal[size - 1] = a[size - 1, size - 1]


@specialized
def _rows_of_reflections(a: Array, factors: Array, vectors: Array) -> None:
    """Write the transpose of the product of all reflections."""
    size = a.shape[0]
    vectors[:] = 0
    for i in range(size):
        vectors[i, i] = 1
    for k in range(size - 2, -1, -1):
        factor = vectors.dtype.type(factors[k])
        if factor != 0:
            start = (k + 1) // _UNIT * _UNIT
            for i in range(k + 1, size):
                row, v = vectors[i, start:], a[k, start:]
                add(row, -factor * dot(row, v), v)


@specialized
def _rotate(low: Array, high: Array, cosine: float, sine: float) -> None:
    c, s = low.dtype.type(cosine), low.dtype.type(sine)
    for i in range(low.size):
        x, y = low[i], high[i]
        low[i] = c * x - s * y
        high[i] = s * x + c * y


@specialized
def _step(diagonal: Array, beside: Array, first: int, last: int, vectors: Array) -> None:
    """A QL step on the block from one row to another, with Wilkinson's shift; ``vectors``, if any, are rotated too."""
    half = (diagonal[first + 1] - diagonal[first]) / (2 * beside[first])
    root = math.copysign(math.sqrt(half * half + 1), half)
    bulge = diagonal[last] - diagonal[first] + beside[first] / (half + root)
    sine = cosine = 1.0
    shift = 0.0
    for i in range(last - 1, first - 1, -1):
        across, along = sine * beside[i], cosine * beside[i]
        length = math.sqrt(across * across + bulge * bulge)
        beside[i + 1] = length
        if length == 0:
            diagonal[i + 1] -= shift
            beside[last] = 0
            return
        inverse = 1 / length
        sine, cosine = across * inverse, bulge * inverse
        rest = diagonal[i + 1] - shift
        change = (diagonal[i] - rest) * sine + 2 * cosine * along
        shift = sine * change
        diagonal[i + 1] = rest + shift
        bulge = cosine * change - along
        if vectors.size:
            _rotate(vectors[i], vectors[i + 1], cosine, sine)
    diagonal[first] -= shift
    beside[first] = bulge
    beside[last] = 0


@specialized
def _diagonalize(diagonal: Array, beside: Array, vectors: Array, exact: float) -> bool:
    """Make what is beside the diagonal 0; False where that does not converge."""
    size, top = diagonal.size, 0.0
    beside[size - 1] = 0
    for i in range(size):
        top = max(top, abs(diagonal[i]) + abs(beside[i]))
    least = exact / 16 * top
    for first in range(size):
        for step in range(_STEPS + 1):
            last = first
            while last < size - 1:
                size_of = abs(beside[last])
                if size_of <= least or size_of <= exact * (abs(diagonal[last]) + abs(diagonal[last + 1])):
                    break
                last += 1
            if last == first:
                break
            if step == _STEPS:
                return False
            _step(diagonal, beside, first, last, vectors)
    return True


@specialized
def _sort(values: Array, order: Array) -> None:
    """The order in which values ascend."""
    for i in range(values.size):
        j = i
        while j > 0 and values[order[j - 1]] > values[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i


@compiled_for_reals(
    "T[:,:,:]", "boolean", "T[:,:]", "T[:,:,:]", "T[:,:,::1]", "T[::1]", "float64[:,::1]", "int64[::1]", returns="int64"
)
def eigh(
    source: Array, upper: bool, values: Array, out: Array, work: Array, products: Array, numbers: Array, order: Array
) -> int:  # fmt: skip
    """Write eigenvalues and eigenvectors of symmetric matrices, one triangle of which is read.

    Without memory for vectors only eigenvalues are computed. Return whether that could be done. The last four arguments
    are scratch memory: of two matrices and a row of their type, three rows of numbers, and a row of integers.
    """
    size, a = source.shape[1], work[0]
    vectors = work[1] if out.size else work[1, :0]
    diagonal, beside, factors = numbers[0], numbers[1], numbers[2]
    exact = _EXACT if source.itemsize == 8 else _EXACT_SINGLE
    for b in range(source.shape[0]):
        for i in range(size):
            for j in range(i + 1):
                a[i, j] = source[b, j, i] if upper else source[b, i, j]
                a[j, i] = a[i, j]
        if not is_moderate(a):
            return 0
        _tridiagonal(a, diagonal, beside, factors, products)
        if vectors.size:
            _rows_of_reflections(a, factors, vectors)
        if not _diagonalize(diagonal, beside, vectors, exact):
            return 0
        _sort(diagonal, order)
        for j in range(size):
            values[b, j] = diagonal[order[j]]
            if vectors.size:
                row = vectors[order[j]]
                for i in range(size):
                    out[b, i, j] = row[i]
    return 1


@compiled(
    "float32[:,:,:]", "float32[:,:]", "float64[:,::1]", "float64[::1]", "float64[:,::1]", "int64[::1]",
    returns="int64",
)  # fmt: skip
def svdvals(source: Array, values: Array, a: Array, products: Array, numbers: Array, order: Array) -> int:
    """Write singular values of matrices that are not wide; return whether that could be done.

    They are the roots of the eigenvalues of the matrix that has the products of all columns, which is exact in double
    precision but for its sums: the error of the smallest is at most some units in the largest's last place of single
    precision. The rest is scratch memory: of a square as large as there are values, of a row, of three rows, and of a
    row of integers.
    """
    rows, size = source.shape[1], source.shape[2]
    diagonal, beside, factors = numbers[0], numbers[1], numbers[2]
    for b in range(source.shape[0]):
        a[:] = 0
        for row in range(rows):
            for i in range(size):
                factor = np.float64(source[b, row, i])
                for j in range(i, size):
                    a[i, j] += factor * source[b, row, j]
        trace = 0.0
        for i in range(size):
            trace += a[i, i]
            for j in range(i):
                a[i, j] = a[j, i]
        if not trace < np.inf:
            return 0
        _tridiagonal(a, diagonal, beside, factors, products)
        if not _diagonalize(diagonal, beside, a[:0], _EXACT):
            return 0
        _sort(diagonal, order)
        for i in range(size):
            values[b, i] = math.sqrt(max(0.0, diagonal[order[size - 1 - i]]))
    return 1
