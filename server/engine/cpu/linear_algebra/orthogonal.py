"""QR factorizations and Householder reflectors by LAPACK, in the results' memory."""

from __future__ import annotations

from ctypes import addressof
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_libraries import Each, by_addresses, workspace_size
from server.engine.array_library.host_orthogonal import has_panels
from server.engine.operators import Request
from server.engine.ops import factorizations as generic
from server.engine.ops import reflectors
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.ops import factorizations

from .by_address import (
    MOST_SCRATCH,
    address_of,
    below,
    columns_in,
    copy_into,
    count_of,
    each_of,
    is_for_loops,
    is_lapacks,
    launch_by_address,
    scratch,
)  # fmt: skip

_SHARED = Each(0)


def _names(dtype: Any) -> tuple[str, str]:
    """The routines that form Q, and multiply by it."""
    return ("ungqr", "unmqr") if dtype.kind == "c" else ("orgqr", "ormqr")


@prepares(factorizations.qr, keys.CPU)
def qr(request: Request) -> Launch | None:
    (A, mode), (Q, R) = request.args, request.outs
    dtype = NUMPY_DTYPES[A.dtype]
    if not is_lapacks(A) or is_for_loops(A) or has_panels(A.shape, dtype.char):
        return None
    if mode == "r":
        return _only_r(request)
    (m, n), count, columns, in_r = A.shape[-2:], count_of(A), Q.shape[-1], R.shape[-2] == A.shape[-2]
    k, form_name, scales = min(m, n), _names(dtype)[0], Each(min(m, n) * dtype.itemsize)
    if count * scales > MOST_SCRATCH:
        return None
    size = workspace_size("geqrf", dtype, m, n, (), m, ())
    size = max(size, workspace_size(form_name, dtype, m, columns, k, (), m, ()))
    reflected = each_of(R if in_r else Q)
    factorize = by_addresses("geqrf", dtype, count, m, n, reflected, m, scales, _SHARED, size, _SHARED)
    form = by_addresses(form_name, dtype, count, m, columns, k, each_of(Q), m, scales, _SHARED, size, _SHARED)
    work_at, info_at = count * scales, count * scales + size * dtype.itemsize
    memory, lower = scratch(info_at + 8), below(R.shape[-2], n)

    def write(args: Any, outs: Any) -> bool:
        at = addressof(memory)
        places = at, at + work_at, at + info_at
        q, r = outs[0].array, outs[1].array
        source, other = (r, q) if in_r else (q, r)
        copy_into(outs[in_r], args[0])
        factorize(address_of(outs[in_r], R if in_r else Q), *places)
        np.copyto(other[..., :k], source[..., : other.shape[-2], :k])
        form(address_of(outs[0], Q), *places)
        np.copyto(r, 0, where=lower)
        return True

    return launch_by_address(generic.qr, (), request, (Q, R), write)


def _only_r(request: Request) -> Launch | None:
    """The same without Q; reflectors of tall matrices are scratch."""
    (A, _), (_, R) = request.args, request.outs
    (m, n), count, dtype = A.shape[-2:], count_of(A), NUMPY_DTYPES[A.dtype]
    k, size = min(m, n), workspace_size("geqrf", dtype, m, n, (), m, ())
    step, scales = each_of(A), Each(0)
    work_at = count * step if m > n else 0
    scales_at = work_at + size * dtype.itemsize
    info_at = scales_at + k * dtype.itemsize
    if info_at > MOST_SCRATCH:
        return None
    factorize = by_addresses("geqrf", dtype, count, m, n, step, m, scales, _SHARED, size, _SHARED)
    memory, lower = scratch(info_at + 8), below(R.shape[-2], n)
    factors = np.frombuffer(memory, dtype, count * m * n if m > n else 0)
    factors = factors.reshape(*A.shape[:-2], n, m).swapaxes(-2, -1) if m > n else factors

    def write(args: Any, outs: Any) -> bool:
        at, r = addressof(memory), outs[1].array
        places = at + scales_at, at + work_at, at + info_at
        if m > n:
            np.copyto(factors, args[0].array)
            factorize(at, *places)
            np.copyto(r, factors[..., :n, :])
        else:
            copy_into(outs[1], args[0])
            factorize(address_of(outs[1], R), *places)
        np.copyto(r, 0, where=lower)
        return True

    return launch_by_address(generic.qr, (), request, (R,), write)


