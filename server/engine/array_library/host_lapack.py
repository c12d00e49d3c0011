"""Factorizations of batches of matrices on the host: LAPACK through SciPy, matrix by matrix, or NumPy's batched loops.

Functions take arrays of single or double precision, real or complex, of any layout, and return new ones. Where LAPACK
reports how it went, they also return its ``info`` per matrix: 0, or the number of the diagonal element that failed.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.linalg import _umath_linalg

from telegrad_protocol.errors import NotSupportedError

from . import host_small_matrices as small
from .host_least_squares import lstsq as lstsq
from .host_libraries import call, mkl, workspace
from .host_matrices import Array, as_columns, columns_of, matrices
from .host_orthogonal import geqrf as geqrf
from .host_orthogonal import householder_product as householder_product
from .host_orthogonal import ormqr as ormqr
from .host_orthogonal import qr as qr
from .host_spectra import eig as eig
from .host_spectra import eigh as eigh
from .host_spectra import svd as svd

_loops: Any = _umath_linalg
_SMALL = 64
"""Up to this size batches go through NumPy's loops, which compute small matrices with little overhead."""
_TINY = 12
"""Up to this size they are faster for inverses and systems, too, which they solve for the identity."""
_PANEL = 64
"""So many columns of a triangle are cleared at a time."""


def _uses_loops(array: Array, largest: int = _SMALL) -> bool:
    """Whether NumPy's loops over a batch of small matrices are faster than calls of LAPACK from Python."""
    return bool(array.ndim > 2 and max(array.shape[-2:]) <= largest)


def cholesky(a: Array, upper: bool) -> tuple[Array, Array]:
    """The factor of Hermitian positive-definite matrices; what is in the other triangle is not read."""
    factorized = small.cholesky(a, upper)
    if factorized is not None:
        factorize_failed(a, upper, *factorized)
        return factorized
    if _uses_loops(a) or not a.size:
        factor = (_loops.cholesky_up if upper else _loops.cholesky_lo)(a)
        if not np.isnan(factor).any():
            return factor, np.zeros(a.shape[:-2], np.int32)
    return _cholesky_by_lapack(a, upper)


def factorize_failed(a: Array, upper: bool, factor: Array, info: Array) -> None:
    """Have LAPACK factorize what has an info: it writes how far it came, and loops leave nothing of use."""
    failed = info != 0
    if failed.any():
        factor[failed], info[failed] = _cholesky_by_lapack(a[failed], upper)


def _cholesky_by_lapack(a: Array, upper: bool) -> tuple[Array, Array]:
    info, size, factor = np.zeros(a.shape[:-2], np.int32), a.shape[-1], columns_of(a)
    batch, infos = matrices(factor), info.reshape(-1)
    call("potrf", a.dtype, len(batch), "U" if upper else "L", size, batch, size, infos)
    _clear_triangle(batch, lower=upper)
    invalid = np.isnan(batch.diagonal(axis1=-2, axis2=-1))
    if invalid.any():  # which not every LAPACK tells
        infos[...] = np.where(infos == 0, np.where(invalid.any(-1), invalid.argmax(-1) + 1, 0), infos)
    return factor, info


def _clear_triangle(batch: Array, lower: bool) -> None:
    """Write zeros below the diagonal, or above it, in panels of columns."""
    for start in range(0, batch.shape[-1], _PANEL):
        columns = slice(start, start + _PANEL)
        block = batch[:, columns, columns]
        np.copyto(block, 0, where=_outside(block.shape[-1], lower))
        batch[:, slice(start + _PANEL, None) if lower else slice(start), columns] = 0


@functools.cache
def _outside(size: int, lower: bool) -> Array:
    """Where elements of a square block are below, or above, the diagonal."""
    inside = np.tri(size, k=-1, dtype=bool)
    return inside if lower else inside.T


def _factorized(batch: Array) -> tuple[Array, Array]:
    """Factorize matrices with contiguous columns where they are: the rows exchanged, counted from 1, and info."""
    count, m, n = batch.shape
    pivots, infos = np.empty((count, min(m, n)), np.int32), np.zeros(count, np.int32)
    if count > 1 and mkl() is not None and m == n <= _SMALL:
        call("getrf_batch_strided", batch.dtype, 1, m, n, batch, m, m * n, pivots, n, count, infos)
    else:
        call("getrf", batch.dtype, count, m, n, batch, m, pivots, infos)
    return pivots, infos


