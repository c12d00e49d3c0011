"""Cholesky, LU and LDL factorizations by LAPACK, in the results' memory."""

from __future__ import annotations

from server.engine import keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_libraries import workspace_size
from server.engine.operators import Request
from server.engine.ops.linear_algebra import factorizations as generic
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.ops.linear_algebra import factorizations

from .by_address import count_of, is_for_loops, launch_of_steps, place_of_one, scratch_places
from .sequences import (
    Call,
    Copy,
    EndIfAny,
    EndIfNaN,
    Matrices,
    Place,
    Step,
    WritePermutations,
    matrices_of,
    numbers_of,
)


@prepares(factorizations.cholesky_ex, keys.CPU)
def cholesky_ex(request: Request) -> Launch | None:
    (A, upper, _), (L, info) = request.args, request.outs
    if not A.numel or is_for_loops(A):
        return None
    n, count, dtype = A.shape[-1], count_of(A), NUMPY_DTYPES[A.dtype]
    factor, failed = matrices_of(1, L), numbers_of(2, info, 0)
    number, offset, step = factor.place
    last = Place(number, offset + (n * n - 1) * dtype.itemsize, step)
    steps: list[Step] = [
        Copy(matrices_of(0, A), factor, lowest=0 if upper else None, highest=None if upper else 0),
        Call("potrf", dtype, count, "U" if upper else "L", n, factor.place, n, failed),
        EndIfAny(failed, count),
        EndIfNaN(last, dtype, count),  # whatever is NaN makes this so, which not every LAPACK tells
    ]
    return launch_of_steps(generic.cholesky_ex, ("upper", "check_errors"), request, (L,), steps)


@prepares(factorizations.lu_factor_ex, keys.CPU)
def lu_factor_ex(request: Request) -> Launch | None:
    (A, pivot, check_errors), (LU, pivots, info) = request.args, request.outs
    if not (pivot and A.numel) or is_for_loops(A):
        return None
    (m, n), count, dtype = A.shape[-2:], count_of(A), NUMPY_DTYPES[A.dtype]
    factors, failed = matrices_of(1, LU), numbers_of(3, info, 0)
    steps: list[Step] = [
        Copy(matrices_of(0, A), factors),
        Call("getrf", dtype, count, m, n, factors.place, m, numbers_of(2, pivots, 1), failed),
        *([EndIfAny(failed, count)] if check_errors else []),
    ]
    return launch_of_steps(generic.lu_factor_ex, ("pivot", "check_errors"), request, (LU,), steps)


@prepares(factorizations.plain_lu, keys.CPU)
def plain_lu(request: Request) -> Launch | None:
    (A, pivot), (P, L, U) = request.args, request.outs
    if not (pivot and A.numel):
        return None
    (m, n), count, dtype, k = A.shape[-2:], count_of(A), NUMPY_DTYPES[A.dtype], L.shape[-1]
    places = scratch_places(A.nbytes, 4 * k * count, 4 * m, 4)
    if places is None:
        return None
    at, exchanged, order, failed = places
    given, exchanged = matrices_of(0, A), exchanged._replace(step=4 * k)
    factors = given.dense_at(at)
    ones = Matrices(place_of_one(dtype), given.dtype, (count, m, k), (0, 0, 0))
    rows, lower, upper = [matrices_of(1 + number, meta) for number, meta in enumerate((P, L, U))]
    steps: list[Step] = [
        Copy(given, factors),
        Call("getrf", dtype, count, m, n, factors.place, m, exchanged, failed),
        WritePermutations(exchanged, k, order, rows),
        Copy(factors.block(m, k), lower, highest=-1),
        Copy(ones, lower, lowest=0, highest=0, clears=False),
        Copy(factors.block(k, n), upper, lowest=0),
    ]
    return launch_of_steps(generic.plain_lu, (), request, (), steps)


@prepares(factorizations.ldl_factor_ex, keys.CPU)
def ldl_factor_ex(request: Request) -> Launch | None:
    (A, hermitian, check_errors), (LD, pivots, info) = request.args, request.outs
    if not A.numel:
        return None
    dtype, n, count = NUMPY_DTYPES[A.dtype], A.shape[-1], count_of(A)
    name = "hetrf" if hermitian and dtype.kind == "c" else "sytrf"
    size = workspace_size(name, dtype, "L", n, (), n, ())
    places = scratch_places(size * dtype.itemsize)
    if places is None:
        return None
    factors, failed = matrices_of(1, LD), numbers_of(3, info, 0)
    steps: list[Step] = [
        Copy(matrices_of(0, A), factors, highest=0),
        Call(name, dtype, count, "L", n, factors.place, n, numbers_of(2, pivots, 1), *places, size, failed),
        *([EndIfAny(failed, count)] if check_errors else []),
    ]
    return launch_of_steps(generic.ldl_factor_ex, ("hermitian", "check_errors"), request, (LD,), steps)
