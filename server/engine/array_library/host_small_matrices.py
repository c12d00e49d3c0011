"""Batches of small real matrices on the host, by compiled loops: a call of LAPACK per matrix would cost the most.

``loops_for`` says whether they are used; the other functions take what it returns. They return what LAPACK returns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import compiled

from .host_libraries import mkl
from .host_matrices import Array, matrices

_LARGEST = 32
"""The most rows or columns for which the loops are faster than LAPACK, whose calls cost two microseconds."""
_BLOCK = 64
"""Rows of a large triangle that are solved at a time: products between blocks are BLAS's."""
_LEAST_MATRICES, _LEAST_ELEMENTS = 8, 1 << 11
"""Batches from which on they are used: loading them takes time once."""


def loops_for(a: Array, largest: int = _LARGEST) -> Any:
    """The compiled loops if a batch of matrices, of at most so many rows and columns, is one for them; else None."""
    size = max(a.shape[-2:])
    if a.dtype.char not in "fd" or size > largest or a.size < max(_LEAST_ELEMENTS, _LEAST_MATRICES * size * size):
        return None
    return compiled.kernels("matrices")


def _writable(a: Array) -> Array:
    """A batch of matrices as the loops take it, which know no arrays that cannot be written to."""
    batch = matrices(a)
    return batch if batch.flags.writeable else batch.copy(order="K")


def _empty_columns(a: Array, shape: tuple[int, int]) -> Array:
    """Memory for matrices of a shape, column-major: (count, columns, rows)."""
    return np.empty((a.size // (a.shape[-2] * a.shape[-1]), *shape[::-1]), a.dtype)


def lu_factor(loops: Any, a: Array) -> tuple[Array, Array, Array]:
    """The compact LU factorization, the rows exchanged, counted from 1, and info."""
    factors = _empty_columns(a, a.shape[-2:])
    pivots, infos = np.empty((len(factors), min(a.shape[-2:])), np.int32), np.empty(len(factors), np.int32)
    loops.lu_factor(_writable(a), factors, pivots, infos)
    batch = a.shape[:-2]
    return factors.swapaxes(1, 2).reshape(a.shape), pivots.reshape(*batch, -1), infos.reshape(batch)


def solve(loops: Any, a: Array, b: Array) -> tuple[Array, Array]:
    """The solution of A X = B and info per matrix; batches are equal."""
    factors, pivots, infos = lu_factor(loops, a)
    x = matrices(b).copy(order="C")
    loops.lu_solve(matrices(factors), matrices(pivots[..., None])[..., 0], x)
    return x.reshape(b.shape), infos


def inv(loops: Any, a: Array) -> tuple[Array, Array]:
    """The inverse, NaN where there is none, and info per matrix."""
    inverse, infos = solve(loops, a, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape))
    if infos.any():
        inverse[infos != 0] = np.nan
    return inverse, infos


def cholesky(loops: Any, a: Array, upper: bool) -> tuple[Array, Array]:
    """The factor of positive-definite matrices and info."""
    factors, infos = _empty_columns(a, a.shape[-2:]), np.empty(a.shape[:-2], np.int32)
    loops.cholesky(_writable(a.swapaxes(-2, -1) if upper else a), factors, infos.reshape(-1))
    return (factors if upper else factors.swapaxes(1, 2)).reshape(a.shape), infos


def qr(loops: Any, a: Array, columns: int) -> tuple[Array, Array]:
    """Q with so many columns, and R with as many rows."""
    (m, n), batch = a.shape[-2:], a.shape[:-2]
    q, r = _empty_columns(a, (m, columns)), np.empty((*batch, columns, n), a.dtype)
    factors, reflectors = np.empty(min(m, n), a.dtype), np.empty((1, n, m), a.dtype)
    loops.qr(_writable(a), reflectors, factors, q, matrices(r))
    return q.swapaxes(1, 2).reshape(*batch, m, columns), r


def solve_triangular(a: Array, b: Array, upper: bool, unitriangular: bool) -> Array | None:
    """The solution of A X = B for triangular A, in blocks between which are products; None if LAPACK is to solve.

    Batches are equal.
    """
    size = a.shape[-1]
    is_large = size > _LARGEST and a.dtype.char in "fd" and mkl() is None
    loops = compiled.kernels("matrices") if is_large else loops_for(a)
    if loops is None or not b.size:
        return None
    factors, x = matrices(a), matrices(b).copy(order="C")
    block = _BLOCK if is_large else size
    starts = range(0, size, block)
    for start in reversed(starts) if upper else starts:
        end = min(start + block, size)
        solved = slice(end, None) if upper else slice(start)
        side = x[:, start:end]
        if x[:, solved].size:
            side = side - factors[:, start:end, solved] @ x[:, solved]
        side = np.ascontiguousarray(side)
        loops.solve_triangular(_writable(factors[:, start:end, start:end]), side, upper, unitriangular)
        x[:, start:end] = side
    return x.reshape(b.shape)