def lu_factor(a: Array, pivot: bool) -> tuple[Array, Array, Array]:
    """The compact LU factorization, the rows exchanged, counted from 1, and info."""
    if not pivot:
        raise NotSupportedError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    factorized = small.lu_factor(a)
    if factorized is not None:
        return factorized
    batch, shape = a.shape[:-2], (*a.shape[:-2], min(a.shape[-2:]))
    lu = columns_of(a)
    if not lu.size:
        return lu, np.empty(shape, np.int32), np.zeros(batch, np.int32)
    exchanged, infos = _factorized(matrices(lu))
    return lu, exchanged.reshape(shape), infos.reshape(batch)


def lu_solve(lu: Array, pivots: Array, b: Array, adjoint: bool) -> Array:
    """The solution of A X = B, or of A^H X = B, where A is given as its LU factorization; batches are equal."""
    x = columns_of(b)
    if x.size:
        rows = np.ascontiguousarray(pivots.reshape(-1, pivots.shape[-1]), np.int32)
        _substitute(as_columns(lu), rows, matrices(x), "C" if adjoint else "N")
    return x


def _substitute(factors: Array, exchanged: Array, sides: Array, trans: str) -> None:
    """Solve factorized systems in the memory of the right sides, whose columns are contiguous."""
    (count, n, columns), infos = sides.shape, np.empty(len(sides), np.int32)
    call("getrs", sides.dtype, count, trans, n, columns, factors, n, exchanged, sides, n, infos)


def _either_way(a: Array) -> tuple[Array, str]:
    """A copy of matrices for LAPACK, and ``"T"`` if it has their transposes: where these take less time to copy."""
    if a.dtype.kind == "c" or a.strides[-1] > a.strides[-2]:
        return matrices(columns_of(a)), "N"
    return matrices(a.copy(order="C")).swapaxes(-2, -1), "T"


def solve(a: Array, b: Array) -> tuple[Array, Array]:
    """The solution of A X = B and info per matrix; batches are equal."""
    solved = small.solve(a, b) if b.size else None
    if solved is not None:
        return solved
    if _uses_loops(a, _TINY) or not b.size:
        x = _loops.solve(a, b)
        if not np.isnan(x).any():
            return x, np.zeros(a.shape[:-2], np.int32)
    factors, trans = _either_way(a)
    x = columns_of(b)
    exchanged, infos = _factorized(factors)
    _substitute(factors, exchanged, matrices(x), trans)
    if trans == "T" and infos.any():  # the row that fails in A is not always the one that fails in its transpose
        infos = lu_factor(a, True)[2]
    return x, infos.reshape(a.shape[:-2])


def inv(a: Array) -> tuple[Array, Array]:
    """The inverse and info per matrix."""
    inverted = small.inv(a)
    if inverted is not None:
        return inverted
    if _uses_loops(a, _TINY) or not a.size:
        inverse = _loops.inv(a)
        if not np.isnan(inverse).any():
            return inverse, np.zeros(a.shape[:-2], np.int32)
    inverse = columns_of(a)
    batch = matrices(inverse)
    exchanged, infos = _factorized(batch)
    n, work, unused = a.shape[-1], workspace("getri", a.dtype, a.shape[-1], (), a.shape[-1], ()), np.empty(1, np.int32)
    for run in _runs(infos):
        part = batch[run]
        call("getri", a.dtype, len(part), n, part, n, exchanged[run], (work,), work.size, (unused,))
    if infos.any():
        batch[infos != 0] = np.nan
    return inverse, infos.reshape(a.shape[:-2])


