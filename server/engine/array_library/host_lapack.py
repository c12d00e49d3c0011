"""Factorizations of batches of matrices on the host: LAPACK through SciPy, matrix by matrix, or NumPy's batched loops.

Functions take arrays of single or double precision, real or complex, of any layout, and return new ones. Where LAPACK
reports how it went, they also return its ``info`` per matrix: 0, or the number of the diagonal element that failed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.linalg import _umath_linalg

from telegrad_protocol.errors import NotSupportedError

from .host_least_squares import lstsq as lstsq
from .host_matrices import (
    Array,
    blas_routine,
    column_major,
    columns_of,
    ensure_written,
    matrices,
    optimal,
    orthogonal_routine,
    routine,
)

_loops: Any = _umath_linalg
_SMALL = 64
"""Up to this size batches go through NumPy's loops, which compute small matrices with little overhead."""
_TINY = 12
"""Up to this size NumPy's inverses, by solving for the identity, are faster than LAPACK's own."""


def is_batch_of_small(array: Array, largest: int = _SMALL) -> bool:
    """Whether NumPy's loops are faster than LAPACK called matrix by matrix."""
    return bool(array.ndim > 2 and max(array.shape[-2:]) <= largest)


def cholesky(a: Array, upper: bool) -> tuple[Array, Array]:
    """The factor of Hermitian positive-definite matrices; what is in the other triangle is not read."""
    info = np.zeros(a.shape[:-2], np.int32)
    if is_batch_of_small(a):
        factor = (_loops.cholesky_up if upper else _loops.cholesky_lo)(a)
        if not np.isnan(factor).any():
            return factor, info
    factor = columns_of(a)
    potrf, infos = routine("potrf", a.dtype), info.reshape(-1)
    for number, matrix in enumerate(matrices(factor)):
        result, infos[number] = potrf(matrix, lower=not upper, clean=1, overwrite_a=1)
        ensure_written(result, matrix)
        invalid = np.isnan(matrix.diagonal())
        if not infos[number] and invalid.any():  # which not every LAPACK tells
            infos[number] = invalid.argmax() + 1
    return factor, info


def _factorized(batch: Array) -> tuple[Array, Array]:
    """Factorize matrices with contiguous columns where they are: the rows exchanged, counted from 0, and info."""
    getrf = routine("getrf", batch.dtype)
    exchanged, infos = [], []
    for matrix in batch:
        result, pivots, info = getrf(matrix, overwrite_a=1)
        ensure_written(result, matrix)
        exchanged.append(pivots)
        infos.append(info)
    return np.array(exchanged, np.int32), np.array(infos, np.int32)


def lu_factor(a: Array, pivot: bool) -> tuple[Array, Array, Array]:
    """The compact LU factorization, the rows exchanged, counted from 1, and info."""
    if not pivot:
        raise NotSupportedError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    batch, shape = a.shape[:-2], (*a.shape[:-2], min(a.shape[-2:]))
    lu = columns_of(a)
    if not lu.size:
        return lu, np.empty(shape, np.int32), np.zeros(batch, np.int32)
    exchanged, infos = _factorized(matrices(lu))
    exchanged += 1
    return lu, exchanged.reshape(shape), infos.reshape(batch)


def lu_solve(lu: Array, pivots: Array, b: Array, adjoint: bool) -> Array:
    """The solution of A X = B, or of A^H X = B, where A is given as its LU factorization; batches are equal."""
    x = columns_of(b)
    if x.size:
        rows = pivots.reshape(-1, pivots.shape[-1]) - 1
        _substitute(matrices(lu), rows, matrices(x), 2 if adjoint else 0)
    return x


def _substitute(factors: Array, exchanged: Array, sides: Array, trans: int) -> None:
    """Solve factorized systems in the memory of the right sides, whose columns are contiguous."""
    getrs = routine("getrs", sides.dtype)
    for factor, rows, side in zip(factors, exchanged, sides, strict=True):
        ensure_written(getrs(factor, rows, side, trans=trans, overwrite_b=1)[0], side)


def _either_way(a: Array) -> tuple[Array, int]:
    """A copy of matrices for LAPACK, and 1 if it has their transposes: where these take less time to copy."""
    if a.dtype.kind == "c" or a.strides[-1] > a.strides[-2]:
        return matrices(columns_of(a)), 0
    return matrices(a.copy(order="C")).swapaxes(-2, -1), 1


def solve(a: Array, b: Array) -> tuple[Array, Array]:
    """The solution of A X = B and info per matrix; batches are equal."""
    if is_batch_of_small(a, _TINY) or not b.size:
        x = _loops.solve(a, b)
        if not np.isnan(x).any():
            return x, np.zeros(a.shape[:-2], np.int32)
    factors, trans = _either_way(a)
    x = columns_of(b)
    exchanged, infos = _factorized(factors)
    _substitute(factors, exchanged, matrices(x), trans)
    if trans and infos.any():  # the row that fails in A is not always the one that fails in its transpose
        infos = lu_factor(a, True)[2]
    return x, infos.reshape(a.shape[:-2])


