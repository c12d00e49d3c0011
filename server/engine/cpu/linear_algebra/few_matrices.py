"""Factorizations of a few matrices of moderate size, written into the results' memory: there calls cost the most.

What NumPy has loops for goes through these, the rest through LAPACK by the addresses of operands and results. The
generic kernels compute where something fails, and where MKL is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_int, create_string_buffer
from functools import cache
from typing import Any

import numpy as np
from numpy.linalg import _umath_linalg

from server.engine import keys
from server.engine.array_library import host_small_matrices as small
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_libraries import by_addresses, mkl, workspace_size
from server.engine.array_library.host_orthogonal import has_panels
from server.engine.operators import Request
from server.engine.ops import factorizations as generic_factorizations
from server.engine.ops import solvers as generic_solvers
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import factorizations, solvers

from .matrices import launch_of

Array = Any
_loops: Any = _umath_linalg
_MOST_ELEMENTS, _MOST_MATRICES = 1 << 14, 8
"""Elements of matrices up to which NumPy's loops are used, and how many are factorized by their addresses."""


def _is_few(meta: Meta) -> bool:
    """Whether a batch is small enough, and none for compiled loops."""
    few = 0 < meta.numel <= _MOST_ELEMENTS and mkl() is None
    return few and not small.takes(meta.shape, NUMPY_DTYPES[meta.dtype].char)


def _is_number(array: Array) -> bool:
    """Whether there is no NaN, which a loop writes where it has failed."""
    if not array.ndim:
        return bool(array == array)
    return not np.isnan(array).any()


_MOST_SCRATCH = 1 << 22
"""Matrices of more bytes are factorized in memory of their own: what is kept here stays with the process."""


@cache
def _scratch(nbytes: int) -> Array:
    """Memory of a power of two of bytes for what a factorization leaves behind; the next one uses it again."""
    return create_string_buffer(nbytes)


def _scratch_for(nbytes: int) -> Array:
    return _scratch(1 << max(nbytes - 1, 1).bit_length())


@prepares(factorizations.cholesky_ex, keys.CPU)
def cholesky_ex(request: Request) -> Launch | None:
    A, upper, _ = request.args
    if not _is_few(A):
        return None
    loop = _loops.cholesky_up if upper else _loops.cholesky_lo

    def write(a: Array, factor: Array, info: Array) -> bool:
        info.fill(0)
        loop(a, out=factor)
        return _is_number(factor[..., -1, -1])  # whatever is NaN makes this so

    return launch_of(generic_factorizations.cholesky_ex, ("upper", "check_errors"), request, write)


@prepares(solvers.inv_ex, keys.CPU)
def inv_ex(request: Request) -> Launch | None:
    if not _is_few(request.args[0]):
        return None

    def write(a: Array, inverse: Array, info: Array) -> bool:
        info.fill(0)
        _loops.inv(a, out=inverse)
        return _is_number(inverse)

    return launch_of(generic_solvers.inv_ex, ("check_errors",), request, write)


@prepares(solvers.plain_solve, keys.CPU)
def plain_solve(request: Request) -> Launch | None:
    A, B, left, _ = request.args
    if not (B.numel and _is_few(A)) or A.shape[:-2] != B.shape[:-2]:
        return None

    def write(a: Array, b: Array, x: Array, info: Array) -> bool:
        info.fill(0)
        if left:
            _loops.solve(a, b, out=x)
        else:
            _loops.solve(a.swapaxes(-2, -1), b.swapaxes(-2, -1), out=x.swapaxes(-2, -1))
        return _is_number(x)

    return launch_of(generic_solvers.plain_solve, (), request, write)


@prepares(solvers.det, keys.CPU)
def det(request: Request) -> Launch | None:
    def write(a: Array, determinant: Array) -> bool:
        _loops.det(a, out=determinant)
        return True

    return launch_of(generic_solvers.det, (), request, write) if _is_few(request.args[0]) else None


@prepares(solvers.slogdet, keys.CPU)
def slogdet(request: Request) -> Launch | None:
    def write(a: Array, sign: Array, logarithm: Array) -> bool:
        _loops.slogdet(a, out=(sign, logarithm))
        return True

    return launch_of(generic_solvers.slogdet, (), request, write) if _is_few(request.args[0]) else None


