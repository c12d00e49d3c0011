"""Factorizations of batches of matrices on the host: LAPACK through SciPy, matrix by matrix, or NumPy's batched loops.

Functions take arrays of single or double precision, real or complex, of any layout, and return new ones. Where LAPACK
reports how it went, they also return its ``info`` per matrix: 0, or the number of the diagonal element that failed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.linalg import _umath_linalg

from telegrad_protocol.errors import NotSupportedError

Array = Any
_loops: Any = _umath_linalg
_SMALL = 64
"""Up to this size batches go through NumPy's loops, which compute small matrices with little overhead."""
_TINY = 12
"""Up to this size NumPy's inverses, by solving for the identity, are faster than LAPACK's own."""
_PREFIXES = {"f": "s", "d": "d", "F": "c", "D": "z"}


@functools.cache
def _lapack() -> Any:
    import scipy.linalg.lapack

    return scipy.linalg.lapack


def routine(name: str, dtype: Any) -> Callable[..., Any]:
    """LAPACK's routine of a name, for a type of elements."""
    found: Callable[..., Any] = getattr(_lapack(), _PREFIXES[dtype.char] + name)
    return found


def _orthogonal(name: str, dtype: Any) -> Callable[..., Any]:
    """A routine whose name begins with ``or`` for real and with ``un`` for complex numbers."""
    return routine(("un" if dtype.kind == "c" else "or") + name, dtype)


def matrices(array: Array) -> Array:
    """A batch of matrices with one dimension for the batch."""
    return array.reshape(math.prod(array.shape[:-2]), *array.shape[-2:])


def is_batch_of_small(array: Array, largest: int = _SMALL) -> bool:
    """Whether NumPy's loops are faster than LAPACK called matrix by matrix."""
    return bool(array.ndim > 2 and max(array.shape[-2:]) <= largest)


def column_major(shape: tuple[int, ...], dtype: Any) -> Array:
    """An uninitialized batch of matrices whose columns are contiguous, as LAPACK returns them."""
    return np.empty((*shape[:-2], shape[-1], shape[-2]), dtype).swapaxes(-2, -1)


def cholesky(a: Array, upper: bool) -> tuple[Array, Array]:
    """The factor of Hermitian positive-definite matrices; what is in the other triangle is not read."""
    info = np.zeros(a.shape[:-2], np.int32)
    if is_batch_of_small(a):
        factor = (_loops.cholesky_up if upper else _loops.cholesky_lo)(a)
        if not np.isnan(factor).any():
            return factor, info
    factor = column_major(a.shape, a.dtype)
    potrf, infos = routine("potrf", a.dtype), info.reshape(-1)
    for number, (matrix, target) in enumerate(zip(matrices(a), matrices(factor), strict=True)):
        target[...], infos[number] = potrf(matrix, lower=not upper, clean=1)
    return factor, info


def lu_factor(a: Array, pivot: bool) -> tuple[Array, Array, Array]:
    """The compact LU factorization, the rows exchanged, counted from 1, and info."""
    if not pivot:
        raise NotSupportedError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    lu = column_major(a.shape, a.dtype)
    pivots = np.empty((*a.shape[:-2], min(a.shape[-2:])), np.int32)
    info = np.zeros(a.shape[:-2], np.int32)
    if lu.size:
        getrf, infos = routine("getrf", a.dtype), info.reshape(-1)
        exchanged = pivots.reshape(-1, pivots.shape[-1])
        for number, (matrix, target) in enumerate(zip(matrices(a), matrices(lu), strict=True)):
            target[...], exchanged[number], infos[number] = getrf(matrix)
        pivots += 1
    return lu, pivots, info


def lu_solve(lu: Array, pivots: Array, b: Array, adjoint: bool) -> Array:
    """The solution of A X = B, or of A^H X = B, where A is given as its LU factorization; batches are equal."""
    x = column_major(b.shape, b.dtype)
    if x.size:
        getrs, trans = routine("getrs", b.dtype), 2 if adjoint else 0
        rows = pivots.reshape(-1, pivots.shape[-1]) - 1
        for number, (factor, side, target) in enumerate(zip(matrices(lu), matrices(b), matrices(x), strict=True)):
            target[...] = getrs(factor, rows[number], side, trans=trans)[0]
    return x