def _runs(infos: Array) -> list[slice]:
    """The ranges of matrices whose factorization has not failed."""
    failed = np.flatnonzero(infos).tolist()
    starts, ends = [0, *(number + 1 for number in failed)], [*failed, len(infos)]
    return [slice(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def det(a: Array) -> Array:
    """The determinant."""
    if not a.size or max(a.shape[-2:]) <= _SMALL:
        return _loops.det(a)
    diagonal, sign = _diagonal_and_sign(a)
    return diagonal.prod(-1) * sign


def slogdet(a: Array) -> tuple[Array, Array]:
    """The sign of the determinant and the logarithm of its absolute value."""
    if not a.size or max(a.shape[-2:]) <= _SMALL:
        sign, logarithm = _loops.slogdet(a)
        return sign, logarithm
    diagonal, sign = _diagonal_and_sign(a)
    size = np.abs(diagonal)
    phase = diagonal / np.where(size, size, 1)
    return phase.prod(-1) * sign, np.log(size).sum(-1)


def _diagonal_and_sign(a: Array) -> tuple[Array, Any]:
    """The diagonals of U of matrices, or of their transposes, and the signs of the permutations."""
    batch = matrices(a.copy(order="C")).swapaxes(-2, -1)
    exchanged, _ = _factorized(batch)
    odd = np.count_nonzero(exchanged != np.arange(1, a.shape[-1] + 1), axis=-1) % 2
    diagonal = batch.diagonal(axis1=-2, axis2=-1)
    return diagonal.reshape(*a.shape[:-2], -1), (1 - 2 * odd).astype(a.dtype).reshape(a.shape[:-2])


def solve_triangular(a: Array, b: Array, upper: bool, unitriangular: bool) -> Array:
    """The solution of A X = B for triangular A; batches are equal."""
    solved = small.solve_triangular(a, b, upper, unitriangular)
    if solved is not None:
        return solved
    x = columns_of(b)
    if not x.size:
        return x
    (n, columns), one = b.shape[-2:], np.ones(1, b.dtype)
    is_column_major = a.strides[-2] == a.itemsize
    factors = as_columns(a if is_column_major else a.swapaxes(-2, -1))  # the transpose of the transpose takes no copy
    uplo, trans = ("U" if upper == is_column_major else "L"), ("N" if is_column_major else "T")
    diag = "U" if unitriangular else "N"
    sides = matrices(x)
    if columns == 1:
        call("trsv", b.dtype, len(sides), uplo, trans, diag, n, factors, n, sides, 1)
        return x
    call("trsm", b.dtype, len(sides), "L", uplo, trans, diag, n, columns, (one,), factors, n, sides, n)
    return x


def cholesky_solve(factor: Array, b: Array, upper: bool) -> Array:
    """The solution of A X = B where A is given as its Cholesky factor; batches are equal."""
    x = columns_of(b)
    if x.size:
        (n, columns), sides, infos = b.shape[-2:], matrices(x), np.empty(1, np.int32)
        uplo = "U" if upper else "L"
        call("potrs", b.dtype, len(sides), uplo, n, columns, as_columns(factor), n, sides, n, (infos,))
    return x


def ldl_factor(a: Array, hermitian: bool) -> tuple[Array, Array, Array]:
    """The compact LDL factorization of the lower triangles, pivots counted from 1, and info."""
    factorized = small.ldl_factor(a)
    if factorized is not None:
        return factorized
    name = "hetrf" if hermitian and a.dtype.kind == "c" else "sytrf"
    factor, pivots = columns_of(a), np.empty(a.shape[:-1], np.int32)
    info = np.zeros(a.shape[:-2], np.int32)
    if a.size:
        batch, size = matrices(factor), a.shape[-1]
        _clear_triangle(batch, lower=False)
        work = workspace(name, a.dtype, "L", size, (), size, ())
        exchanged, infos = pivots.reshape(-1, size), info.reshape(-1)
        call(name, a.dtype, len(batch), "L", size, batch, size, exchanged, (work,), work.size, infos)
    return factor, pivots, info


def ldl_solve(factor: Array, pivots: Array, b: Array, hermitian: bool) -> Array:
    """The solution of A X = B where A is given as its LDL factorization; batches are equal."""
    name = "hetrs" if hermitian and b.dtype.kind == "c" else "sytrs"
    x = columns_of(b)
    if x.size:
        (n, columns), sides, infos = b.shape[-2:], matrices(x), np.empty(1, np.int32)
        rows = np.ascontiguousarray(pivots.reshape(-1, n), np.int32)
        call(name, b.dtype, len(sides), "L", n, columns, as_columns(factor), n, rows, sides, n, (infos,))
    return x