def inv(a: Array) -> tuple[Array, Array]:
    """The inverse and info per matrix."""
    if is_batch_of_small(a, _TINY) or not a.size:
        inverse = _loops.inv(a)
        if not np.isnan(inverse).any():
            return inverse, np.zeros(a.shape[:-2], np.int32)
    inverse = columns_of(a)
    exchanged, infos = _factorized(matrices(inverse))
    getri = routine("getri", a.dtype)
    work = optimal(routine("getri_lwork", a.dtype)(a.shape[-1])[0])
    for matrix, pivots, info in zip(matrices(inverse), exchanged, infos.tolist(), strict=True):
        if info:
            matrix[...] = np.nan
        else:
            ensure_written(getri(matrix, pivots, lwork=work, overwrite_lu=1)[0], matrix)
    return inverse, infos.reshape(a.shape[:-2])


def det(a: Array) -> Array:
    """The determinant."""
    if a.ndim > 2 or a.shape[-1] < _SMALL:
        return _loops.det(a)
    diagonal, sign = _diagonal_and_sign(a)
    return diagonal.prod() * sign


def slogdet(a: Array) -> tuple[Array, Array]:
    """The sign of the determinant and the logarithm of its absolute value."""
    if a.ndim > 2 or a.shape[-1] < _SMALL:
        sign, logarithm = _loops.slogdet(a)
        return sign, logarithm
    diagonal, sign = _diagonal_and_sign(a)
    size = np.abs(diagonal)
    phase = diagonal / np.where(size, size, 1)
    return phase.prod() * sign, np.log(size).sum()


def _diagonal_and_sign(a: Array) -> tuple[Array, Any]:
    """The diagonal of U of one matrix, or of its transpose, and the sign of the permutation."""
    copy = a.copy(order="K")
    factor = copy if copy.flags.f_contiguous else copy.T
    exchanged, _ = _factorized(factor[None])
    odd = np.count_nonzero(exchanged != np.arange(a.shape[-1])) % 2
    return factor.diagonal(), a.dtype.type(-1 if odd else 1)


def solve_triangular(a: Array, b: Array, upper: bool, unitriangular: bool) -> Array:
    """The solution of A X = B for triangular A; batches are equal."""
    x = columns_of(b)
    if x.size:
        trsm = blas_routine("trsm", b.dtype)
        for matrix, side in zip(matrices(a), matrices(x), strict=True):
            if matrix.flags.f_contiguous:
                solved = trsm(1, matrix, side, lower=not upper, diag=unitriangular, overwrite_b=1)
            else:  # the transpose of the transpose takes no copy
                solved = trsm(1, matrix.T, side, lower=upper, trans_a=1, diag=unitriangular, overwrite_b=1)
            ensure_written(solved, side)
    return x


def cholesky_solve(factor: Array, b: Array, upper: bool) -> Array:
    """The solution of A X = B where A is given as its Cholesky factor; batches are equal."""
    x = columns_of(b)
    if x.size:
        potrs = routine("potrs", b.dtype)
        for matrix, side in zip(matrices(factor), matrices(x), strict=True):
            ensure_written(potrs(matrix, side, lower=not upper, overwrite_b=1)[0], side)
    return x


def geqrf(a: Array) -> tuple[Array, Array]:
    """LAPACK's QR factorization: R and reflectors, and the reflectors' scales."""
    factor = columns_of(a)
    tau = np.empty((*a.shape[:-2], min(a.shape[-2:])), a.dtype)
    if factor.size:
        function, scales = routine("geqrf", a.dtype), tau.reshape(-1, tau.shape[-1])
        work = optimal(routine("geqrf_lwork", a.dtype)(*a.shape[-2:])[0])
        for number, matrix in enumerate(matrices(factor)):
            result, scales[number] = function(matrix, lwork=work, overwrite_a=1)[:2]
            ensure_written(result, matrix)
    return factor, tau


def householder_product(a: Array, tau: Array) -> Array:
    """The first columns of the product of reflectors; there are as many as columns of ``a``."""
    return _product_of_reflectors(columns_of(a), tau)


def _product_of_reflectors(product: Array, tau: Array) -> Array:
    """The same in the memory of the reflectors, whose columns are contiguous."""
    if product.size:
        function = orthogonal_routine("gqr", product.dtype)
        work = max(1, 32 * product.shape[-1])
        if not tau.shape[-1]:
            product[...] = np.eye(*product.shape[-2:])
            return product
        scales = tau.reshape(-1, tau.shape[-1])
        for number, matrix in enumerate(matrices(product)):
            ensure_written(function(matrix, scales[number], lwork=work, overwrite_a=1)[0], matrix)
    return product


def qr(a: Array, columns: int | None) -> tuple[Array, Array]:
    """Q with so many columns, and R; None means that only R is wanted."""
    (m, n), batch = a.shape[-2:], a.shape[:-2]
    k = min(m, n)
    if is_batch_of_small(a, _TINY) and a.size and columns is not None:
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
    return _product_of_reflectors(padded, tau), r


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
    work = optimal(routine("gesdd_lwork", a.dtype)(m, n, vectors, full)[0])
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
    """The same by NumPy, whose own functions would compute in double precision."""
    info = np.zeros(a.shape[:-2], np.int32)
    if not vectors:
        return a, _svd_loop("", a)(a), a, info
    u, s, vh = _svd_loop("_f" if full else "_s", a)(a)
    return u, s, vh, info


def _svd_loop(kind: str, a: Array) -> Any:
    """NumPy's loop, of which releases before 2.2 had one for wide and one for tall matrices."""
    shape = "_m" if a.shape[-2] < a.shape[-1] else "_n"
    return getattr(_loops, f"svd{kind}", None) or getattr(_loops, f"svd{shape}{kind}")


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
