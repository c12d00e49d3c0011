"""Eigenvalues and singular values of batches of matrices on the host.

NumPy's loops compute eigenvalues by LAPACK where there is no MKL, and singular values of small matrices: they cost less
than calls from Python.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy._core import _multiarray_umath  # type: ignore[attr-defined]
from numpy.linalg import _umath_linalg

from . import host_small_matrices as small
from .host_libraries import call, mkl
from .host_matrices import Array, column_major, columns_of, matrices
from .host_orthogonal import qr

_loops: Any = _umath_linalg
_SMALL, _TINY = 64, 12
"""Up to these sizes matrices go through NumPy's loops, where there is no MKL and where there is."""
_FEW = 32
"""Rows of symmetric matrices up to which compiled loops take less time than LAPACK with vectors of 512 bits, too."""
_MOST_ELEMENTS = 1 << 14
"""Elements of matrices up to which singular values are those of NumPy's loops, however long these are."""
_MUCH = 2
"""How many times as long as wide a matrix is at least whose singular values are those of a triangle."""
_NOT_FINITE = -4
"""The info of matrices with NaN or infinities, which are not given to LAPACK."""


def _uses_loops(a: Array, largest: float) -> bool:
    """Whether NumPy's loops are used, which without MKL are up to a size the faster ones."""
    if mkl() is None and largest == np.inf:
        return True
    if mkl() is None:
        return bool(max(a.shape[-2:]) <= largest)
    return bool(max(a.shape[-2:]) <= _TINY)


def has_singular_loop(shape: tuple[int, ...]) -> bool:
    """Whether matrices are small enough for NumPy's loops of singular values, where there is no MKL."""
    m, n = shape[-2:]
    return max(m, n) <= _SMALL or m * n <= _MOST_ELEMENTS


def _uses_singular_loop(a: Array) -> bool:
    return has_singular_loop(a.shape) if mkl() is None else _uses_loops(a, _SMALL)


@cache
def _has_long_vectors() -> bool:
    """Whether the processor has vectors of 512 bits, with which OpenBLAS's products of large matrices gain most."""
    features: dict[str, bool] = getattr(_multiarray_umath, "__cpu_features__", {})
    return any([has for name, has in features.items() if name.startswith(("AVX512", "X86_V4"))])


def eigh(a: Array, upper: bool, vectors: bool) -> tuple[Array, Array, Array]:
    """Eigenvalues, eigenvectors (or the eigenvalues again) and info, by ?syevd and ?heevd."""
    if _uses_loops(a, np.inf) or not a.size or not np.isfinite(a).all():
        return _eigh_by_loops(a, upper, vectors)
    columns, count, size = columns_of(a), a[..., 0, 0].size, a.shape[-1]
    values, info = np.empty(a.shape[:-1], a.real.dtype), np.zeros(a.shape[:-2], np.int32)
    head = "V" if vectors else "N", "U" if upper else "L", size
    flat = values.reshape(count, size)
    name, tail = _eigh_workspaces(a.dtype, *head)
    call(name, a.dtype, count, *head, matrices(columns), size, flat, *tail, info.reshape(-1))
    return values, (columns if vectors else values), info


def _eigh_workspaces(dtype: Any, *head: Any) -> tuple[str, list[Any]]:
    """The routine, and its workspaces, each with its size: of numbers, for complex ones of real ones, of integers."""
    name, sizes = eigh_sizes(dtype, *head)
    kinds = [dtype, *([dtype.type(0).real.dtype] if dtype.kind == "c" else []), np.dtype(np.int32)]
    works = [np.empty(size, kind) for (size, _), kind in zip(sizes, kinds, strict=True)]
    return name, [part for work in works for part in ((work,), work.size)]


@lru_cache(maxsize=1024)
def eigh_sizes(dtype: Any, *head: Any) -> tuple[str, list[tuple[int, int]]]:
    """The routine, and for each of its workspaces how many numbers it has, and their bytes."""
    name, size = ("heevd" if dtype.kind == "c" else "syevd"), head[-1]
    kinds = [dtype, dtype.type(0).real.dtype, np.dtype(np.int32)] if dtype.kind == "c" else [dtype, np.dtype(np.int32)]
    answers = [np.zeros(1, kind) for kind in kinds]
    asked = [part for answer in answers for part in ((answer,), -1)]
    unused = np.zeros(1, dtype)
    call(name, dtype, 1, *head, (unused,), size, (unused,), *asked, (np.zeros(1, np.int32),))
    return name, [(max(1, int(answer[0].real)), answer.dtype.itemsize) for answer in answers]


def _eigh_by_loops(a: Array, upper: bool, vectors: bool) -> tuple[Array, Array, Array]:
    if vectors:
        made = np.empty(a.shape[:-1], a.real.dtype), column_major(a.shape, a.dtype)
        values, columns = (_loops.eigh_up if upper else _loops.eigh_lo)(a, out=made)
    else:
        values = columns = (_loops.eigvalsh_up if upper else _loops.eigvalsh_lo)(a)
    return values, columns, _failed(values)