def _address(value: Value, meta: Meta) -> int:
    return int(value.storage.block.pointer + meta.offset * meta.dtype.itemsize)


def _has_columns(meta: Meta) -> bool:
    """Whether matrices lie one behind the other, with contiguous columns."""
    rows, columns = meta.shape[-2:]
    return meta.strides == (*[rows * columns] * (meta.ndim - 2), 1, rows)


def _count(meta: Meta) -> int:
    return meta.shape[0] if meta.ndim == 3 else 1


def _by_address(
    generic: Callable[..., Any], names: tuple[str, ...], request: Request, columns: Sequence[Meta],
    write: Callable[[tuple[Value, ...], tuple[Value, ...]], bool],
) -> Launch | None:  # fmt: skip
    """A launch that calls ``write`` with values, and computes generically where that returns False.

    ``columns`` are the results that have to have contiguous columns. None where there is nothing for it.
    """
    A = request.args[0]
    others = [meta for meta in request.outs if meta not in columns]
    fits = all(map(_has_columns, columns)) and all([meta.is_contiguous for meta in others])
    if not (_is_few(A) and A.ndim < 4 and _count(A) <= _MOST_MATRICES and fits):
        return None
    fallback = launch_of(generic, names, request, lambda *arrays: False)

    def launch(args: Any, outs: Any) -> None:
        if not write(args, outs):
            fallback(args, outs)

    return launch


def _steps(meta: Meta) -> int:
    """The bytes from a matrix to the next."""
    return meta.strides[0] * meta.dtype.itemsize if meta.ndim == 3 else 0


@prepares(factorizations.lu_factor_ex, keys.CPU)
def lu_factor_ex(request: Request) -> Launch | None:
    (A, pivot, check_errors), (LU, pivots, info) = request.args, request.outs
    if not (pivot and A.numel):
        return None
    (m, n), count = A.shape[-2:], _count(A)
    factorize = by_addresses("getrf", NUMPY_DTYPES[A.dtype], m, n, None, m, None, None)
    step, pivots_step = _steps(LU), 4 * min(m, n)

    def write(args: Any, outs: Any) -> bool:
        np.copyto(outs[0].array, args[0].array)
        at, exchanged, failed = _address(outs[0], LU), _address(outs[1], pivots), _address(outs[2], info)
        for number in range(count):
            factorize(at + number * step, exchanged + number * pivots_step, failed + 4 * number)
        return not (check_errors and any([c_int.from_address(failed + 4 * number).value for number in range(count)]))

    names = ("pivot", "check_errors")
    return _by_address(generic_factorizations.lu_factor_ex, names, request, (LU,), write)


@prepares(factorizations.plain_lu, keys.CPU)
def plain_lu(request: Request) -> Launch | None:
    (A, pivot), (_, L, _) = request.args, request.outs
    if not (pivot and A.numel) or A.nbytes > _MOST_SCRATCH:
        return None
    (m, n), count, dtype = A.shape[-2:], _count(A), NUMPY_DTYPES[A.dtype]
    factorize = by_addresses("getrf", dtype, m, n, None, m, None, None)
    k, wide = L.shape[-1], (count, n, m)
    scratch = _scratch_for(count * m * n * dtype.itemsize + 4 * k + 8)
    factors = np.frombuffer(scratch, dtype, count * m * n).reshape(wide).swapaxes(1, 2)
    at, step = addressof(scratch), m * n * dtype.itemsize
    exchanged = at + count * step
    exchanges = (c_int * k).from_address(exchanged)
    ones, below, beneath = np.eye(m, k, dtype=dtype), _below(m, k), _below(k, n)

    def write(args: Any, outs: Any) -> bool:
        P, L, U = [out.array for out in outs]
        np.copyto(factors, args[0].array)
        P.fill(0)
        np.copyto(L, ones)
        for number, rows in enumerate(P.reshape(count, m, m)):
            factorize(at + number * step, exchanged, exchanged + 4 * k)
            order = list(range(m))
            for row, other in enumerate(exchanges):
                order[row], order[other - 1] = order[other - 1], order[row]
            for column, row in enumerate(order):
                rows[row, column] = 1
        np.copyto(L, factors[:, :, :k].reshape(L.shape), where=below)
        np.copyto(U, factors[:, :k].reshape(U.shape))
        np.copyto(U, 0, where=beneath)
        return True

    return _by_address(generic_factorizations.plain_lu, (), request, (), write)


