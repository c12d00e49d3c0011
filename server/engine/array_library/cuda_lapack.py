"""Factorizations of batches of matrices on a GPU: cuSOLVER and cuBLAS through CuPy's bindings, on the current stream.

Has the functions of ``host_lapack``. cuSOLVER reads Fortran's order: what is given to it are transposes in C's order.
The LDL factorization, for which cuSOLVER has no solver of Hermitian systems, is LAPACK's on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from server.engine.device.cupy_module import cp

from . import host_lapack
from .host_matrices import matrices

Array = Any
_PREFIXES = {"f": "s", "d": "d", "F": "c", "D": "z"}
_SMALL = 32
"""The largest matrices that the batched Jacobi methods of cuSOLVER take."""
_MOST_IN_BATCHES = 512
"""Up to this size cuBLAS's batched LU factorization is faster than one matrix after the other."""
_FASTER_ON_HOST = 128
"""Up to this size LAPACK finds the eigenvalues of a general matrix before cuSOLVER does."""
_UPPER, _LOWER = 1, 0
_PLAIN, _ADJOINT = 0, 2


def _solver(name: str, dtype: Any) -> Callable[..., Any]:
    from cupy_backends.cuda.libs import cusolver

    found: Callable[..., Any] = getattr(cusolver, _PREFIXES[dtype.char] + name)
    return found


def _blas(name: str, dtype: Any) -> Callable[..., Any]:
    from cupy_backends.cuda.libs import cublas

    found: Callable[..., Any] = getattr(cublas, _PREFIXES[dtype.char] + name)
    return found


def _solver_handle() -> int:
    return int(cp.cuda.device.get_cusolver_handle())


def _addresses(array: Array) -> Array:
    """The addresses of the matrices of a row-major batch, on the device."""
    step = array.strides[0]
    return cp.arange(array.data.ptr, array.data.ptr + step * len(array), step, dtype=np.uintp)


def _columns(array: Array) -> Array:
    """A copy of a batch in Fortran's order, seen as the transposes in C's order."""
    return matrices(array.swapaxes(-2, -1)).copy(order="C")


def _rows(transposes: Array, batch: tuple[int, ...]) -> Array:
    """The batch of matrices whose transposes are given."""
    return transposes.reshape(*batch, *transposes.shape[-2:]).swapaxes(-2, -1)


def cholesky(a: Array, upper: bool) -> tuple[Array, Array]:
    """The factor of Hermitian positive-definite matrices, and info."""
    factor = matrices(a).copy(order="C")
    count, n = factor.shape[:2]
    info = cp.zeros(count, np.int32)
    if factor.size:
        triangle = _LOWER if upper else _UPPER
        if count > 1:
            _solver("potrfBatched", a.dtype)(
                _solver_handle(), triangle, n, _addresses(factor).data.ptr, n, info.data.ptr, count
            )
        else:
            handle = _solver_handle()
            size = _solver("potrf_bufferSize", a.dtype)(handle, triangle, n, factor.data.ptr, n)
            work = cp.empty(size, a.dtype)
            _solver("potrf", a.dtype)(handle, triangle, n, factor.data.ptr, n, work.data.ptr, size, info.data.ptr)
    factor = cp.triu(factor) if upper else cp.tril(factor)
    return factor.reshape(a.shape), info.reshape(a.shape[:-2])


