"""The first half of eigenvalues of small real matrices: balancing, and Householder's reduction to Hessenberg form.

Matrices are in column-major order: element (i, j) is at [j, i]. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..slots import specialized
from .spectra import add, dot, reflection

Array = Any
_LESS = 0.95
"""A row and its column are scaled if that makes the sum of their norms smaller by this factor (Parlett and Reinsch)."""
_ROUNDS = 20
"""Rounds of scaling after which a matrix is good enough."""


@specialized
def separates(a: Array) -> bool:
    """Whether a row or a column has zeros beside the diagonal: an eigenvalue that rotations would only blur."""
    size = a.shape[0]
    for k in range(size):
        across = along = 0.0
        for i in range(size):
            if i != k:
                along += abs(np.float64(a[k, i]))
                across += abs(np.float64(a[i, k]))
        if across == 0 or along == 0:
            return True
    return False


@specialized
def balance(a: Array, scales: Array) -> None:
    """Scale rows and columns by powers of two until their norms are alike; ``scales`` are those of the columns."""
    size = a.shape[0]
    for k in range(size):
        scales[k] = 1
    for _ in range(_ROUNDS):
        is_done = True
        for k in range(size):
            across = along = 0.0
            for i in range(size):
                if i != k:
                    along += np.float64(a[k, i]) * np.float64(a[k, i])
                    across += np.float64(a[i, k]) * np.float64(a[i, k])
            along, across = math.sqrt(along), math.sqrt(across)
            if along == 0 or across == 0:
                continue
            power = np.rint(0.5 * math.log2(across / along))
            factor = math.ldexp(1.0, int(power))
            if power != 0 and along * factor + across / factor < _LESS * (along + across):
                scales[k] *= factor
                for i in range(size):
                    a[k, i] = a[k, i] * factor
                for i in range(size):
                    a[i, k] = a[i, k] / factor
                is_done = False
        if is_done:
            return


@specialized
def _add_four(target: Array, a: Any, x: Array, b: Any, y: Array, c: Any, z: Array, d: Any, w: Array) -> None:
    for i in range(target.size):
        target[i] += (a * x[i] + b * y[i]) + (c * z[i] + d * w[i])


@specialized
def _multiply(columns: Array, vector: Array, out: Array) -> None:
    """The product of a matrix, given by its columns, and a vector."""
    out[:] = 0
    j = 0
    while j + 4 <= vector.size:
        _add_four(
            out, vector[j], columns[j], vector[j + 1], columns[j + 1], vector[j + 2], columns[j + 2],
            vector[j + 3], columns[j + 3],
        )  # fmt: skip
        j += 4
    while j < vector.size:
        add(out, vector[j], columns[j])
        j += 1


@specialized
def reduce(a: Array, factors: Array, products: Array) -> None:
    """Make all below the first subdiagonal zero; the reflections' vectors are kept there, and their factors."""
    size = a.shape[0]
    for k in range(size - 2):
        v = a[k, k + 1 :]
        factor, length = reflection(v)
        factors[k] = factor
        if factor != 0:
            scale = a.dtype.type(factor)
            _multiply(a[k + 1 :], v, products)
            for j in range(k + 1, size):
                add(a[j], -scale * a[k, j], products)
                below = a[j, k + 1 :]
                add(below, -scale * dot(v, below), v)
        v[0] = length


@specialized
def form_reflections(a: Array, factors: Array, q: Array, tail: Array) -> None:
    """Write the product of all reflections, column-major, and zeros where the reduced matrix has its reflections."""
    size = a.shape[0]
    q[:] = 0
    for i in range(size):
        q[i, i] = 1
    for k in range(size - 3, -1, -1):
        v = tail[: size - k - 1]
        v[:] = a[k, k + 1 :]
        v[0] = 1
        a[k, k + 2 :] = 0
        factor = q.dtype.type(factors[k])
        if factor != 0:
            for j in range(k + 1, size):
                below = q[j, k + 1 :]
                add(below, -factor * dot(v, below), v)


@specialized
def clear_reflections(a: Array) -> None:
    """Write zeros where the reduced matrix has its reflections."""
    for k in range(a.shape[0] - 2):
        a[k, k + 2 :] = 0
