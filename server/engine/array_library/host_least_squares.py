"""Least-squares problems on the host, by LAPACK's four drivers."""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import compiled

from .host_libraries import PREFIXES, address_of, call, mkl, workspace
from .host_matrices import Array, column_major, columns_of, matrices, optimal, routine

_LEAST_ELEMENTS, _PANEL = 1 << 11, 16
"""Elements of a matrix from which on compiled loops are used, and how many columns they factorize at a time."""


def lstsq(a: Array, b: Array, rcond: float, driver: str) -> tuple[Array, Array, Array]:
    """The solution of least-squares problems, the rank, and singular values where the driver has them."""
    (m, n), batch, k = a.shape[-2:], a.shape[:-2], min(a.shape[-2:])
    x, rank = np.zeros((*batch, n, b.shape[-1]), a.dtype), np.zeros(batch, np.int64)
    singular = np.zeros((*batch, k), a.real.dtype)
    if not a.size or not b.size:
        return x, rank, singular
    if driver == "gels":
        if not _by_loops(a, b, x):
            x[...] = _full_rank(a, b)
        return x, rank, singular
    ranks, values = rank.reshape(-1), singular.reshape(-1, k)
    for number, (matrix, side, target) in enumerate(zip(matrices(a), matrices(b), matrices(x), strict=True)):
        padded = np.zeros((max(m, n), side.shape[1]), a.dtype, order="F")
        padded[:m] = side
        target[...], ranks[number], values[number] = _least_squares(columns_of(matrix), padded, rcond, driver)
    return x, rank, singular


def _by_loops(a: Array, b: Array, x: Array) -> bool:
    """Write the solutions where matrices are tall, real and of full rank; False, and nothing of use, elsewhere.

    LAPACK's panels are slower than these where it is OpenBLAS's, and read by rows. Where numbers are too large or too
    small to be squared, and where a matrix is singular, LAPACK is to say what it does.
    """
    (m, n), columns, char = a.shape[-2:], b.shape[-1], a.dtype.char
    if m < n or m * n < _LEAST_ELEMENTS or char not in "fd" or mkl() is not None:
        return False
    loops = compiled.kernels("matrices")
    if loops is None:
        return False
    shapes = [(n + columns, m), (_PANEL, m), *[(n + columns, _PANEL)] * 2, (2, _PANEL, _PANEL), (_PANEL,)]
    memory, function = [np.empty(shape, a.dtype) for shape in shapes], address_of(f"{PREFIXES[char]}gemm")
    for matrix, side, target in zip(matrices(a), matrices(b), matrices(x), strict=True):
        if not loops.least_squares(function, _writable(matrix), _writable(side), *memory):
            return False
        target[...] = memory[0][n:, :n].T
    return bool(np.isfinite(x).all())


def _writable(a: Array) -> Array:
    """A matrix as the loops take it, which know no arrays that cannot be written to."""
    return a if a.flags.writeable else a.copy(order="K")


def _full_rank(a: Array, b: Array) -> Array:
    """The solutions where matrices have full rank, by ?gels."""
    (m, n), columns = a.shape[-2:], b.shape[-1]
    sides = column_major((*a.shape[:-2], max(m, n), columns), a.dtype)
    sides[..., :m, :] = b
    sides[..., m:, :] = 0
    factors, flat, infos = matrices(columns_of(a)), matrices(sides), np.empty(1, np.int32)
    work = workspace("gels", a.dtype, "N", m, n, columns, (), m, (), max(m, n))
    call("gels", a.dtype, len(flat), "N", m, n, columns, factors, m, flat, max(m, n), (work,), work.size, (infos,))
    return sides[..., :n, :]


def _least_squares(a: Array, b: Array, rcond: float, driver: str) -> tuple[Array, int, Any]:
    """One problem, whose operands are overwritten: the solution, the rank, and singular values or zeros."""
    n = a.shape[1]
    if driver == "gelsy":
        work = optimal(routine("gelsy_lwork", a.dtype)(*a.shape, b.shape[1], rcond)[0])
        _, x, _, rank, _ = routine("gelsy", a.dtype)(a, b, np.zeros((n, 1), np.int32), rcond, work)
        return x[:n], rank, 0
    if driver == "gelss":
        work = optimal(routine("gelss_lwork", a.dtype)(*a.shape, b.shape[1], cond=rcond)[0])
        _, x, singular, rank, _, _ = routine("gelss", a.dtype)(a, b, cond=rcond, lwork=work)
        return x[:n], rank, singular
    sizes = routine("gelsd_lwork", a.dtype)(*a.shape, b.shape[1], rcond)
    works = [optimal(size) for size in sizes[:-1]]
    x, singular, rank, _ = routine("gelsd", a.dtype)(a, b, *works, rcond)
    return x[:n], rank, singular