def lu_factor(a: Array, pivot: bool) -> tuple[Array, Array, Array]:
    """The compact LU factorization, the rows exchanged, counted from 1, and info."""
    (m, n), batch = a.shape[-2:], a.shape[:-2]
    factor = _columns(a)
    count, k = len(factor), min(m, n)
    pivots = cp.empty((count, k), np.int32)
    pivots[...] = cp.arange(1, k + 1, dtype=np.int32)
    info = cp.zeros(count, np.int32)
    if factor.size and m == n and count > 1 and n <= _MOST_IN_BATCHES:
        _blas("getrfBatched", a.dtype)(
            cp.cuda.device.get_cublas_handle(), n, _addresses(factor).data.ptr, n, pivots.data.ptr if pivot else 0,
            info.data.ptr, count,
        )  # fmt: skip
    elif factor.size:
        handle, getrf = _solver_handle(), _solver("getrf", a.dtype)
        work = cp.empty(_solver("getrf_bufferSize", a.dtype)(handle, m, n, factor.data.ptr, m), a.dtype)
        for number in range(count):
            getrf(
                handle, m, n, factor[number].data.ptr, m, work.data.ptr, pivots[number].data.ptr if pivot else 0,
                info[number].data.ptr,
            )  # fmt: skip
    return _rows(factor, batch), pivots.reshape(*batch, k), info.reshape(batch)


def lu_solve(lu: Array, pivots: Array, b: Array, adjoint: bool) -> Array:
    """The solution of A X = B, or of A^H X = B, where A is given as its LU factorization; batches are equal."""
    factor, x = _columns(lu), _columns(b)
    count, columns, n = x.shape
    rows = cp.ascontiguousarray(pivots.reshape(count, n))
    transposition = _ADJOINT if adjoint else _PLAIN
    if x.size and count > 1 and n <= _MOST_IN_BATCHES:
        failed = np.zeros(1, np.int32)
        factors, sides = _addresses(factor), _addresses(x)  # both must live until the call
        _blas("getrsBatched", b.dtype)(
            cp.cuda.device.get_cublas_handle(), transposition, n, columns, factors.data.ptr, n,
            rows.data.ptr, sides.data.ptr, n, failed.ctypes.data, count,
        )  # fmt: skip
    elif x.size:
        handle, getrs, info = _solver_handle(), _solver("getrs", b.dtype), cp.empty(1, np.int32)
        for number in range(count):
            getrs(
                handle, transposition, n, columns, factor[number].data.ptr, n, rows[number].data.ptr,
                x[number].data.ptr, n, info.data.ptr,
            )  # fmt: skip
    return _rows(x, b.shape[:-2])


def solve(a: Array, b: Array) -> tuple[Array, Array]:
    """The solution of A X = B and info per matrix; batches are equal."""
    lu, pivots, info = lu_factor(a, True)
    return lu_solve(lu, pivots, b, False), info