def _leading(A: Meta) -> tuple[str, int] | None:
    """How BLAS is told of matrices that are read: by columns or by rows, and how far these are apart; else None."""
    rows, columns = A.strides[-2:]
    if rows == 1 and columns >= A.shape[-2]:
        return "N", columns
    return ("T", rows) if columns == 1 and rows >= A.shape[-1] else None


@prepares(solvers.solve_triangular, keys.CPU)
def solve_triangular(request: Request) -> Launch | None:
    (A, B, upper, left, unitriangular), (X,) = request.args, request.outs
    leading = _leading(A)
    if leading is None or not B.numel or A.shape[:-2] != B.shape[:-2]:
        return None
    (trans, distance), (m, n), count = leading, B.shape[-2:], _count(A)
    side, triangle = "L" if left else "R", "U" if upper == (trans == "N") else "L"
    dtype = NUMPY_DTYPES[A.dtype]
    solve = by_addresses(
        "trsm", dtype, side, triangle, trans, "U" if unitriangular else "N", m, n, None, None, distance, None, m
    )
    one = create_string_buffer(np.ones(1, dtype).tobytes(), dtype.itemsize)
    factor_step, step = _steps(A), _steps(X)

    def write(args: Any, outs: Any) -> bool:
        np.copyto(outs[0].array, args[1].array)
        factor, at = _address(args[0], A), _address(outs[0], X)
        for number in range(count):
            solve(addressof(one), factor + number * factor_step, at + number * step)
        return True

    names = ("upper", "left", "unitriangular")
    return _by_address(generic_solvers.solve_triangular, names, request, (X,), write)


@cache
def _below(rows: int, columns: int) -> Array:
    """Where elements are below the diagonal."""
    return np.tri(rows, columns, -1, dtype=bool)


@prepares(factorizations.qr, keys.CPU)
def qr(request: Request) -> Launch | None:
    (A, mode), (Q, R) = request.args, request.outs
    (m, n), count = A.shape[-2:], _count(A)
    in_r = R.shape[-2] == m
    if not A.numel or (mode == "r" and not in_r) or has_panels(A.shape, NUMPY_DTYPES[A.dtype].char):
        return None
    dtype, k, columns = NUMPY_DTYPES[A.dtype], min(m, n), Q.shape[-1]
    name = "ungqr" if dtype.kind == "c" else "orgqr"
    size = workspace_size("geqrf", dtype, m, n, (), m, ())
    size = max(size, 1 if mode == "r" else workspace_size(name, dtype, m, columns, k, (), m, ()))
    factorize = by_addresses("geqrf", dtype, m, n, None, m, None, None, size, None)
    form = by_addresses(name, dtype, m, columns, k, None, m, None, None, size, None)
    scratch_bytes, work_at = (k + size) * dtype.itemsize + 8, k * dtype.itemsize
    source, step, step_q = (R, _steps(R), _steps(Q)) if in_r else (Q, _steps(Q), _steps(Q))
    below = _below(R.shape[-2], n)
    scratch_at = addressof(_scratch_for(scratch_bytes))

    def write(args: Any, outs: Any) -> bool:
        scales = scratch_at
        work, info = scales + work_at, scales + scratch_bytes - 8
        q, r = outs[0].array, outs[1].array
        np.copyto(r if in_r else q, args[0].array)
        given = _address(outs[1 if in_r else 0], source)
        for number in range(count):
            factorize(given + number * step, scales, work, info)
            if mode != "r":
                matrix_q, matrix_r = (q[number], r[number]) if q.ndim == 3 else (q, r)
                reflectors, others = (matrix_r, matrix_q) if in_r else (matrix_q, matrix_r)
                np.copyto(others[:, :k], reflectors[: others.shape[0], :k])
                form(_address(outs[0], Q) + number * step_q, scales, work, info)
        np.copyto(r, 0, where=below)
        return True

    shaped = (R,) if mode == "r" else (Q, R)
    return _by_address(generic_factorizations.qr, (), request, shaped, write)
