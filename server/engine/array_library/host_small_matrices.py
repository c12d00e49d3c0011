"""Batches of small real matrices on the host, by compiled loops: a call of LAPACK per matrix would cost the most.

``loops_for`` and ``interleaved_for`` say whether they are used; functions take what these return. The smallest matrices
are factorized side by side (``factorizations.interleaved`` of the compiled loops), the others one after the other
(``factorizations.matrices``). All return what LAPACK returns. Functions whose names end with ``into`` write arrays of
any layout.
"""

from __future__ import annotations

import math
import threading
from functools import cache, lru_cache
from itertools import count as numbers_from
from typing import Any

import numpy as np

from server.engine import compiled

from .host_libraries import PREFIXES, address_of
from .host_matrices import Array, matrices

_LARGEST = 32
"""The most rows or columns for which the loops are faster than LAPACK, whose calls cost two microseconds."""
_INTERLEAVED = 16
"""The most rows or columns for which a group of matrices fits into the cache, so that it is factorized side by side."""
MOST_SUBSTITUTED = 16
"""The most rows for which systems with LU factorizations take them less time than LAPACK."""
_GROUP_ELEMENTS, _NARROWEST, _WIDEST = 1 << 14, 16, 64
"""How many elements of matrices a group has at most, and how many matrices at least and at most."""
_KEPT_GROUPS = 64
"""How many shapes of batches a thread keeps scratch memory for, of at most 128 KiB each."""
_MOST_SYMMETRIC, _MOST_VALUES, _MOST_SINGULAR = 64, 16, 16
"""The most rows for which eigenvectors of symmetric matrices, eigenvalues alone, and singular values cost less than
LAPACK's."""
_MOST_GENERAL = {"f": 100, "d": 128}
"""The same for eigenvalues of others, by type."""
_LEAST_MATRICES, _LEAST_ELEMENTS = 8, 1 << 8
"""Batches from which on they are used."""
_LEAST_SPECTRA, _LEAST_LOADED = 32, 1 << 10
"""Matrices from which on eigenvalues and singular values are theirs, and elements from which on they always are.

Of fewer elements many batches are computed before loops are loaded, which takes time once.
"""
_runs = numbers_from()
"""Counts batches of few elements that were computed without loops."""


def _kernels(name: str, elements: int) -> Any:
    """A module of compiled loops for matrices of so many elements, None where it is not there yet."""
    name = f"factorizations.{name}"
    return compiled.kernels(name) if elements >= _LEAST_LOADED else compiled.kernels_after(_runs, name)


@lru_cache(maxsize=4096)
def takes(shape: tuple[int, ...], char: str, largest: int = _LARGEST) -> bool:
    """Whether compiled loops compute batches of this shape and type, of at most so many rows and columns."""
    size, least = max(shape[-2:]), max(_LEAST_ELEMENTS, _LEAST_MATRICES * max(shape[-2:]) ** 2)
    return char in "fd" and size <= largest and math.prod(shape) >= least


def _are_many(shape: tuple[int, ...]) -> bool:
    """Whether matrices are so many that loops compute their eigenvalues or singular values."""
    elements, count = math.prod(shape), math.prod(shape[:-2])
    return elements >= (_LEAST_ELEMENTS if count >= _LEAST_SPECTRA else _LEAST_LOADED)


def are_interleaved(shape: tuple[int, ...], char: str) -> bool:
    """Whether batches of this shape and type are factorized side by side."""
    return takes(shape, char, _INTERLEAVED)


def loops_for(a: Array, largest: int = _LARGEST, module: str = "matrices") -> Any:
    """The compiled loops if a batch of matrices, of at most so many rows and columns, is one for them; else None."""
    return _kernels(module, a.size) if takes(a.shape, a.dtype.char, largest) else None


def interleaved_for(a: Array) -> Any:
    """The compiled loops that factorize a batch of matrices side by side, if it is one for them; else None."""
    return _kernels("interleaved", a.size) if are_interleaved(a.shape, a.dtype.char) else None


def _writable(a: Array) -> Array:
    """A batch of matrices as the loops take it, which know no arrays that cannot be written to."""
    batch = a if a.ndim == 3 else matrices(a)
    return batch if batch.flags.writeable else batch.copy(order="K")


