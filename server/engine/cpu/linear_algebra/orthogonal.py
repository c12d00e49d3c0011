"""QR factorizations and Householder reflectors by LAPACK, in the results' memory."""

from __future__ import annotations

from typing import Any

from server.engine import keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_libraries import workspace_size
from server.engine.array_library.host_orthogonal import has_panels
from server.engine.operators import Request
from server.engine.ops.linear_algebra import factorizations as generic
from server.engine.ops.linear_algebra import reflectors
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.ops.linear_algebra import factorizations

from .by_address import count_of, is_for_loops, launch_of_steps, scratch_places
from .sequences import Call, Copy, Step, matrices_of, numbers_of


def _names(dtype: Any) -> tuple[str, str]:
    """The routines that form Q, and multiply by it."""
    return ("ungqr", "unmqr") if dtype.kind == "c" else ("orgqr", "ormqr")


@prepares(factorizations.qr, keys.CPU)
def qr(request: Request) -> Launch | None:
    (A, mode), (Q, R) = request.args, request.outs
    dtype = NUMPY_DTYPES[A.dtype]
    if not A.numel or is_for_loops(A) or has_panels(A.shape, dtype.char):
        return None
    if mode == "r":
        return _only_r(request)
    (m, n), count, columns, in_r = A.shape[-2:], count_of(A), Q.shape[-1], R.shape[-2] == A.shape[-2]
    k, form = min(m, n), _names(dtype)[0]
    size = workspace_size("geqrf", dtype, m, n, (), m, ())
    size = max(size, workspace_size(form, dtype, m, columns, k, (), m, ()))
    places = scratch_places(count * k * dtype.itemsize, size * dtype.itemsize, 4)
    if places is None:
        return None
    scales, work, info = places
    scales, q, r = scales._replace(step=k * dtype.itemsize), matrices_of(1, Q), matrices_of(2, R)
    factors = r if in_r else q
    steps: list[Step] = [
        Copy(matrices_of(0, A), factors.block(m, n)),
        Call("geqrf", dtype, count, m, n, factors.place, m, scales, work, size, info),
        Copy(r.block(m, k), q.block(m, k)) if in_r else Copy(q.block(k, n), r, lowest=0),
        Call(form, dtype, count, m, columns, k, q.place, m, scales, work, size, info),
        *([Copy(r, r, lowest=0, copies=False)] if in_r else []),
    ]
    return launch_of_steps(generic.qr, (), request, (Q, R), steps)


def _only_r(request: Request) -> Launch | None:
    """The same without Q; reflectors of tall matrices are scratch."""
    (A, _), (_, R) = request.args, request.outs
    (m, n), count, dtype = A.shape[-2:], count_of(A), NUMPY_DTYPES[A.dtype]
    k, size = min(m, n), workspace_size("geqrf", dtype, m, n, (), m, ())
    places = scratch_places(k * dtype.itemsize, size * dtype.itemsize, 4, A.nbytes if m > n else 0)
    if places is None:
        return None
    *rest, at = places
    given, r = matrices_of(0, A), matrices_of(2, R)
    factors = given.dense_at(at) if m > n else r
    steps: list[Step] = [
        Copy(given, factors),
        Call("geqrf", dtype, count, m, n, factors.place, m, rest[0], rest[1], size, rest[2]),
        Copy(factors.block(k, n), r, lowest=0, copies=m > n),
    ]
    return launch_of_steps(generic.qr, (), request, (R,), steps)


@prepares(factorizations.geqrf, keys.CPU)
def geqrf(request: Request) -> Launch | None:
    (A,), (factor, tau) = request.args, request.outs
    if not A.numel:
        return None
    (m, n), dtype = A.shape[-2:], NUMPY_DTYPES[A.dtype]
    size = workspace_size("geqrf", dtype, m, n, (), m, ())
    places = scratch_places(size * dtype.itemsize, 4)
    if places is None:
        return None
    factors, (work, info) = matrices_of(1, factor), places
    steps: list[Step] = [
        Copy(matrices_of(0, A), factors),
        Call("geqrf", dtype, count_of(A), m, n, factors.place, m, numbers_of(2, tau, 1), work, size, info),
    ]
    return launch_of_steps(reflectors.geqrf, (), request, (factor,), steps)


@prepares(factorizations.plain_householder_product, keys.CPU)
def householder_product(request: Request) -> Launch | None:
    (A, tau), (product,) = request.args, request.outs
    if not (A.numel and tau.numel and tau.is_contiguous):
        return None
    (m, n), k, dtype = A.shape[-2:], tau.shape[-1], NUMPY_DTYPES[A.dtype]
    name = _names(dtype)[0]
    size = workspace_size(name, dtype, m, n, k, (), m, ())
    places = scratch_places(size * dtype.itemsize, 4)
    if places is None:
        return None
    target, (work, info) = matrices_of(2, product), places
    steps: list[Step] = [
        Copy(matrices_of(0, A), target),
        Call(name, dtype, count_of(A), m, n, k, target.place, m, numbers_of(1, tau, 1), work, size, info),
    ]
    return launch_of_steps(reflectors.plain_householder_product, (), request, (product,), steps)


@prepares(factorizations.plain_ormqr, keys.CPU)
def ormqr(request: Request) -> Launch | None:
    (A, tau, other, left, transpose), (product,) = request.args, request.outs
    if not (A.numel and tau.numel and other.numel and tau.is_contiguous):
        return None
    (m, n), k, dtype, count = other.shape[-2:], tau.shape[-1], NUMPY_DTYPES[A.dtype], count_of(other)
    name, side = _names(dtype)[1], "L" if left else "R"
    trans = "N" if not transpose else "C" if dtype.kind == "c" else "T"
    given, target = matrices_of(0, A), matrices_of(3, product)
    size = workspace_size(name, dtype, side, trans, m, n, k, (), A.shape[-2], (), (), m)
    places = scratch_places(size * dtype.itemsize, 4, 0 if given.leading else A.nbytes)
    if places is None:
        return None
    work, info, at = places
    factors = given if given.leading else given.dense_at(at)
    head = side, trans, m, n, k, factors.place, factors.leading, numbers_of(1, tau, 1)
    steps: list[Step] = [
        *([] if given.leading else [Copy(given, factors)]),
        Copy(matrices_of(2, other), target),
        Call(name, dtype, count, *head, target.place, m, work, size, info),
    ]
    return launch_of_steps(reflectors.plain_ormqr, (), request, (product,), steps)
