"""Systems with triangular and with factorized matrices by BLAS and LAPACK, in the results' memory."""

from __future__ import annotations

from ctypes import addressof, create_string_buffer
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_libraries import Each, by_addresses
from server.engine.operators import Request
from server.engine.ops import factorizations as generic_factorizations
from server.engine.ops import solvers as generic_solvers
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import factorizations, solvers

from .by_address import (
    address_of,
    below,
    columns_in,
    copy_into,
    count_of,
    each_of,
    is_for_loops,
    is_lapacks,
    launch_by_address,
    rows_or_columns_in,
)  # fmt: skip

_info = create_string_buffer(4)
_SHARED = Each(0)
_MOST_IN_LOOPS = 4
"""Rows up to which compiled loops solve many triangular systems in less time than BLAS."""


def _turned(meta: Meta) -> Meta:
    """The meta of the transposes of matrices."""
    shape, strides = meta.shape, meta.strides
    return meta.like((*shape[:-2], shape[-1], shape[-2]), strides=(*strides[:-2], strides[-1], strides[-2]))


def _is_one_batch(A: Meta, B: Meta) -> bool:
    return bool(A.shape[:-2] == B.shape[:-2] and B.numel)


@prepares(solvers.solve_triangular, keys.CPU)
def solve_triangular(request: Request) -> Launch | None:
    (A, B, upper, left, unitriangular), (X,) = request.args, request.outs
    in_loops = A.shape[-1] <= _MOST_IN_LOOPS and is_for_loops(A)
    if not (is_lapacks(A) and _is_one_batch(A, B)) or in_loops:
        return None
    place, distance, step, is_turned = rows_or_columns_in(A)
    dtype, (m, n), side = NUMPY_DTYPES[A.dtype], B.shape[-2:], "L" if left else "R"
    triangle, trans, unit = "U" if upper != is_turned else "L", "NT"[is_turned], "NU"[unitriangular]
    one = create_string_buffer(np.ones(1, dtype).tobytes(), dtype.itemsize)
    solve = by_addresses(
        "trsm", dtype, count_of(A), side, triangle, trans, unit, m, n, _SHARED, step, distance, each_of(X), m
    )
    solve_one = by_addresses("trsv", dtype, count_of(A), triangle, trans, unit, m, step, distance, each_of(X), 1)

    def write(args: Any, outs: Any) -> bool:
        copy_into(outs[0], args[1])
        factor, _alive = place(args[0])
        if left and n == 1:
            solve_one(factor, address_of(outs[0], X))
        else:
            solve(addressof(one), factor, address_of(outs[0], X))
        return True

    names = ("upper", "left", "unitriangular")
    return launch_by_address(generic_solvers.solve_triangular, names, request, (X,), write)


@prepares(factorizations.cholesky_solve, keys.CPU)
def cholesky_solve(request: Request) -> Launch | None:
    (B, L, upper), (X,) = request.args, request.outs
    if not (is_lapacks(L) and _is_one_batch(L, B)):
        return None
    dtype, (n, columns) = NUMPY_DTYPES[L.dtype], B.shape[-2:]
    place, distance, step, is_turned = (
        (*columns_in(L), False) if L.dtype.is_complex else rows_or_columns_in(L)
    )  # the transpose of a complex factor is that of the conjugate matrix
    triangle = "U" if upper != is_turned else "L"
    solve = by_addresses("potrs", dtype, count_of(L), triangle, n, columns, step, distance, each_of(X), n, _SHARED)

    def write(args: Any, outs: Any) -> bool:
        copy_into(outs[0], args[0])
        factor, _alive = place(args[1])
        solve(factor, address_of(outs[0], X), addressof(_info))
        return True

    return launch_by_address(generic_factorizations.cholesky_solve, (), request, (X,), write)


@prepares(factorizations.cholesky_inverse, keys.CPU)
def cholesky_inverse(request: Request) -> Launch | None:
    (L, upper), (inverse,) = request.args, request.outs
    if not is_lapacks(L):
        return None
    dtype, n = NUMPY_DTYPES[L.dtype], L.shape[-1]
    infos = np.zeros(count_of(L), np.int32)
    invert = by_addresses("potri", dtype, len(infos), "U" if upper else "L", n, each_of(inverse), n, Each(4))
    infos_at = infos.__array_interface__["data"][0]
    other = below(n, n) if upper else below(n, n).T

    def write(args: Any, outs: Any) -> bool:
        copy_into(outs[0], args[0])
        invert(address_of(outs[0], inverse), infos_at)
        if infos.any():
            return False
        array = outs[0].array
        mirror = array.swapaxes(-2, -1)
        np.copyto(array, mirror.conj() if dtype.kind == "c" else mirror, where=other)
        return True

    return launch_by_address(generic_factorizations.cholesky_inverse, (), request, (inverse,), write)


@prepares(factorizations.lu_solve, keys.CPU)
def lu_solve(request: Request) -> Launch | None:
    (LU, pivots, B, left, adjoint), (X,) = request.args, request.outs
    if not (is_lapacks(LU) and _is_one_batch(LU, B) and pivots.is_contiguous) or (adjoint and not left):
        return None
    dtype, (n, columns) = NUMPY_DTYPES[LU.dtype], B.shape[-2:] if left else _turned(B).shape[-2:]
    place, distance, step = columns_in(LU)
    trans = "T" if not left else "C" if adjoint else "N"
    solve = by_addresses(
        "getrs", dtype, count_of(LU), trans, n, columns, step, distance, each_of(pivots, 1), each_of(X), n, _SHARED
    )

    def write(args: Any, outs: Any) -> bool:
        generic_factorizations.checked_pivots(np, args[1].array, n)
        copy_into(outs[0], args[2])
        factor, _alive = place(args[0])
        solve(factor, address_of(args[1], pivots), address_of(outs[0], X), addressof(_info))
        return True

    names = ("left", "adjoint")
    return launch_by_address(generic_factorizations.lu_solve, names, request, (X,) if left else (), write)
