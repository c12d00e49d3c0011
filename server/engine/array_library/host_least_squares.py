"""Least-squares problems on the host, by LAPACK's four drivers."""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import compiled

from .host_libraries import PREFIXES, address_of, call, mkl, workspace
from .host_matrices import Array, column_major, columns_of, matrices, optimal
from .host_orthogonal import qr

_LEAST_ELEMENTS, _PANEL = 1 << 11, 16
"""Elements of a matrix from which on compiled loops are used, and how many columns they factorize at a time."""
_MUCH = 2
"""How many times as many rows as columns problems have at least that are solved for their triangle."""


def lstsq(a: Array, b: Array, rcond: float, driver: str) -> tuple[Array, Array, Array, Array]:
    """The solution of least-squares problems, the rank, and singular values where the driver has them; and info.

    The info is not 0 where ``gels`` needs full rank and there is none.
    """
    (m, n), batch, k = a.shape[-2:], a.shape[:-2], min(a.shape[-2:])
    x, rank = np.zeros((*batch, n, b.shape[-1]), a.dtype), np.zeros(batch, np.int64)
    singular, info = np.zeros((*batch, k), a.real.dtype), np.zeros(batch, np.int32)
    if not a.size or not b.size:
        return x, rank, singular, info
    if driver == "gels":
        if not _by_loops(a, b, x):
            x[...] = _full_rank(a, b, info)
        return x, rank, singular, info
    if m >= _MUCH * (n + b.shape[-1]) and mkl() is None and np.isfinite(a).all():
        a, b = _triangle_and_sides(a, b)
        m = n
    ranks, values = np.empty(rank.size, np.int32), singular.reshape(-1, k)
    sides = column_major((*batch, max(m, n), b.shape[-1]), a.dtype)
    sides[..., :m, :] = b
    sides[..., m:, :] = 0
    _by_rank(driver, matrices(columns_of(a)), matrices(sides), values, rcond, ranks)
    x[...], rank[...] = sides[..., :n, :], ranks.reshape(batch)
    return x, rank, singular, info


def _triangle_and_sides(a: Array, b: Array) -> tuple[Array, Array]:
    """Square problems with the solutions, the rank and the singular values of tall ones: R, and the head of Q^H B."""
    n = a.shape[-1]
    triangle = qr(np.concatenate([a, b], -1), None)[1]
    return triangle[..., :n, :n], triangle[..., :n, n:]


def _by_loops(a: Array, b: Array, x: Array) -> bool:
    """Write the solutions where matrices are tall, real and of full rank; False, and nothing of use, elsewhere.

    LAPACK's panels are slower than these where it is OpenBLAS's, and read by rows. Where numbers are too large or too
    small to be squared, and where a matrix is singular, LAPACK is to say what it does.
    """
    (m, n), columns, char = a.shape[-2:], b.shape[-1], a.dtype.char
    if m < n or m * n < _LEAST_ELEMENTS or char not in "fd" or mkl() is not None:
        return False
    loops = compiled.kernels("factorizations.matrices")
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


def _full_rank(a: Array, b: Array, info: Array) -> Array:
    """The solutions where matrices have full rank, by ?gels; ``info`` is written for each."""
    (m, n), columns = a.shape[-2:], b.shape[-1]
    sides = column_major((*a.shape[:-2], max(m, n), columns), a.dtype)
    sides[..., :m, :] = b
    sides[..., m:, :] = 0
    factors, flat, infos = matrices(columns_of(a)), matrices(sides), info.reshape(-1)
    work = workspace("gels", a.dtype, "N", m, n, columns, (), m, (), max(m, n))
    call("gels", a.dtype, len(flat), "N", m, n, columns, factors, m, flat, max(m, n), (work,), work.size, infos)
    return sides[..., :n, :]


def _by_rank(driver: str, a: Array, sides: Array, singular: Array, rcond: float, ranks: Array) -> None:
    """Solve problems of any rank where their operands are: by ?gelsy, or with singular values by ?gelss or ?gelsd."""
    (count, m, n), rows, dtype, real = a.shape, sides.shape[1], a.dtype, a.real.dtype
    of_driver = np.zeros((count, n), np.int32) if driver == "gelsy" else singular
    head = (m, n, sides.shape[2], a, m, sides, rows, of_driver, (np.full(1, rcond, real),), ranks)
    sizes = [np.zeros(1, dtype), np.zeros(1, np.int32)]
    reals = _real_numbers(driver, m, n) if dtype.kind == "c" else 0
    number, integers = [np.zeros(max(1, reals), real)], sizes[1]
    _call_driver(driver, dtype, 1, head, sizes[0], -1, number, integers)
    if driver == "gelsd":
        number, integers = [np.empty(max(1, int(number[0][0]), reals), real)], np.empty(int(integers[0]), np.int32)
    work = np.empty(max(1, optimal(sizes[0][0])), dtype)
    _call_driver(driver, dtype, count, head, work, work.size, number, integers)


def _real_numbers(driver: str, m: int, n: int) -> int:
    """How many real numbers a driver for complex matrices needs as scratch memory; ?gelsd tells itself."""
    return {"gelsy": 2 * n, "gelss": 5 * min(m, n), "gelsd": 1}[driver]


def _call_driver(
    driver: str, dtype: Any, count: int, head: Any, work: Array, size: int, number: list[Array], integers: Array
) -> None:  # fmt: skip
    rest: list[Any] = [(number[0],)] if dtype.kind == "c" else []
    if driver == "gelsd":
        rest.append((integers,))
    call(driver, dtype, count, *head, (work,), size, *rest, (np.empty(1, np.int32),))