def _empty_columns(a: Array, shape: tuple[int, int]) -> Array:
    """Memory for matrices of a shape, column-major: (count, columns, rows)."""
    return np.empty((a.size // (a.shape[-2] * a.shape[-1]), *shape[::-1]), a.dtype)


@lru_cache(maxsize=1024)
def _width(shape: tuple[int, ...], columns: int) -> int:
    """How many matrices of a batch are factorized side by side, where scratch memory has so many columns for each."""
    most = _GROUP_ELEMENTS // (shape[-2] * max(columns, shape[-1]))
    return max(_NARROWEST, min(_WIDEST, most, math.prod(shape[:-2]) + _NARROWEST - 1) // _NARROWEST * _NARROWEST)


class _Groups(threading.local):
    """Scratch memory by the shape and type of a batch, which a thread keeps: to allocate it takes microseconds."""

    def __init__(self) -> None:
        self.known: dict[tuple[tuple[int, ...], str], tuple[Array, Array, Array]] = {}

    def scratch(self, a: Array) -> tuple[Array, Array, Array]:
        """Memory for a group of matrices, and for a number and an index of each."""
        key = a.shape, a.dtype.char
        parts = self.known.get(key)
        if parts is None:
            if len(self.known) >= _KEPT_GROUPS:
                self.known.clear()
            width = _width(a.shape, a.shape[-1])
            parts = np.empty((*a.shape[-2:], width), a.dtype), np.empty(width, a.dtype), np.empty(width, np.int32)
            self.known[key] = parts
        return parts


_scratch = _Groups().scratch


def lu_factor_into(loops: Any, a: Array, lu: Array, pivots: Array, info: Array) -> int:
    """Write compact LU factorizations, the rows exchanged, counted from 1, and info; return how many are singular."""
    if a.ndim != 3:
        lu, pivots, info = matrices(lu), pivots.reshape(-1, pivots.shape[-1]), info.reshape(-1)
    singular: int = loops.lu_factor(_writable(a), lu, pivots, info, *_scratch(a))
    return singular


def solve_into(loops: Any, a: Array, b: Array, x: Array, info: Array) -> int:
    """Write the solutions of A X = B and info; one right side may be that of all matrices.

    Return how many matrices are singular.
    """
    group, tops, chosen = _scratch(a)
    sides = np.empty((b.shape[-2], b.shape[-1], group.shape[-1]), a.dtype)
    singular: int = loops.solve(_writable(a), _writable(b), matrices(x), info.reshape(-1), group, sides, tops, chosen)
    return singular


def lu_solve_into(lu: Array, pivots: Array, b: Array, x: Array) -> bool:
    """Write the solutions of A X = B given LU factorizations; False, and nothing written, where LAPACK is to solve."""
    loops = loops_for(lu, MOST_SUBSTITUTED)
    if loops is None:
        return False
    sides = matrices(b).copy(order="C")
    loops.lu_solve(_writable(lu), pivots.reshape(-1, pivots.shape[-1]), sides)
    matrices(x)[...] = sides
    return True


@cache
def _identity(size: int, char: str) -> Array:
    return np.eye(size, dtype=char)[None]


def inv_into(loops: Any, a: Array, inverse: Array, info: Array) -> int:
    """Write the inverses, NaN where there is none, and info; return how many matrices are singular."""
    singular = solve_into(loops, a, _identity(a.shape[-1], a.dtype.char), inverse, info)
    if singular:
        inverse[info != 0] = np.nan
    return singular


def cholesky_into(loops: Any, a: Array, upper: bool, factor: Array, info: Array) -> int:
    """Write the factors of positive-definite matrices and info; a factor is not to be used where info is not 0.

    Return how many matrices are not positive-definite.
    """
    given, target = (a.swapaxes(-2, -1), factor.swapaxes(-2, -1)) if upper else (a, factor)
    if a.ndim != 3:
        target, info = matrices(target), info.reshape(-1)
    group, reciprocals, _ = _scratch(a)
    failed: int = loops.cholesky(_writable(given), target, info, group, reciprocals)
    return failed


def det_into(loops: Any, a: Array, determinant: Array) -> None:
    """Write the determinant of each matrix of ``a``, of shape (..., n, n), into ``determinant``, of shape (...)."""
    _determinants(loops, a, np.empty(determinant.size, a.dtype), determinant, False)


def slogdet_into(loops: Any, a: Array, sign: Array, logarithm: Array) -> None:
    """Write the signs of determinants and the logarithms of their absolute values."""
    _determinants(loops, a, sign, logarithm, True)


def _determinants(loops: Any, a: Array, signs: Array, sizes: Array, as_logarithms: bool) -> None:
    scratch = _scratch(a)
    loops.determinants(_writable(a), signs.reshape(-1), sizes.reshape(-1), as_logarithms, *scratch)


def lu_factor(a: Array) -> tuple[Array, Array, Array] | None:
    """The compact LU factorization, the rows exchanged, counted from 1, and info; None if LAPACK is to factorize."""
    interleaved = interleaved_for(a)
    loops = interleaved or loops_for(a)
    if loops is None:
        return None
    batch, factors = a.shape[:-2], _empty_columns(a, a.shape[-2:])
    pivots, infos = np.empty((len(factors), min(a.shape[-2:])), np.int32), np.empty(len(factors), np.int32)
    if interleaved is None:
        loops.lu_factor(_writable(a), factors, pivots, infos)
    else:
        lu_factor_into(loops, a, factors.swapaxes(1, 2), pivots, infos)
    return factors.swapaxes(1, 2).reshape(a.shape), pivots.reshape(*batch, -1), infos.reshape(batch)


def solve(a: Array, b: Array) -> tuple[Array, Array] | None:
    """The solution of A X = B and info per matrix, or None if LAPACK is to solve; batches are equal."""
    loops = interleaved_for(a)
    if loops is not None:
        x, infos = np.empty(b.shape, b.dtype), np.empty(a.shape[:-2], np.int32)
        solve_into(loops, a, b, x, infos)
        return x, infos
    factorized = lu_factor(a)
    if factorized is None:
        return None
    factors, pivots, infos = factorized
    x = matrices(b).copy(order="C")
    compiled.kernels("factorizations.matrices").lu_solve(matrices(factors), matrices(pivots[..., None])[..., 0], x)
    return x.reshape(b.shape), infos


def inv(a: Array) -> tuple[Array, Array] | None:
    """The inverse, NaN where there is none, and info per matrix; None if LAPACK is to invert."""
    solved = solve(a, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape))
    if solved is None:
        return None
    inverse, infos = solved
    if infos.any():
        inverse[infos != 0] = np.nan
    return inverse, infos


def cholesky(a: Array, upper: bool) -> tuple[Array, Array] | None:
    """The factor of positive-definite matrices and info; None if LAPACK is to factorize."""
    interleaved = interleaved_for(a)
    loops = interleaved or loops_for(a)
    if loops is None:
        return None
    factors, infos = _empty_columns(a, a.shape[-2:]), np.empty(a.shape[:-2], np.int32)
    if interleaved is None:
        loops.cholesky(_writable(a.swapaxes(-2, -1) if upper else a), factors, infos.reshape(-1))
        return (factors if upper else factors.swapaxes(1, 2)).reshape(a.shape), infos
    factor = factors.swapaxes(1, 2).reshape(a.shape)
    cholesky_into(loops, a, upper, factor, infos)
    return factor, infos


def ldl_factor(a: Array) -> tuple[Array, Array, Array] | None:
    """The compact LDL factorization of lower triangles, pivots and info; None if LAPACK is to factorize."""
    loops = loops_for(a, module="indefinite")
    if loops is None:
        return None
    factors, infos = _empty_columns(a, a.shape[-2:]), np.empty(a.shape[:-2], np.int32)
    pivots = np.empty(a.shape[:-1], np.int32)
    loops.ldl_factor(_writable(a), factors, pivots.reshape(-1, a.shape[-1]), infos.reshape(-1))
    return factors.swapaxes(1, 2).reshape(a.shape), pivots, infos


def qr(loops: Any, a: Array, columns: int, rows: int) -> tuple[Array, Array]:
    """Q with so many columns, which may be none, and R with so many rows."""
    (m, n), batch = a.shape[-2:], a.shape[:-2]
    q, r = _empty_columns(a, (m, columns)), np.empty((*batch, rows, n), a.dtype)
    factors, reflectors = np.empty(min(m, n), a.dtype), np.empty((1, n, m), a.dtype)
    loops.qr(_writable(a), reflectors, factors, q, matrices(r))
    return q.swapaxes(1, 2).reshape(*batch, m, columns), r


def solve_triangular(a: Array, b: Array, upper: bool, unitriangular: bool) -> Array | None:
    """The solution of A X = B for triangular A; None if BLAS is to solve. Batches are equal."""
    loops = loops_for(a)
    if loops is None or not b.size:
        return None
    x = matrices(b).copy(order="C")
    loops.solve_triangular(_writable(a), x, upper, unitriangular)
    return x.reshape(b.shape)


def takes_symmetric(shape: tuple[int, ...], char: str, vectors: bool) -> bool:
    """Whether the loops compute eigenvalues of symmetric matrices of this shape and type.

    Vectors may have another sign than LAPACK's, which must not depend on how many were computed before.
    """
    if vectors:
        return shape[-1] <= _MOST_SYMMETRIC and math.prod(shape) >= _LEAST_LOADED and char in "fd"
    return shape[-1] <= _MOST_VALUES and _are_many(shape) and char in "fd"


def has_singular_loops(shape: tuple[int, ...], char: str) -> bool:
    """Whether they compute singular values alone."""
    return max(shape[-2:]) <= _MOST_SINGULAR and _are_many(shape) and char == "f"


def eigh_into(a: Array, upper: bool, values: Array, vectors: Array | None) -> bool:
    """Write eigenvalues and, if they are wanted, eigenvectors of symmetric matrices.

    False, and nothing of use, where LAPACK is to compute them.
    """
    size = a.shape[-1]
    if not takes_symmetric(a.shape, a.dtype.char, vectors is not None):
        return False
    loops = _kernels("spectra", a.size)
    if loops is None:
        return False
    columns = np.empty((0, 0, 0), a.dtype) if vectors is None else matrices(vectors)
    scratch = _eigh_scratch(size, a.dtype.char)
    return bool(loops.eigh(_writable(a), upper, values.reshape(-1, size), columns, *scratch))


def eig_into(a: Array, values: Array, vectors: Array | None) -> bool:
    """Write complex eigenvalues and, if they are wanted, eigenvectors of real matrices; as ``eigh_into`` does.

    They may come in another order than LAPACK's, and vectors with another sign, so few numbers are always LAPACK's.
    """
    size, char = a.shape[-1], a.dtype.char
    if not 1 < size <= _MOST_GENERAL.get(char, 0) or a.size < _LEAST_LOADED:
        return False
    loops = _kernels("eigenvectors", a.size)
    if loops is None:
        return False
    columns = _nothing(values.dtype.char) if vectors is None else matrices(vectors)
    given = address_of(f"{PREFIXES[char]}gemm"), _writable(a), values.reshape(-1, size), columns
    return bool(loops.eig(*given, *_rooms.general(size, char, loops.LANES)))


@cache
def _nothing(char: str) -> Array:
    return np.empty((0, 0, 0), char)


class _Rooms(threading.local):
    """Scratch memory for eigenvalues of matrices of few rows, which a thread keeps."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[Array, ...]] = {}

    def general(self, size: int, char: str, lanes: int) -> tuple[Array, ...]:
        """Three matrices, eight rows, a row of ``lanes`` numbers for each row, and a row in double precision."""
        room = self._known.get((size, char))
        if room is None:
            shapes = (3, size, size), (8, size), (size, lanes)
            room = self._known[size, char] = *[np.empty(shape, char) for shape in shapes], np.empty(size)
        return room


_rooms = _Rooms()


def svdvals_into(a: Array, values: Array) -> bool:
    """Write singular values of single precision; False, and nothing of use, where LAPACK is to compute them."""
    if not has_singular_loops(a.shape, a.dtype.char):
        return False
    loops = _kernels("spectra", a.size)
    if loops is None:
        return False
    tall = a if a.shape[-2] >= a.shape[-1] else a.swapaxes(-2, -1)
    size = tall.shape[-1]
    return bool(loops.svdvals(_writable(tall), values.reshape(-1, size), *_svd_scratch(size)))


def _eigh_scratch(size: int, char: str) -> tuple[Array, ...]:
    return np.empty((2, size, size), char), np.empty(size, char), *_rows(size)


def _svd_scratch(size: int) -> tuple[Array, ...]:
    return np.empty((size, size)), np.empty(size), *_rows(size)


def _rows(size: int) -> tuple[Array, Array]:
    return np.empty((3, size)), np.empty(size, np.int64)
