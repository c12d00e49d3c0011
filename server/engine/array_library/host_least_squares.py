"""Least-squares problems on the host, by LAPACK's four drivers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .host_libraries import call, workspace
from .host_matrices import Array, column_major, columns_of, matrices, optimal, routine


def lstsq(a: Array, b: Array, rcond: float, driver: str) -> tuple[Array, Array, Array]:
    """The solution of least-squares problems, the rank, and singular values where the driver has them."""
    (m, n), batch, k = a.shape[-2:], a.shape[:-2], min(a.shape[-2:])
    x, rank = np.zeros((*batch, n, b.shape[-1]), a.dtype), np.zeros(batch, np.int64)
    singular = np.zeros((*batch, k), a.real.dtype)
    if not a.size or not b.size:
        return x, rank, singular
    if driver == "gels":
        x[...] = _full_rank(a, b)
        return x, rank, singular
    ranks, values = rank.reshape(-1), singular.reshape(-1, k)
    for number, (matrix, side, target) in enumerate(zip(matrices(a), matrices(b), matrices(x), strict=True)):
        padded = np.zeros((max(m, n), side.shape[1]), a.dtype, order="F")
        padded[:m] = side
        target[...], ranks[number], values[number] = _least_squares(columns_of(matrix), padded, rcond, driver)
    return x, rank, singular


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