def inv(a: Array) -> tuple[Array, Array]:
    """The inverse and info per matrix."""
    identity = cp.broadcast_to(cp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return solve(a, identity)


def _diagonal_and_sign(a: Array) -> tuple[Array, Array]:
    """The diagonal of U, and the sign of the permutation."""
    lu, pivots, _ = lu_factor(a, True)
    exchanged = (pivots != cp.arange(1, pivots.shape[-1] + 1, dtype=np.int32)).sum(-1)
    return cp.diagonal(lu, 0, -2, -1), (1 - 2 * (exchanged % 2)).astype(a.dtype)


def det(a: Array) -> Array:
    """The determinant."""
    diagonal, sign = _diagonal_and_sign(a)
    return cp.prod(diagonal, -1) * sign


def slogdet(a: Array) -> tuple[Array, Array]:
    """The sign of the determinant and the logarithm of its absolute value."""
    diagonal, sign = _diagonal_and_sign(a)
    size = cp.abs(diagonal)
    phases = cp.where(size == 0, cp.zeros_like(diagonal), diagonal / cp.where(size == 0, cp.ones_like(size), size))
    return cp.prod(phases, -1) * sign, cp.log(size).sum(-1)


def solve_triangular(a: Array, b: Array, upper: bool, unitriangular: bool) -> Array:
    """The solution of A X = B for triangular A; batches are equal."""
    if not b.size:
        return cp.empty(b.shape, b.dtype)
    from cupyx.scipy.linalg import solve_triangular as solve_by_trsm

    first, second = (matrices(array) if array.ndim > 2 else array for array in (a, b))
    solved = solve_by_trsm(first, second, lower=not upper, unit_diagonal=unitriangular, check_finite=False)
    return solved.reshape(b.shape)


def cholesky_solve(factor: Array, b: Array, upper: bool) -> Array:
    """The solution of A X = B where A is given as its Cholesky factor; batches are equal."""
    adjoint = factor.swapaxes(-2, -1).conj()
    lower, above = (adjoint, factor) if upper else (factor, adjoint)
    return solve_triangular(above, solve_triangular(lower, b, False, False), True, False)


def geqrf(a: Array) -> tuple[Array, Array]:
    """LAPACK's QR factorization: R and reflectors, and the reflectors' scales."""
    transposes, tau = cp.linalg.qr(a, mode="raw")
    return transposes.swapaxes(-2, -1), tau


def ormqr(a: Array, tau: Array, other: Array, left: bool, transpose: bool) -> Array:
    """Matrices multiplied by the product of reflectors, or by its adjoint, from the left or from the right."""
    (rows, _), k = a.shape[-2:], tau.shape[-1]
    padded = cp.zeros((*a.shape[:-1], rows), a.dtype)
    padded[..., :k] = a[..., :k]
    product = householder_product(padded, tau)
    product = product.swapaxes(-2, -1).conj() if transpose else product
    return product @ other if left else other @ product


def householder_product(a: Array, tau: Array) -> Array:
    """The first columns of the product of reflectors."""
    if not tau.shape[-1]:
        return cp.broadcast_to(cp.eye(*a.shape[-2:], dtype=a.dtype), a.shape).copy()
    product = _columns(a)
    count, n, m = product.shape
    scales = cp.ascontiguousarray(tau.reshape(count, tau.shape[-1]))
    if product.size:
        kind = "un" if a.dtype.kind == "c" else "or"
        handle, k, info = _solver_handle(), scales.shape[-1], cp.empty(1, np.int32)
        sizes, orgqr = _solver(f"{kind}gqr_bufferSize", a.dtype), _solver(f"{kind}gqr", a.dtype)
        size = sizes(handle, m, n, k, product.data.ptr, m, scales.data.ptr)
        work = cp.empty(size, a.dtype)
        for number in range(count):
            orgqr(
                handle, m, n, k, product[number].data.ptr, m, scales[number].data.ptr, work.data.ptr, size,
                info.data.ptr,
            )  # fmt: skip
    return _rows(product, a.shape[:-2])


def qr(a: Array, columns: int | None) -> tuple[Array, Array]:
    """Q with so many columns, and R; None means that only R is wanted."""
    m, n = a.shape[-2:]
    if columns is None:
        r = cp.linalg.qr(a, mode="r")
        return r, r
    q, r = cp.linalg.qr(a, mode="complete" if columns == m and m > n else "reduced")
    return q, r


def eigh(a: Array, upper: bool, vectors: bool) -> tuple[Array, Array, Array]:
    """Eigenvalues, eigenvectors (or the eigenvalues again) and info."""
    triangle = "U" if upper else "L"

    def compute(matrix: Array) -> Any:
        return cp.linalg.eigh(matrix, triangle) if vectors else (cp.linalg.eigvalsh(matrix, triangle),) * 2

    if a.ndim == 2 or a.shape[-1] <= _SMALL or not a.size:
        values, columns = compute(a)
    else:
        pairs = [compute(matrix) for matrix in matrices(a)]
        values = cp.stack([pair[0] for pair in pairs]).reshape(a.shape[:-1])
        columns = cp.stack([pair[1] for pair in pairs]).reshape(a.shape) if vectors else values
    return values, columns, _failed(values)


def _failed(values: Array) -> Array:
    """An info of 1 where there is NaN."""
    return cp.isnan(values).any(-1).astype(np.int32)


def eig(a: Array, vectors: bool) -> tuple[Array, Array, Array]:
    """Complex eigenvalues, eigenvectors (or the eigenvalues again) and info."""
    dtype = np.result_type(a.dtype, np.complex64)
    if not a.size:
        values, columns = cp.empty(a.shape[:-1], dtype), cp.empty(a.shape, dtype)
    elif a.shape[-1] <= _FASTER_ON_HOST:
        values, columns, info = _on_host("eig", a, vectors)
        return values, columns, info
    elif vectors:
        values, columns = cp.linalg.eig(a)
    else:
        values = columns = cp.linalg.eigvals(a)
    return values.astype(dtype, copy=False), columns.astype(dtype, copy=False), _failed(values)


def svd(a: Array, full: bool, vectors: bool) -> tuple[Array, Array, Array, Array]:
    """U, singular values, V^H and info; Jacobi's method, as PyTorch's, which is faster than QR's on a GPU."""
    (m, n), batch, k = a.shape[-2:], a.shape[:-2], min(a.shape[-2:])
    left, right = (m, n) if full else (k, k)
    if not a.size or (m <= _SMALL and n <= _SMALL):
        if vectors:
            u, s, vh = cp.linalg.svd(a, full_matrices=full)
        else:
            u = vh = s = cp.linalg.svd(a, compute_uv=False)
        return u, s, vh, _failed(s)
    from cupyx.cusolver import gesvdj

    s = cp.empty((math.prod(batch), k), a.real.dtype)
    u, vh = cp.empty((len(s), m, left), a.dtype), cp.empty((len(s), right, n), a.dtype)
    for number, matrix in enumerate(matrices(a)):
        if vectors:
            u[number], s[number], v = gesvdj(matrix, full_matrices=full)
            vh[number] = v.conj().T
        else:
            s[number] = gesvdj(matrix, full_matrices=False, compute_uv=False)
    s = s.reshape(*batch, k)
    return u.reshape(*batch, m, left), s, vh.reshape(*batch, right, n), _failed(s)


def _on_host(name: str, *arguments: Any) -> Any:
    """A function of ``host_lapack`` on copies of the operands."""
    # Where CuPy itself makes an array contiguous while it copies, it forgets which stream is current.
    copies = [cp.asnumpy(cp.ascontiguousarray(one)) if isinstance(one, cp.ndarray) else one for one in arguments]
    results = getattr(host_lapack, name)(*copies)
    return tuple(map(cp.asarray, results)) if isinstance(results, tuple) else cp.asarray(results)


def ldl_factor(a: Array, hermitian: bool) -> tuple[Array, Array, Array]:
    """The compact LDL factorization of the lower triangles, pivots counted from 1, and info."""
    factor, pivots, info = _on_host("ldl_factor", a, hermitian)
    return factor, pivots, info


def ldl_solve(factor: Array, pivots: Array, b: Array, hermitian: bool) -> Array:
    """The solution of A X = B where A is given as its LDL factorization; batches are equal."""
    return _on_host("ldl_solve", factor, pivots, b, hermitian)


def lstsq(a: Array, b: Array, rcond: float, driver: str) -> tuple[Array, Array, Array, None]:
    """The solution of least-squares problems of full rank by QR; there is no rank, no singular values, and no info."""
    m, n = a.shape[-2:]
    nothing = cp.zeros(a.shape[:-2], np.int64), cp.zeros((0,), a.real.dtype), None
    if not a.size or not b.size:
        return cp.zeros((*a.shape[:-2], n, b.shape[-1]), a.dtype), *nothing
    if m >= n:
        q, r = qr(a, n)
        return solve_triangular(r, q.swapaxes(-2, -1).conj() @ b, True, False), *nothing
    q, r = qr(a.swapaxes(-2, -1).conj(), m)
    return q @ solve_triangular(r.swapaxes(-2, -1).conj(), b, False, False), *nothing