def solve(a: Array, b: Array) -> tuple[Array, Array]:
    """The solution of A X = B and info per matrix; batches are equal."""
    info = np.zeros(a.shape[:-2], np.int32)
    if is_batch_of_small(a) or not b.size:
        x = _loops.solve(a, b)
        if not np.isnan(x).any():
            return x, info
    x = column_major(b.shape, b.dtype)
    gesv, infos = routine("gesv", b.dtype), info.reshape(-1)
    for number, (matrix, side, target) in enumerate(zip(matrices(a), matrices(b), matrices(x), strict=True)):
        _, _, target[...], infos[number] = gesv(matrix, side)
    return x, info


def inv(a: Array) -> tuple[Array, Array]:
    """The inverse and info per matrix."""
    info = np.zeros(a.shape[:-2], np.int32)
    if is_batch_of_small(a, _TINY) or not a.size:
        inverse = _loops.inv(a)
        if not np.isnan(inverse).any():
            return inverse, info
    inverse = column_major(a.shape, a.dtype)
    getrf, getri, infos = routine("getrf", a.dtype), routine("getri", a.dtype), info.reshape(-1)
    work = _optimal(routine("getri_lwork", a.dtype)(a.shape[-1])[0])
    for number, (matrix, target) in enumerate(zip(matrices(a), matrices(inverse), strict=True)):
        factor, pivots, infos[number] = getrf(matrix)
        if infos[number]:
            target[...] = np.nan
        else:
            target[...], infos[number] = getri(factor, pivots, lwork=work, overwrite_lu=1)
    return inverse, info


def _optimal(answer: Any) -> int:
    """LAPACK answers the question for a workspace with a floating-point number."""
    return int(answer.real)


def det(a: Array) -> Array:
    """The determinant."""
    return _loops.det(a)


def slogdet(a: Array) -> tuple[Array, Array]:
    """The sign of the determinant and the logarithm of its absolute value."""
    sign, logarithm = _loops.slogdet(a)
    return sign, logarithm


def solve_triangular(a: Array, b: Array, upper: bool, unitriangular: bool) -> Array:
    """The solution of A X = B for triangular A; batches are equal."""
    x = column_major(b.shape, b.dtype)
    if x.size:
        trtrs = routine("trtrs", b.dtype)
        for matrix, side, target in zip(matrices(a), matrices(b), matrices(x), strict=True):
            if matrix.flags.f_contiguous:
                solved, info = trtrs(matrix, side, lower=not upper, unitdiag=unitriangular)
            else:  # the transpose of the transpose takes no copy
                solved, info = trtrs(matrix.T, side, lower=upper, trans=1, unitdiag=unitriangular)
            target[...] = solved if not info else _by_division(matrix, side, upper)
    return x


def cholesky_solve(factor: Array, b: Array, upper: bool) -> Array:
    """The solution of A X = B where A is given as its Cholesky factor; batches are equal."""
    x = column_major(b.shape, b.dtype)
    if x.size:
        potrs = routine("potrs", b.dtype)
        for matrix, side, target in zip(matrices(factor), matrices(b), matrices(x), strict=True):
            target[...] = potrs(matrix, side, lower=not upper)[0]
    return x


def _by_division(a: Array, b: Array, upper: bool) -> Array:
    """Substitute in a singular triangular system, as BLAS does without a check: the result has infinities or NaN."""
    x = b.astype(b.dtype)
    order = range(a.shape[0] - 1, -1, -1) if upper else range(a.shape[0])
    for row in order:
        known = slice(row + 1, None) if upper else slice(0, row)
        x[row] = (x[row] - a[row, known] @ x[known]) / a[row, row]
    return x


def geqrf(a: Array) -> tuple[Array, Array]:
    """LAPACK's QR factorization: R and reflectors, and the reflectors' scales."""
    factor = column_major(a.shape, a.dtype)
    tau = np.empty((*a.shape[:-2], min(a.shape[-2:])), a.dtype)
    if factor.size:
        function, scales = routine("geqrf", a.dtype), tau.reshape(-1, tau.shape[-1])
        work = _optimal(routine("geqrf_lwork", a.dtype)(*a.shape[-2:])[0])
        for number, (matrix, target) in enumerate(zip(matrices(a), matrices(factor), strict=True)):
            target[...], scales[number] = function(matrix, lwork=work)[:2]
    return factor, tau


