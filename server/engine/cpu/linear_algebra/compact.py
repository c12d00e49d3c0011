"""LU and LDL factorizations by LAPACK, in the results' memory."""

from __future__ import annotations

from ctypes import addressof, c_int
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_libraries import Each, by_addresses, workspace_size
from server.engine.operators import Request
from server.engine.ops import factorizations as generic
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.ops import factorizations

from .by_address import (
    MOST_SCRATCH,
    address_of,
    below,
    copy_into,
    count_of,
    each_of,
    is_for_loops,
    is_lapacks,
    launch_by_address,
    scratch,
)  # fmt: skip

_SHARED = Each(0)
_MOST_IN_TURN = 16
"""Rows and columns up to which L and U of many matrices cost more than their factorization, which is LAPACK's then."""


@prepares(factorizations.lu_factor_ex, keys.CPU)
def lu_factor_ex(request: Request) -> Launch | None:
    (A, pivot, check_errors), (LU, pivots, info) = request.args, request.outs
    if not (pivot and is_lapacks(A)) or is_for_loops(A):
        return None
    (m, n), count, dtype = A.shape[-2:], count_of(A), NUMPY_DTYPES[A.dtype]
    factorize = by_addresses("getrf", dtype, count, m, n, each_of(LU), m, each_of(pivots, 1), Each(4))

    def write(args: Any, outs: Any) -> bool:
        copy_into(outs[0], args[0])
        at, exchanged, failed = address_of(outs[0], LU), address_of(outs[1], pivots), address_of(outs[2], info)
        factorize(at, exchanged, failed)
        return not (check_errors and _any(failed, outs[2], count))

    names = ("pivot", "check_errors")
    return launch_by_address(generic.lu_factor_ex, names, request, (LU,), write)


def _any(address: int, info: Any, count: int) -> bool:
    """Whether one of the numbers, which begin at an address, is not 0."""
    return bool(c_int.from_address(address).value if count == 1 else info.array.any())


@prepares(factorizations.plain_lu, keys.CPU)
def plain_lu(request: Request) -> Launch | None:
    (A, pivot), (_, L, _) = request.args, request.outs
    in_loops = is_for_loops(A) and max(A.shape[-2:]) > _MOST_IN_TURN
    if not (pivot and is_lapacks(A)) or A.nbytes > MOST_SCRATCH or in_loops:
        return None
    (m, n), count, dtype, k = A.shape[-2:], count_of(A), NUMPY_DTYPES[A.dtype], L.shape[-1]
    factorize = by_addresses("getrf", dtype, count, m, n, each_of(A), m, Each(4 * k), _SHARED)
    pivots_at, info_at = A.nbytes, A.nbytes + 4 * k * count
    memory = scratch(info_at + 8)
    factors = np.frombuffer(memory, dtype, A.numel).reshape(*A.shape[:-2], n, m).swapaxes(-2, -1)
    exchange = by_addresses("laswp", dtype, count, m, each_of(request.outs[0]), m, 1, k, Each(4 * k), 1)
    identity, lower, beneath = np.eye(m, dtype=dtype), below(m, k), below(k, n)

    def write(args: Any, outs: Any) -> bool:
        P, L, U = [out.array for out in outs]
        np.copyto(factors, args[0].array)
        at = addressof(memory)
        factorize(at, at + pivots_at, at + info_at)
        P[...] = identity
        exchange(address_of(outs[0], request.outs[0]), at + pivots_at)
        np.copyto(L, identity[:, :k])
        np.copyto(L, factors[..., :k], where=lower)
        np.copyto(U, factors[..., :k, :])
        np.copyto(U, 0, where=beneath)
        return True

    return launch_by_address(generic.plain_lu, (), request, (), write)


@prepares(factorizations.ldl_factor_ex, keys.CPU)
def ldl_factor_ex(request: Request) -> Launch | None:
    (A, hermitian, check_errors), (LD, pivots, info) = request.args, request.outs
    if not is_lapacks(A):
        return None
    dtype, n, count = NUMPY_DTYPES[A.dtype], A.shape[-1], count_of(A)
    name = "hetrf" if hermitian and dtype.kind == "c" else "sytrf"
    size = workspace_size(name, dtype, "L", n, (), n, ())
    factorize = by_addresses(
        name, dtype, count, "L", n, each_of(LD), n, each_of(pivots, 1), _SHARED, size, Each(4)
    )  # fmt: skip
    memory, above = scratch(size * dtype.itemsize), below(n, n).T

    def write(args: Any, outs: Any) -> bool:
        copy_into(outs[0], args[0])
        np.copyto(outs[0].array, 0, where=above)
        failed = address_of(outs[2], info)
        factorize(address_of(outs[0], LD), address_of(outs[1], pivots), addressof(memory), failed)
        return not (check_errors and _any(failed, outs[2], count))

    names = ("hermitian", "check_errors")
    return launch_by_address(generic.ldl_factor_ex, names, request, (LD,), write)
