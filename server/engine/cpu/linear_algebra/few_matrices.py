"""Factorizations of a few matrices of moderate size by NumPy's loops, written into the results' memory.

The generic kernels compute where something fails, and larger matrices where MKL is installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.linalg import _umath_linalg

from server.engine import keys
from server.engine.array_library import host_small_matrices as small
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_libraries import mkl
from server.engine.operators import Request
from server.engine.ops.linear_algebra import solvers as generic_solvers
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra import solvers
from telegrad_protocol.ops.linear_algebra.matrices import is_vector as are_vectors

from .matrices import launch_of

Array = Any
_loops: Any = _umath_linalg
_MOST_ELEMENTS = 1 << 14
"""Elements of matrices up to which NumPy's loops are used."""


_MOST_BESIDE_MKL = 16
"""Rows of matrices up to which they are, where MKL is installed, which computes larger ones in less time."""


def _is_few(meta: Meta) -> bool:
    """Whether a batch is small enough, and none for compiled loops."""
    few = 0 < meta.numel <= _MOST_ELEMENTS and (mkl() is None or max(meta.shape[-2:]) <= _MOST_BESIDE_MKL)
    return few and not small.takes(meta.shape, NUMPY_DTYPES[meta.dtype].char)


def _is_number(array: Array) -> bool:
    """Whether there is no NaN, which a loop writes where it has failed."""
    if not array.ndim:
        return bool(array == array)
    return not np.isnan(array).any()


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
    is_vector = are_vectors(A, B)
    one_batch = A.shape[:-1] == B.shape if is_vector else A.shape[:-2] == B.shape[:-2]
    if not (B.numel and _is_few(A) and one_batch):
        return None

    def write(a: Array, b: Array, x: Array, info: Array) -> bool:
        info.fill(0)
        if is_vector:
            _loops.solve1(a, b, out=x)
        elif left:
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