def householder_product(a: Array, tau: Array) -> Array:
    """The first columns of the product of reflectors; there are as many as columns of ``a``."""
    product = column_major(a.shape, a.dtype)
    if product.size:
        function = _orthogonal("gqr", a.dtype)
        work = max(1, 32 * a.shape[-1])
        if not tau.shape[-1]:
            product[...] = np.eye(*a.shape[-2:])
            return product
        scales = tau.reshape(-1, tau.shape[-1])
        for number, (matrix, target) in enumerate(zip(matrices(a), matrices(product), strict=True)):
            target[...] = function(matrix, scales[number], lwork=work)[0]
    return product


def qr(a: Array, columns: int | None) -> tuple[Array, Array]:
    """Q with so many columns, and R; None means that only R is wanted."""
    (m, n), batch = a.shape[-2:], a.shape[:-2]
    k = min(m, n)
    if is_batch_of_small(a) and a.size and columns is not None:
        q, r = np.linalg.qr(a, "complete" if columns > k else "reduced")
        return q.astype(a.dtype, copy=False), r.astype(a.dtype, copy=False)
    factor, tau = geqrf(a)
    r = np.triu(factor[..., : k if columns is None else columns, :])
    if columns is None:
        return r, r
    padded = column_major((*batch, m, columns), a.dtype)
    padded[...] = 0
    padded[..., : min(n, columns)] = factor[..., : min(n, columns)]
    if not k:
        padded[...] = np.eye(m, columns)
        return padded, r
    return householder_product(padded, tau), r


def eigh(a: Array, upper: bool, vectors: bool) -> tuple[Array, Array, Array]:
    """Eigenvalues, eigenvectors (or the eigenvalues again) and info; NumPy's loops call ?syevd and ?heevd."""
    loops = _loops
    if vectors:
        made = np.empty(a.shape[:-1], a.real.dtype), column_major(a.shape, a.dtype)
        values, columns = (loops.eigh_up if upper else loops.eigh_lo)(a, out=made)
    else:
        values = columns = (loops.eigvalsh_up if upper else loops.eigvalsh_lo)(a)
    return values, columns, _failed(values)


def _failed(values: Array) -> Array:
    """An info of 1 where NumPy's loops gave NaN, with which they tell that LAPACK did not converge."""
    return np.isnan(values).any(-1).astype(np.int32) if values.shape[-1] else np.zeros(values.shape[:-1], np.int32)


def eig(a: Array, vectors: bool) -> tuple[Array, Array, Array]:
    """Complex eigenvalues, eigenvectors (or the eigenvalues again) and info; NumPy's loops call ?geev."""
    dtype = np.result_type(a.dtype, np.complex64)
    if vectors:
        values, columns = _loops.eig(a)
    else:
        values = columns = _loops.eigvals(a)
    return values.astype(dtype, copy=False), columns.astype(dtype, copy=False), _failed(values)


def svd(a: Array, full: bool, vectors: bool) -> tuple[Array, Array, Array, Array]:
    """U, singular values, V^H and info, by ?gesdd; without vectors U and V^H are empty."""
    (m, n), batch = a.shape[-2:], a.shape[:-2]
    k, real = min(m, n), a.real.dtype
    left, right = (m, n) if full else (k, k)
    if is_batch_of_small(a) and a.size and np.isfinite(a).all():
        return _small_svd(a, full, vectors)
    u, vh = column_major((*batch, m, left), a.dtype), column_major((*batch, right, n), a.dtype)
    s, info = np.empty((*batch, k), real), np.zeros(batch, np.int32)
    if not a.size:
        u[...], vh[...] = np.eye(m, left), np.eye(right, n)
        return u, s, vh, info
    gesdd, infos, values = routine("gesdd", a.dtype), info.reshape(-1), s.reshape(-1, k)
    work = _optimal(routine("gesdd_lwork", a.dtype)(m, n, vectors, full)[0])
    for number, (matrix, to_u, to_vh) in enumerate(zip(matrices(a), matrices(u), matrices(vh), strict=True)):
        if not np.isfinite(matrix).all():
            infos[number] = -4
            continue
        left_vectors, values[number], right_vectors, infos[number] = gesdd(
            matrix, compute_uv=vectors, full_matrices=full, lwork=work
        )
        if vectors:
            to_u[...], to_vh[...] = left_vectors, right_vectors
    return u, s, vh, info


