"""Extremes of rows of row-major tensors, and where they are; threads take some rows, or parts of a single long one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.cpu.fallback import call_generic
from server.engine.cpu.halves import is_half, narrow
from server.engine.cpu.memory import scratch
from server.engine.cpu.reduce import LARGE, STRETCH, Dims, matrix_view
from server.engine.cpu.row_loops import loops_for, run_rows
from server.engine.cpu.rows import in_row_blocks, is_fast
from server.engine.device import threads
from server.engine.ops import reduce as generic
from server.engine.registry import kernel
from telegrad_protocol.ops import reduce as ops

Array = Any
Find = Callable[..., Any]
_SHORT = 128
"""Rows shorter than this are transposed and compared as columns."""
_FEW = 16
"""Rows are folded in half until they are at most this long."""
_LONG = 2048
"""NumPy compares elements of rows from this length on in less time than compiled loops, which threads share."""


def _extreme(function: Any, x: Array, dim: Dims, out: Array) -> bool:
    """Reduce rows with ``maximum`` or ``minimum``; False, and nothing written, where the generic kernel serves."""
    view = matrix_view(x.shape, dim) if out.flags.c_contiguous else None
    if view is None or view[0] != 1 or view[2] < 2:
        return False
    rows, flat = x.reshape(view[1], view[2]) if x.flags.c_contiguous else x, out.reshape(-1)
    pays = _FEW <= view[2] < _LONG or is_half(x) or (threads.count() > 1 and x.nbytes >= LARGE)
    loops = loops_for(rows) if pays else None
    if loops is not None:
        _extreme_by_loops(loops, function, rows, flat)
        return True
    if not is_fast(x) or view[2] >= _SHORT or view[1] < _SHORT:
        return False
    for block, (part,) in in_row_blocks((rows,), ()):
        function.reduce(_as_columns(function, part), axis=0, out=flat[block])
    return True


def _extreme_by_loops(loops: Any, function: Any, rows: Array, out: Array) -> None:
    """Write the extremes of rows, which are looked for in parts where a single one is long."""
    loop = (loops.row_maxima if function is np.maximum else loops.row_minima)[rows.dtype.char]
    length = rows.shape[1]
    whole = length - length % STRETCH if len(rows) == 1 else 0
    parts = [rows[:, :whole].reshape(-1, STRETCH), rows[:, whole:]] if whole else [rows]
    found = []
    for part in parts:
        extremes = np.empty(len(part), "f")
        if part.size:
            run_rows(loop, (part,), lambda block, x, extremes=extremes: (x, extremes[block]))
            found.append(extremes)
    if whole:
        found = [function.reduce(np.concatenate(found), keepdims=True)]
    narrow(found[0], out) if is_half(out) else np.copyto(out, found[0])


def _as_columns(function: Any, part: Array) -> Array:
    """The rows, folded in half with ``function`` until they are short, as columns."""
    while part.shape[1] > _FEW and part.shape[1] % 2 == 0:
        half = part.shape[1] // 2
        part = function(part[:, :half], part[:, half:], out=scratch(f"half {half}", (len(part), half), part.dtype.char))
    columns = scratch("columns", part.shape[::-1], part.dtype.char)
    np.copyto(columns, part.T)
    return columns


@kernel(ops.amax, keys.CPU, movement=True)
def amax(xp, input, dim, keepdim, *, out):
    if not _extreme(np.maximum, input, dim, out):
        call_generic(generic.amax, input, dim, keepdim, out=out)


@kernel(ops.amin, keys.CPU, movement=True)
def amin(xp, input, dim, keepdim, *, out):
    if not _extreme(np.minimum, input, dim, out):
        call_generic(generic.amin, input, dim, keepdim, out=out)


@kernel(ops.max, keys.CPU, movement=True)
def max(xp, input, *, out):
    if not _extreme(np.maximum, input, None, out):
        call_generic(generic.max, input, out=out)


@kernel(ops.min, keys.CPU, movement=True)
def min(xp, input, *, out):
    if not _extreme(np.minimum, input, None, out):
        call_generic(generic.min, input, out=out)


def _found(find: Find, x: Array, dim: Dims) -> tuple[Array, Array] | None:
    """A large tensor's rows and where the extreme of each is, the first of equal ones; None where one thread serves."""
    is_shared = x.nbytes >= LARGE and x.flags.c_contiguous and threads.count() > 1
    view = matrix_view(x.shape, dim) if is_shared else None
    if view is None or view[0] != 1 or view[2] < _FEW:
        return None
    rows = x.reshape(view[1], view[2])
    if len(rows) == 1:
        return rows, _found_in_row(find, rows[0])
    places, shares = np.empty(len(rows), np.int64), threads.shares_of(len(rows), x.nbytes)

    def run(number: int) -> None:
        find(rows[shares[number]], axis=1, out=places[shares[number]])

    threads.run(run, len(shares))
    return rows, places


def _found_in_row(find: Find, row: Array) -> Array:
    """The place of the extreme of a single row, as a vector."""
    parts = threads.pieces_of(len(row), row.nbytes, threads.LEAST_BYTES)
    places = np.empty(len(parts), np.int64)

    def run(number: int) -> None:
        places[number] = parts[number].start + find(row[parts[number]])

    threads.run(run, len(parts))
    best = find(row[places])
    return places[best : best + 1]


def _write_place(find: Find, x: Array, dim: Dims, out: Array) -> bool:
    found = _found(find, x, dim)
    if found is not None:
        out[...] = found[1].reshape(out.shape)
    return found is not None


def _write_extreme(find: Find, x: Array, dim: Dims, out: tuple[Array, Array]) -> bool:
    found = _found(find, x, dim)
    if found is not None:
        values, indices = out
        rows, places = found
        values[...] = rows[np.arange(len(rows)), places].reshape(values.shape)
        indices[...] = places.reshape(indices.shape)
    return found is not None


@kernel(ops.argmax, keys.CPU)
def argmax(xp, input, dim, keepdim, *, out):
    if not _write_place(np.argmax, input, dim, out):
        generic.argmax(xp, input, dim, keepdim, out=out)


@kernel(ops.argmin, keys.CPU)
def argmin(xp, input, dim, keepdim, *, out):
    if not _write_place(np.argmin, input, dim, out):
        generic.argmin(xp, input, dim, keepdim, out=out)


@kernel(ops.max_dim, keys.CPU)
def max_dim(xp, input, dim, keepdim, *, out):
    if not _write_extreme(np.argmax, input, dim, out):
        generic.max_dim(xp, input, dim, keepdim, out=out)


@kernel(ops.min_dim, keys.CPU)
def min_dim(xp, input, dim, keepdim, *, out):
    if not _write_extreme(np.argmin, input, dim, out):
        generic.min_dim(xp, input, dim, keepdim, out=out)