@prepares(factorizations.geqrf, keys.CPU)
def geqrf(request: Request) -> Launch | None:
    (A,), (factor, tau) = request.args, request.outs
    if not is_lapacks(A):
        return None
    (m, n), dtype = A.shape[-2:], NUMPY_DTYPES[A.dtype]
    size = workspace_size("geqrf", dtype, m, n, (), m, ())
    steps = each_of(factor), each_of(tau, 1)
    factorize = by_addresses("geqrf", dtype, count_of(A), m, n, steps[0], m, steps[1], _SHARED, size, _SHARED)
    memory = scratch(size * dtype.itemsize + 8)

    def write(args: Any, outs: Any) -> bool:
        copy_into(outs[0], args[0])
        at = addressof(memory)
        factorize(address_of(outs[0], factor), address_of(outs[1], tau), at, at + size * dtype.itemsize)
        return True

    return launch_by_address(reflectors.geqrf, (), request, (factor,), write)


@prepares(factorizations.plain_householder_product, keys.CPU)
def householder_product(request: Request) -> Launch | None:
    (A, tau), (product,) = request.args, request.outs
    if not (is_lapacks(A) and tau.numel and tau.is_contiguous):
        return None
    (m, n), k, dtype = A.shape[-2:], tau.shape[-1], NUMPY_DTYPES[A.dtype]
    name = _names(dtype)[0]
    size = workspace_size(name, dtype, m, n, k, (), m, ())
    steps = each_of(product), each_of(tau, 1)
    form = by_addresses(name, dtype, count_of(A), m, n, k, steps[0], m, steps[1], _SHARED, size, _SHARED)
    memory = scratch(size * dtype.itemsize + 8)

    def write(args: Any, outs: Any) -> bool:
        copy_into(outs[0], args[0])
        at = addressof(memory)
        form(address_of(outs[0], product), address_of(args[1], tau), at, at + size * dtype.itemsize)
        return True

    return launch_by_address(reflectors.plain_householder_product, (), request, (product,), write)


@prepares(factorizations.plain_ormqr, keys.CPU)
def ormqr(request: Request) -> Launch | None:
    (A, tau, other, left, transpose), (product,) = request.args, request.outs
    if not (is_lapacks(A) and tau.numel and other.numel and tau.is_contiguous):
        return None
    (m, n), k, dtype = other.shape[-2:], tau.shape[-1], NUMPY_DTYPES[A.dtype]
    name, side = _names(dtype)[1], "L" if left else "R"
    trans = "N" if not transpose else "C" if dtype.kind == "c" else "T"
    place, distance, step = columns_in(A)
    size = workspace_size(name, dtype, side, trans, m, n, k, (), distance, (), (), m)
    multiply = by_addresses(
        name, dtype, count_of(other), side, trans, m, n, k, step, distance, each_of(tau, 1), each_of(product), m,
        _SHARED, size, _SHARED,
    )  # fmt: skip
    memory = scratch(size * dtype.itemsize + 8)

    def write(args: Any, outs: Any) -> bool:
        copy_into(outs[0], args[2])
        reflectors, _alive = place(args[0])
        at = addressof(memory)
        target = address_of(outs[0], product)
        multiply(reflectors, address_of(args[1], tau), target, at, at + size * dtype.itemsize)
        return True

    return launch_by_address(reflectors.plain_ormqr, (), request, (product,), write)
