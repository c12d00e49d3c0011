"""Factorizations of batches of small real matrices, written into the results' memory.

Factorizations are compiled loops. Where these are not compiled yet, and where a matrix has no factorization or is not
finite, the generic kernels compute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library import host_small_matrices as small
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_lapack import factorize_failed
from server.engine.operators import Request
from server.engine.ops.linear_algebra import factorizations as generic_factorizations
from server.engine.ops.linear_algebra import solvers as generic_solvers
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra import factorizations, solvers
from telegrad_protocol.ops.linear_algebra.matrices import column_major
from telegrad_protocol.ops.linear_algebra.matrices import is_vector as are_vectors

Array = Any


def _is_small(meta: Meta) -> bool:
    return small.are_interleaved(meta.shape, NUMPY_DTYPES[meta.dtype].char)


def _is_flat(meta: Meta, dimensions: int) -> bool:
    """Whether results for matrices of so many dimensions lie one behind the other, or have one dimension for these."""
    is_column_major = meta.ndim == dimensions and meta.strides == column_major(meta).strides
    return meta.is_contiguous or is_column_major or dimensions <= 3


def launch_of(
    generic: Callable[..., Any], names: tuple[str, ...], request: Request, write: Callable[..., bool]
) -> Launch:
    """A launch that calls ``write`` with all arrays, and computes generically where that returns False.

    ``names`` are those of the keywords that the generic kernel takes last. Results are computed generically, too, where
    they are to be written to memory in which batches are not one behind the other.
    """
    is_flat = all([_is_flat(meta, request.args[0].ndim) for meta in request.outs])
    operands = sum([isinstance(arg, Meta) for arg in request.args])
    others = request.args[operands:]
    cut = len(others) - len(names)
    keywords = dict(zip(names, others[cut:], strict=True))

    def launch(args: Any, outs: Any) -> None:
        given, targets = [arg.array for arg in args[:operands]], [out.array for out in outs]
        if is_flat and write(*given, *targets):
            return
        results = generic(np, *given, *others[:cut], **keywords)
        for target, result in zip(targets, results if results.__class__ is tuple else (results,), strict=True):
            np.copyto(target, result)

    return launch


def _with_loops(
    generic: Callable[..., Any], names: tuple[str, ...], request: Request, write: Callable[..., bool]
) -> Launch:  # fmt: skip
    """The same, where ``write`` gets the compiled loops first, if they are there."""

    def write_with_loops(*arrays: Array) -> bool:
        loops = small.interleaved_for(arrays[0])
        return loops is not None and write(loops, *arrays)

    return launch_of(generic, names, request, write_with_loops)


@prepares(factorizations.cholesky_ex, keys.CPU)
def cholesky_ex(request: Request) -> Launch | None:
    A, upper, check_errors = request.args
    if not _is_small(A):
        return None

    def write(loops: Any, a: Array, factor: Array, info: Array) -> bool:
        if small.cholesky_into(loops, a, upper, factor, info):
            if check_errors:
                return False
            factorize_failed(a, upper, factor, info)
        return True

    return _with_loops(generic_factorizations.cholesky_ex, ("upper", "check_errors"), request, write)


@prepares(factorizations.lu_factor_ex, keys.CPU)
def lu_factor_ex(request: Request) -> Launch | None:
    A, pivot, check_errors = request.args
    if not pivot or not _is_small(A):
        return None

    def write(loops: Any, a: Array, lu: Array, pivots: Array, info: Array) -> bool:
        return not (small.lu_factor_into(loops, a, lu, pivots, info) and check_errors)

    return _with_loops(generic_factorizations.lu_factor_ex, ("pivot", "check_errors"), request, write)


@prepares(solvers.inv_ex, keys.CPU)
def inv_ex(request: Request) -> Launch | None:
    A, check_errors = request.args
    if not _is_small(A):
        return None

    def write(loops: Any, a: Array, inverse: Array, info: Array) -> bool:
        return not (small.inv_into(loops, a, inverse, info) and check_errors)

    return _with_loops(generic_solvers.inv_ex, ("check_errors",), request, write)


@prepares(solvers.plain_solve, keys.CPU)
def plain_solve(request: Request) -> Launch | None:
    A, B, left, check_errors = request.args
    is_vector = are_vectors(A, B)
    one_batch = A.shape[:-1] == B.shape and A.ndim == 3 if is_vector else A.shape[:-2] == B.shape[:-2]
    if not (left and B.numel and one_batch and _is_small(A)):
        return None

    def write(loops: Any, a: Array, b: Array, x: Array, info: Array) -> bool:
        sides, solutions = (b[..., None], x[..., None]) if is_vector else (b, x)
        return not (small.solve_into(loops, a, sides, solutions, info) and check_errors)

    return _with_loops(generic_solvers.plain_solve, (), request, write)


@prepares(solvers.det, keys.CPU)
def det(request: Request) -> Launch | None:
    def write(loops: Any, a: Array, determinant: Array) -> bool:
        small.det_into(loops, a, determinant)
        return True

    return _with_loops(generic_solvers.det, (), request, write) if _is_small(request.args[0]) else None


@prepares(solvers.slogdet, keys.CPU)
def slogdet(request: Request) -> Launch | None:
    def write(loops: Any, a: Array, sign: Array, logarithm: Array) -> bool:
        small.slogdet_into(loops, a, sign, logarithm)
        return True

    return _with_loops(generic_solvers.slogdet, (), request, write) if _is_small(request.args[0]) else None
