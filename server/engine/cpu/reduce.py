"""Sums, means, norms and variances of row-major tensors, as reductions of a matrix's rows and columns."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.device import threads
from server.engine.ops import reduce as generic
from server.engine.ops import spread as generic_spread
from server.engine.registry import kernel
from telegrad_protocol.layout import wrap_dims
from telegrad_protocol.ops import reduce as ops
from telegrad_protocol.ops import spread

from .fallback import call_generic
from .halves import is_half, narrow
from .memory import BLOCK_BYTES, scratch
from .row_loops import loops_for, run_rows, sum_columns
from .rows import add_column, column_sums, in_row_blocks, is_fast, row_dots, row_sums

Array = Any
Dims = int | tuple[int, ...] | None


@lru_cache(maxsize=4096)
def matrix_view(shape: tuple[int, ...], dim: Dims) -> tuple[int, int, int] | None:
    """The shape as (before, kept, after), where the outer two are reduced; None if the dimensions do not allow that."""
    ndim = len(shape)
    if not ndim or dim is None or dim == ():
        return 1, 1, math.prod(shape)
    dims = set(wrap_dims("sum", (dim,) if isinstance(dim, int) else dim, ndim))
    first = next((d for d in range(ndim) if d not in dims), ndim)
    last = next((d for d in range(ndim, first, -1) if d - 1 not in dims), first)
    if first == ndim:
        return 1, 1, math.prod(shape)
    if any(d in dims for d in range(first, last)):
        return None
    return math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])


def sum_into(x: Array, dim: Dims, out: Array) -> bool:
    """Sum an array that ``is_fast`` accepts over ``dim``; False, and nothing written, for other dimensions."""
    view = matrix_view(x.shape, dim)
    if view is None:
        return False
    before, kept, after = view
    if after == 1:
        columns, flat = x.reshape(before, kept), out.reshape(kept)
        if not sum_columns(columns, flat):
            column_sums(columns, flat)
        return True
    sums = _threaded_row_sums(x.reshape(before * kept, after))
    if before == 1:
        out[...] = sums.reshape(out.shape)
    else:
        column_sums(sums.reshape(before, kept), out.reshape(kept))
    return True


def _threaded_row_sums(x: Array) -> Array:
    """``row_sums``, for which threads take some rows each, or parts of a single long row."""
    if x.nbytes < LARGE:
        return row_sums(x)
    loops = compiled.kernels("rows") if x.dtype.char == "f" else None
    if loops is not None:
        return _sums_by_loops(loops, x)
    if len(x) == 1:
        length = x.shape[1]
        parts = [x[:, part] for part in threads.pieces_of(length, x.nbytes, threads.LEAST_BYTES)]
    else:
        parts = [x[part] for part in threads.pieces_of(len(x), x.nbytes, threads.LEAST_BYTES)]
    sums: list[Any] = [None] * len(parts)

    def run(part: int) -> None:
        sums[part] = row_sums(parts[part])

    threads.run(run, len(parts))
    return np.add.reduce(sums) if len(x) == 1 else np.concatenate(sums)


def _sums_by_loops(loops: Any, x: Array) -> Array:
    """The same by compiled loops, in single precision; a single row's pieces are the same for any number of threads."""
    length = x.shape[1]
    if len(x) == 1 and length > STRETCH:
        whole = length - length % STRETCH
        total = _sums_by_loops(loops, x[:, :whole].reshape(-1, STRETCH)).sum(dtype=np.float64)
        if whole < length:
            total += _sums_by_loops(loops, x[:, whole:])[0]
        return np.array([total], "f")
    out = np.empty(len(x), "f")
    run_rows(loops.row_sums[x.dtype.char], (x,), lambda rows, part: (part, out[rows]))
    return out


STRETCH = 1 << 15
"""Elements of a single long row that are summed for themselves."""
LARGE = 1 << 20
"""Bytes from which on threads, or compiled loops, pay for a sum."""


def _sum_halves(x: Array, dim: Dims, out: Array, count: int = 1) -> bool:
    """``sum_into`` for half precision, which takes sums of whole rows and columns, and divides them by ``count``."""
    view = matrix_view(x.shape, dim)
    if view is None or not x.flags.c_contiguous or not x.size:
        return False
    if view[2] == 1 and view[0] > 1:
        sums = np.empty(view[1], "f")
        is_done = sum_columns(x.reshape(view[0], view[1]), sums)
        if is_done:
            sums /= count
            narrow(sums, out.reshape(-1))
        return is_done
    if view[0] != 1:
        return False
    rows = x.reshape(view[1], view[2])
    loops = loops_for(rows)
    if loops is not None:
        sums = _sums_by_loops(loops, rows)
    elif len(rows) == 1:
        return False
    else:
        sums = np.empty(len(rows), "f")
        for block, (part,) in in_row_blocks((rows,), ()):
            sums[block] = row_sums(part)
    sums /= count
    narrow(sums, out.reshape(-1))
    return True