def _small_svd(a: Array, full: bool, vectors: bool) -> tuple[Array, Array, Array, Array]:
    """The same by NumPy, which computes in double precision."""
    info = np.zeros(a.shape[:-2], np.int32)
    if not vectors:
        s = np.linalg.svd(a, compute_uv=False).astype(a.real.dtype, copy=False)
        return a, s, a, info
    u, s, vh = np.linalg.svd(a, full_matrices=full)
    return u.astype(a.dtype, copy=False), s.astype(a.real.dtype, copy=False), vh.astype(a.dtype, copy=False), info


def ldl_factor(a: Array, hermitian: bool) -> tuple[Array, Array, Array]:
    """The compact LDL factorization of the lower triangles, pivots counted from 1, and info."""
    name = "hetrf" if hermitian and a.dtype.kind == "c" else "sytrf"
    factor, pivots = np.empty(a.shape, a.dtype), np.empty(a.shape[:-1], np.int32)
    info = np.zeros(a.shape[:-2], np.int32)
    if a.size:
        function, infos = routine(name, a.dtype), info.reshape(-1)
        exchanged = pivots.reshape(-1, a.shape[-1])
        for number, (matrix, target) in enumerate(zip(matrices(a), matrices(factor), strict=True)):
            target[...], exchanged[number], infos[number] = function(np.tril(matrix), lower=1)
    return factor, pivots, info


def ldl_solve(factor: Array, pivots: Array, b: Array, hermitian: bool) -> Array:
    """The solution of A X = B where A is given as its LDL factorization; batches are equal."""
    name = "hetrs" if hermitian and b.dtype.kind == "c" else "sytrs"
    x = np.empty(b.shape, b.dtype)
    if x.size:
        function, rows = routine(name, b.dtype), pivots.reshape(-1, pivots.shape[-1])
        for number, (matrix, side, target) in enumerate(zip(matrices(factor), matrices(b), matrices(x), strict=True)):
            target[...] = function(matrix, rows[number], side, lower=1)[0]
    return x


def lstsq(a: Array, b: Array, rcond: float, driver: str) -> tuple[Array, Array, Array]:
    """The solution of least-squares problems, the rank, and singular values where the driver has them."""
    (m, n), batch, k = a.shape[-2:], a.shape[:-2], min(a.shape[-2:])
    x, rank = np.zeros((*batch, n, b.shape[-1]), a.dtype), np.zeros(batch, np.int64)
    singular = np.zeros((*batch, k), a.real.dtype)
    if not a.size or not b.size:
        return x, rank, singular
    ranks, values = rank.reshape(-1), singular.reshape(-1, k)
    for number, (matrix, side, target) in enumerate(zip(matrices(a), matrices(b), matrices(x), strict=True)):
        padded = np.zeros((max(m, n), side.shape[1]), a.dtype)
        padded[:m] = side
        target[...], ranks[number], values[number] = _least_squares(matrix, padded, rcond, driver)
    return x, rank, singular


def _least_squares(a: Array, b: Array, rcond: float, driver: str) -> tuple[Array, int, Any]:
    """One problem: the solution, the rank, and singular values or zeros."""
    n = a.shape[1]
    if driver == "gels":
        work = _optimal(routine("gels_lwork", a.dtype)(*a.shape, b.shape[1])[0])
        return routine("gels", a.dtype)(a, b, lwork=work)[1][:n], 0, 0
    if driver == "gelsy":
        work = _optimal(routine("gelsy_lwork", a.dtype)(*a.shape, b.shape[1], rcond)[0])
        _, x, _, rank, _ = routine("gelsy", a.dtype)(a, b, np.zeros((n, 1), np.int32), rcond, work)
        return x[:n], rank, 0
    if driver == "gelss":
        work = _optimal(routine("gelss_lwork", a.dtype)(*a.shape, b.shape[1], cond=rcond)[0])
        _, x, singular, rank, _, _ = routine("gelss", a.dtype)(a, b, cond=rcond, lwork=work)
        return x[:n], rank, singular
    sizes = routine("gelsd_lwork", a.dtype)(*a.shape, b.shape[1], rcond)
    works = [_optimal(size) for size in sizes[:-1]]
    x, singular, rank, _ = routine("gelsd", a.dtype)(a, b, *works, rcond)
    return x[:n], rank, singular
