"""Systems with triangular and with factorized matrices by BLAS and LAPACK, in the results' memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library import host_small_matrices as small
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.operators import Request
from server.engine.ops.linear_algebra import factorizations as generic_factorizations
from server.engine.ops.linear_algebra import solvers as generic_solvers
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.dtypes import int32
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra import factorizations, solvers

from .by_address import count_of, is_for_loops, launch_of_steps, place_of_one, scratch_places
from .matrices import launch_of
from .sequences import Call, Copy, EndIfAny, Matrices, Place, Step, matrices_of, numbers_of

_MOST_IN_LOOPS, _LEAST_IN_LOOPS = 4, 256
"""Rows up to which, and matrices from which on, compiled loops solve triangular systems in less time than BLAS."""


def _is_one_batch(A: Meta, B: Meta) -> bool:
    return bool(A.shape[:-2] == B.shape[:-2] and B.numel)


def _readable(given: Matrices, either_way: bool) -> tuple[Matrices, bool, list[Step], Place] | None:
    """Matrices as LAPACK can read them, whether these are the transposes, steps that copy them, and memory for an info.

    They are copied where neither columns nor, if it may be either way, rows are contiguous.
    """
    is_turned = either_way and not given.leading and bool(given.transposed.leading)
    there = given.transposed if is_turned else given
    places = scratch_places(4, 0 if there.leading else given.nbytes)
    if places is None:
        return None
    if there.leading:
        return there, is_turned, [], places[0]
    copy = given.dense_at(places[1])
    return copy, False, [Copy(given, copy)], places[0]


@prepares(solvers.solve_triangular, keys.CPU)
def solve_triangular(request: Request) -> Launch | None:
    (A, B, upper, left, unitriangular), (X,) = request.args, request.outs
    in_loops = A.shape[-1] <= _MOST_IN_LOOPS and count_of(A) >= _LEAST_IN_LOOPS and is_for_loops(A)
    if not (A.numel and _is_one_batch(A, B)) or in_loops:
        return None
    readable = _readable(matrices_of(0, A), True)
    if readable is None:
        return None
    factor, is_turned, copies, _ = readable
    dtype, (m, n), count, target = NUMPY_DTYPES[A.dtype], B.shape[-2:], count_of(A), matrices_of(2, X)
    side, triangle = "L" if left else "R", "U" if upper != is_turned else "L"
    how, one = (triangle, "NT"[is_turned], "NU"[unitriangular]), place_of_one(dtype)
    if left and n == 1:
        solve = Call("trsv", dtype, count, *how, m, factor.place, factor.leading, target.place, 1)
    else:
        solve = Call("trsm", dtype, count, side, *how, m, n, one, factor.place, factor.leading, target.place, m)
    steps: list[Step] = [*copies, Copy(matrices_of(1, B), target), solve]
    return launch_of_steps(generic_solvers.solve_triangular, ("upper", "left", "unitriangular"), request, (X,), steps)


@prepares(factorizations.cholesky_solve, keys.CPU)
def cholesky_solve(request: Request) -> Launch | None:
    (B, L, upper), (X,) = request.args, request.outs
    if not (L.numel and _is_one_batch(L, B)):
        return None
    readable = _readable(matrices_of(1, L), not L.dtype.is_complex)  # whose transpose is that of the conjugate matrix
    if readable is None:
        return None
    factor, is_turned, copies, info = readable
    dtype, (n, columns), target = NUMPY_DTYPES[L.dtype], B.shape[-2:], matrices_of(2, X)
    triangle = "U" if upper != is_turned else "L"
    solve = Call("potrs", dtype, count_of(L), triangle, n, columns, factor.place, factor.leading, target.place, n, info)
    steps: list[Step] = [*copies, Copy(matrices_of(0, B), target), solve]
    return launch_of_steps(generic_factorizations.cholesky_solve, (), request, (X,), steps)


@prepares(factorizations.cholesky_inverse, keys.CPU)
def cholesky_inverse(request: Request) -> Launch | None:
    (L, upper), (inverse,) = request.args, request.outs
    places = scratch_places(4 * count_of(L)) if L.numel else None
    if places is None:
        return None
    dtype, n, count, target = NUMPY_DTYPES[L.dtype], L.shape[-1], count_of(L), matrices_of(1, inverse)
    infos, lowest, highest = places[0]._replace(step=4), None if upper else 1, -1 if upper else None
    steps: list[Step] = [
        Copy(matrices_of(0, L), target),
        Call("potri", dtype, count, "U" if upper else "L", n, target.place, n, infos),
        EndIfAny(infos, count),
        Copy(target.transposed, target, lowest, highest, clears=False, conjugates=L.dtype.is_complex),
    ]
    return launch_of_steps(generic_factorizations.cholesky_inverse, (), request, (inverse,), steps)


def _lu_solve_by_loops(lu: Any, pivots: Any, b: Any, x: Any) -> bool:
    generic_factorizations.checked_pivots(np, pivots, lu.shape[-1])
    return small.lu_solve_into(lu, pivots, b, x)


@prepares(factorizations.lu_solve, keys.CPU)
def lu_solve(request: Request) -> Launch | None:
    (LU, pivots, B, left, adjoint), (X,) = request.args, request.outs
    if not (LU.numel and _is_one_batch(LU, B) and pivots.is_contiguous) or (adjoint and not left):
        return None
    in_loops = small.takes(LU.shape, NUMPY_DTYPES[LU.dtype].char, small.MOST_SUBSTITUTED)
    if left and not adjoint and in_loops and pivots.dtype is int32:
        return launch_of(generic_factorizations.lu_solve, ("left", "adjoint"), request, _lu_solve_by_loops)
    readable = _readable(matrices_of(0, LU), False)
    if readable is None:
        return None
    factor, _, copies, info = readable
    given, target = matrices_of(2, B), matrices_of(3, X)
    given, target = (given, target) if left else (given.transposed, target.transposed)
    dtype, (count, n, columns) = NUMPY_DTYPES[LU.dtype], target.shape
    trans, rows = "T" if not left else "C" if adjoint else "N", numbers_of(1, pivots, 1)
    steps: list[Step] = [
        *copies,
        Copy(given, target),
        Call("getrs", dtype, count, trans, n, columns, factor.place, factor.leading, rows, target.place, n, info),
    ]
    names = ("left", "adjoint")
    launch = launch_of_steps(generic_factorizations.lu_solve, names, request, (X,) if left else (), steps)
    if launch is None:
        return None
    solve = launch

    def checked(args: Any, outs: Any) -> None:
        generic_factorizations.checked_pivots(np, args[1].array, n)
        solve(args, outs)

    return checked


@prepares(factorizations.ldl_solve, keys.CPU)
def ldl_solve(request: Request) -> Launch | None:
    (LD, pivots, B, hermitian), (X,) = request.args, request.outs
    if not (LD.numel and _is_one_batch(LD, B) and pivots.is_contiguous and pivots.dtype is int32):
        return None
    readable = _readable(matrices_of(0, LD), False)
    if readable is None:
        return None
    factor, _, copies, info = readable
    dtype, (n, columns), target = NUMPY_DTYPES[LD.dtype], B.shape[-2:], matrices_of(3, X)
    name, rows = "hetrs" if hermitian and dtype.kind == "c" else "sytrs", numbers_of(1, pivots, 1)
    steps: list[Step] = [
        *copies,
        Copy(matrices_of(2, B), target),
        Call(name, dtype, count_of(LD), "L", n, columns, factor.place, factor.leading, rows, target.place, n, info),
    ]
    launch = launch_of_steps(generic_factorizations.ldl_solve, ("hermitian",), request, (X,), steps)
    if launch is None:
        return None
    solve = launch

    def checked(args: Any, outs: Any) -> None:
        generic_factorizations.check_pivots_in_pairs(np, args[1].array, n)
        solve(args, outs)

    return checked