def _summed(x: Array, dim: Dims, out: Array) -> bool:
    if x.dtype is not out.dtype or not out.flags.c_contiguous:
        return False
    if is_fast(x):
        return sum_into(x, dim, out)
    return is_half(x) and _sum_halves(x, dim, out)


@kernel(ops.sum, keys.CPU, movement=True)
def sum(xp, input, dim, keepdim, *, dtype, out):
    if not _summed(input, dim, out):
        call_generic(generic.sum, input, dim, keepdim, dtype=dtype, out=out)


@kernel(ops.mean, keys.CPU, movement=True)
def mean(xp, input, dim, keepdim, *, dtype, out):
    if is_half(input):
        is_plain = input.dtype is out.dtype and out.flags.c_contiguous
        is_done = is_plain and _sum_halves(input, dim, out, input.size // max(out.size, 1))
    elif is_done := _summed(input, dim, out):
        np.multiply(out, out.size / input.size, out=out)
    if not is_done:
        call_generic(generic.mean, input, dim, keepdim, dtype=dtype, out=out)


@kernel(spread.norm, keys.CPU)
def norm(xp, input, p, dim, keepdim, *, dtype, out):
    view = matrix_view(input.shape, dim) if p in (None, 2) and is_fast(input) and input.dtype is out.dtype else None
    if view is None or view[0] != 1:
        generic_spread.norm(xp, input, p, dim, keepdim, dtype=dtype, out=out)
        return
    x = input.reshape(view[1], view[2])
    np.sqrt(row_dots(x, x).reshape(out.shape), out=out)


_FEW = 16
"""The deviations of so short rows are NumPy's."""


@kernel(ops.logsumexp, keys.CPU, movement=True)
def logsumexp(xp, input, dim, keepdim, *, out):
    view = matrix_view(input.shape, dim) if input.dtype is out.dtype and out.flags.c_contiguous else None
    loops = loops_for(input) if view is not None and view[0] == 1 and view[2] > 1 else None
    if view is None or loops is None:
        call_generic(generic.logsumexp, input, dim, keepdim, out=out)
        return
    rows, results = input.reshape(view[1], view[2]), np.empty(view[1], "f")
    run_rows(loops.row_logsumexp[input.dtype.char], (rows,), lambda block, x: (x, results[block]))
    narrow(results, out.reshape(-1)) if is_half(out) else np.copyto(out, results.reshape(out.shape))


@kernel(spread.var, keys.CPU)
def var(xp, input, dim, *, correction, keepdim, out):
    is_taken = is_fast(input) and input.dtype is out.dtype and out.flags.c_contiguous
    view = matrix_view(input.shape, dim) if is_taken else None
    if view is None or view[0] != 1 or view[2] < _FEW:
        generic_spread.var(xp, input, dim, correction=correction, keepdim=keepdim, out=out)
        return
    flat = out.reshape(-1)
    for block, (part,) in in_row_blocks((input.reshape(view[1], view[2]),), ()):
        flat[block] = _squared_deviations(part)
    degrees_of_freedom = view[2] - (1 if correction is None else correction)
    np.divide(out, out.dtype.type(degrees_of_freedom if degrees_of_freedom > 0 else 0), out=out)


@kernel(spread.std, keys.CPU)
def std(xp, input, dim, *, correction, keepdim, out):
    var(xp, input, dim, correction=correction, keepdim=keepdim, out=out)
    np.sqrt(out, out=out)


def _squared_deviations(x: Array) -> Array:
    """The sums of (x - mean) ** 2 over the rows of a block; rows longer than a block are summed in pieces."""
    means = row_sums(x) * (1 / x.shape[1])
    step = BLOCK_BYTES // x.itemsize
    total, residual = np.zeros((2, len(x)))  # the residual sums are not 0, because the means were rounded
    for start in range(0, x.shape[1], step):
        part = x[:, start : start + step]
        centred = scratch("centred", part.shape, part.dtype.char)
        np.copyto(centred, part)
        add_column(centred, -means)
        total += row_dots(centred, centred)
        residual += row_sums(centred)
    return total - residual * residual / x.shape[1]