def has_symmetric_loops(shape: tuple[int, ...], char: str, vectors: bool) -> bool:
    """Whether compiled loops are to compute eigenvalues of symmetric matrices, where they are there."""
    is_preferred = mkl() is None and (shape[-1] <= _FEW or not _has_long_vectors())
    return is_preferred and small.takes_symmetric(shape, char, vectors)


def eigh_into(a: Array, upper: bool, values: Array, vectors: Array) -> bool:
    """Write eigenvalues and eigenvectors; False, and nothing of use, where LAPACK fails, or MKL is the faster one."""
    if not a.size or not _uses_loops(a, np.inf):
        return False
    if has_symmetric_loops(a.shape, a.dtype.char, True) and small.eigh_into(a, upper, values, vectors):
        return True
    (_loops.eigh_up if upper else _loops.eigh_lo)(a, out=(values, vectors))
    return not np.isnan(values).any()


def eigvalsh_into(a: Array, upper: bool, values: Array) -> bool:
    """Write eigenvalues alone, as ``eigh_into`` does."""
    if not a.size or not _uses_loops(a, np.inf):
        return False
    if has_symmetric_loops(a.shape, a.dtype.char, False) and small.eigh_into(a, upper, values, None):
        return True
    (_loops.eigvalsh_up if upper else _loops.eigvalsh_lo)(a, out=values)
    return not np.isnan(values).any()


def svdvals_into(a: Array, values: Array) -> bool:
    """Write the singular values; False, and nothing of use, where LAPACK fails, or NumPy's loop is slower."""
    if not a.size or not _uses_singular_loop(a):
        return False
    if small.svdvals_into(a, values):
        return True
    _svd_loop("", a)(a, out=values)
    return not np.isnan(values).any()


def svd_into(full: bool, a: Array, u: Array, s: Array, vh: Array) -> bool:
    """Write singular values and vectors; False, and nothing of use, as above."""
    if not _uses_singular_loop(a):
        return False
    _svd_loop("_f" if full else "_s", a)(a, out=(u, s, vh))
    return not np.isnan(s).any()


def _failed(values: Array) -> Array:
    """An info of 1 where NumPy's loops gave NaN, with which they tell that LAPACK did not converge."""
    return np.isnan(values).any(-1).astype(np.int32) if values.shape[-1] else np.zeros(values.shape[:-1], np.int32)


def eig(a: Array, vectors: bool) -> tuple[Array, Array, Array]:
    """Complex eigenvalues, eigenvectors (or the eigenvalues again) and info, by ?geev."""
    dtype = np.result_type(a.dtype, np.complex64)
    if a.size:
        made = np.empty(a.shape[:-1], dtype), np.empty(a.shape, dtype) if vectors else None
        if small.eig_into(a, *made):
            return made[0], made[0] if made[1] is None else made[1], np.zeros(a.shape[:-2], np.int32)
    if not _uses_loops(a, np.inf) and a.size and np.isfinite(a).all():
        return _geev(a, dtype, vectors)
    if vectors:
        values, columns = _loops.eig(a)
    else:
        values = columns = _loops.eigvals(a)
    return values.astype(dtype, copy=False), columns.astype(dtype, copy=False), _failed(values)


def _geev(a: Array, dtype: Any, vectors: bool) -> tuple[Array, Array, Array]:
    copy, count, n, is_complex = matrices(columns_of(a)), a[..., 0, 0].size, a.shape[-1], a.dtype.kind == "c"
    right = matrices(column_major(a.shape, a.dtype)) if vectors else np.empty((1, 1, 1), a.dtype)
    numbers = [np.empty((count, n), a.dtype) for _ in range(1 if is_complex else 2)]
    info, unused, job = np.zeros(a.shape[:-2], np.int32), (np.empty(1, a.dtype),), "V" if vectors else "N"
    parts = [()] * len(numbers)
    rest = [(np.empty(2 * n, a.real.dtype),)] if is_complex else []
    size = _geev_size(a.dtype, job, n, len(parts))
    given = right if vectors else (right,)
    call("geev", a.dtype, count, "N", job, n, copy, n, *numbers, unused, 1, given, n, (np.empty(size, a.dtype),), size,
         *rest, info.reshape(-1))  # fmt: skip
    values = numbers[0] if is_complex else (numbers[0] + 1j * numbers[1]).astype(dtype)
    shown = values.reshape(a.shape[:-1])
    if not vectors:
        return shown, shown, info
    columns = right if is_complex else _paired(right, numbers[1], dtype)
    return shown, columns.reshape(a.shape), info


def _geev_size(dtype: Any, job: str, n: int, parts: int) -> int:
    """The best size of a workspace; for complex numbers there is a second one of a fixed size behind it."""
    answer, unused = np.zeros(1, dtype), (np.zeros(1, dtype),)
    rest = [unused] if dtype.kind == "c" else []
    call("geev", dtype, 1, "N", job, n, unused, n, *[unused] * parts, unused, 1, unused, n, (answer,), -1, *rest,
         (np.zeros(1, np.int32),))  # fmt: skip
    return max(1, int(answer[0].real))


def _paired(right: Array, imaginary: Array, dtype: Any) -> Array:
    """Complex eigenvectors of real matrices: of a conjugate pair, LAPACK gives the real and the imaginary part."""
    columns = column_major(right.shape, dtype)
    columns[...] = right
    matrix, first = np.nonzero(imaginary > 0)
    if matrix.size:
        real, part = right[matrix, :, first], right[matrix, :, first + 1]
        columns[matrix, :, first] = real + 1j * part
        columns[matrix, :, first + 1] = real - 1j * part
    return columns


def svd(a: Array, full: bool, vectors: bool) -> tuple[Array, Array, Array, Array]:
    """U, singular values, V^H and info, by ?gesdd; without vectors U and V^H are not to be used."""
    (m, n), batch = a.shape[-2:], a.shape[:-2]
    k, real = min(m, n), a.real.dtype
    left, right = (m, n) if full else (k, k)
    is_finite = bool(np.isfinite(a).all())
    if a.size and is_finite and _uses_singular_loop(a):
        return _small_svd(a, full, vectors)
    if a.size and is_finite and mkl() is None and max(m, n) >= _MUCH * k:
        return _svd_of_triangle(a, full, vectors)
    u, vh = column_major((*batch, m, left), a.dtype), column_major((*batch, right, n), a.dtype)
    s, info = np.empty((*batch, k), real), np.zeros(batch, np.int32)
    if not a.size:
        u[...], vh[...] = np.eye(m, left), np.eye(right, n)
        return u, s, vh, info
    copy, infos = matrices(columns_of(a)), info.reshape(-1)
    bad = () if is_finite else ~np.isfinite(copy).all((-2, -1))
    if not is_finite:
        copy[bad] = 0
    _gesdd(copy, ("A" if full else "S") if vectors else "N", matrices(u), s.reshape(-1, k), matrices(vh), infos)
    if not is_finite:
        infos[bad] = _NOT_FINITE
    return u, s, vh, info


def _svd_of_triangle(a: Array, full: bool, vectors: bool) -> tuple[Array, Array, Array, Array]:
    """The same of tall and of wide matrices, by their QR factorization: LAPACK takes longer for the products."""
    if a.shape[-2] < a.shape[-1]:
        u, s, vh, info = _svd_of_triangle(a.swapaxes(-2, -1), full, vectors)
        return vh.swapaxes(-2, -1), s, u.swapaxes(-2, -1), info
    k = a.shape[-1]
    q, r = qr(a, (a.shape[-2] if full else k) if vectors else None)
    u, s, vh, info = svd(r[..., :k, :], False, vectors)
    if vectors:
        q[..., :k] = q[..., :k] @ u
    return q, s, vh, info


def _gesdd(a: Array, job: str, u: Array, s: Array, vh: Array, infos: Array) -> None:
    count, m, n = a.shape
    k = min(m, n)
    head, ld = (job, m, n), (m, vh.shape[-2])
    size, reals = gesdd_sizes(a.dtype, job, m, n, ld[1])
    real = [(np.empty(reals, a.real.dtype),)] if reals else []
    integers = (np.empty(8 * k, np.int32),)
    work = (np.empty(size, a.dtype),)
    call("gesdd", a.dtype, count, *head, a, m, s, u, ld[0], vh, ld[1], work, size, *real, integers, infos)


@lru_cache(maxsize=1024)
def gesdd_sizes(dtype: Any, job: str, m: int, n: int, ldvt: int) -> tuple[int, int]:
    """How many numbers the workspace has, and how many the one of real numbers that complex matrices have beside it."""
    answer, unused, k = np.zeros(1, dtype), (np.zeros(1, dtype),), min(m, n)
    rest = [unused] if dtype.kind == "c" else []
    call("gesdd", dtype, 1, job, m, n, unused, m, unused, unused, m, unused, ldvt, (answer,), -1, *rest,
         (np.zeros(1, np.int32),), (np.zeros(1, np.int32),))  # fmt: skip
    reals = max(1, k * max(5 * k + 7, 2 * max(m, n) + 2 * k + 1)) if rest else 0
    return max(1, int(answer[0].real)), reals


def _small_svd(a: Array, full: bool, vectors: bool) -> tuple[Array, Array, Array, Array]:
    """The same by NumPy, whose own functions would compute in double precision."""
    info = np.zeros(a.shape[:-2], np.int32)
    if not vectors:
        values = np.empty((*a.shape[:-2], min(a.shape[-2:])), a.real.dtype)
        if not small.svdvals_into(a, values):
            _svd_loop("", a)(a, out=values)
        return a, values, a, info
    u, s, vh = _svd_loop("_f" if full else "_s", a)(a)
    return u, s, vh, info


def _svd_loop(kind: str, a: Array) -> Any:
    """NumPy's loop, of which releases before 2.2 had one for wide and one for tall matrices."""
    shape = "_m" if a.shape[-2] < a.shape[-1] else "_n"
    return getattr(_loops, f"svd{kind}", None) or getattr(_loops, f"svd{shape}{kind}")
