"""``gather``, ``scatter`` and their relatives on large dense tensors by compiled loops, of which threads take parts.

The generic kernels compute where loops are not there, for other layouts, where the index is shorter than the others
along a dimension that it does not index, and where a position is out of range, which they refuse.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from server.engine import compiled, keys
from server.engine.cpu.copies import copy
from server.engine.cpu.halves import is_half, narrow, widen
from server.engine.device import threads
from server.engine.ops import indexing as generic_indexing
from server.engine.ops import scattering as generic
from server.engine.registry import kernel
from telegrad_protocol.ops import indexing
from telegrad_protocol.ops import scattering as ops

Array = Any
_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_LINE = 8
"""Words of a cache line, so that threads raise flags in lines of their own."""


class _Parts(NamedTuple):
    """Tensors as (outer, indexed, inner), or as matrices where there is nothing inner, and where positions are."""

    loops: Any
    has_inner: bool
    indexed: Array
    index: Array
    other: Array

    def is_done(self, table: dict[Any, Any], key: Any, *tensors: Array) -> bool:
        """Whether a loop has moved all elements, of which threads take some each: all positions are within bounds."""
        blocks = -(-self.index.shape[2] // self.loops.WIDTH) if self.has_inner else 1
        units, nbytes = len(self.index) * blocks, sum([tensor.nbytes for tensor in tensors])
        shares = threads.shares_of(units, nbytes)
        flags = np.zeros((len(shares), _LINE), np.int64)
        calls = [(*tensors, share.start, share.stop, flag) for share, flag in zip(shares, flags, strict=True)]
        threads.run_loop(table[key], calls)
        return not flags.any()


def _parts(dim: int, indexed: Array, index: Array, other: Array) -> _Parts | None:
    """The tensor that is indexed, the index, and what has its shape, if the loops take them."""
    given = indexed, index, other
    if index.size < compiled.LEAST or index.dtype != np.int64 or index.ndim != indexed.ndim:
        return None
    if index.shape != other.shape or indexed.dtype != other.dtype or indexed.itemsize not in _INTEGERS:
        return None
    dim %= index.ndim
    outer, inner = index.shape[:dim], index.shape[dim + 1 :]
    is_whole = (*indexed.shape[:dim], *indexed.shape[dim + 1 :]) == outer + inner
    loops = compiled.kernels("tensors.scatters") if is_whole and all([a.flags.c_contiguous for a in given]) else None
    if loops is None:
        return None
    shape: tuple[int, ...] = math.prod(outer), -1
    has_inner = math.prod(inner) > 1
    shape = (*shape, math.prod(inner)) if has_inner else shape
    places = index.view(np.uint64)
    return _Parts(loops, has_inner, *[array.reshape(shape) for array in (indexed, places, other)])


@kernel(ops.gather, keys.CPU, movement=True)
def gather(xp, input, dim, index, *, sparse_grad, out):
    parts = _parts(dim, input, index, out)
    if parts is None or not _gathered(parts):
        generic.gather(xp, input, dim, index, sparse_grad=sparse_grad, out=out)


def _gathered(parts: _Parts) -> bool:
    """Gather; False where a position is beyond the dimension."""
    kind, size = _INTEGERS[parts.indexed.itemsize], parts.indexed.itemsize
    x, index, out = parts.indexed.view(kind), parts.index, parts.other.view(kind)
    if parts.has_inner:
        return parts.is_done(parts.loops.gather, size, x, index, out)
    if len(x) > 1:
        return parts.is_done(parts.loops.gather_rows, size, x, index, out)
    shares = threads.shares_of(out.size, index.nbytes + out.nbytes)
    flags = np.zeros((len(shares), _LINE), np.int64)
    pieces = [(x, index[:, share], out[:, share], 0, 1, flag) for share, flag in zip(shares, flags, strict=True)]
    threads.run_loop(parts.loops.gather_rows[size], pieces)
    return not flags.any()


@kernel(ops.scatter, keys.CPU, movement=True)
def scatter(xp, input, dim, index, src, *, reduce, out):
    parts = _parts(dim, out, index, src) if reduce is None and _takes(input, out) else None
    if parts is None or not _is_within(parts, input, out):
        generic.scatter(xp, input, dim, index, src, reduce=reduce, out=out)
        return
    kind, loops = _INTEGERS[out.itemsize], parts.loops
    x, target, values = (array.view(kind) for array in (input.reshape(parts.indexed.shape), parts.indexed, parts.other))
    table = loops.scatter if parts.has_inner else loops.scatter_rows
    if not parts.is_done(table, out.itemsize, x, parts.index, values, target):
        generic.scatter(xp, input, dim, index, src, reduce=reduce, out=out)


def _takes(input: Array, out: Array) -> bool:
    """Whether loops may copy the input, or the result is the input."""
    return input is out or (bool(input.flags.c_contiguous) and input.dtype is out.dtype and input.shape == out.shape)


def _is_within(parts: _Parts, input: Array, out: Array) -> bool:
    """Whether all positions are within bounds; looked at first only where elements would be changed in place."""
    if input is not out:
        return True
    return int(parts.index.max()) < parts.indexed.shape[1]


@kernel(ops.scatter_add, keys.CPU, movement=True)
def scatter_add(xp, input, dim, index, src, *, out):
    parts = _parts(dim, out, index, src) if _takes(input, out) else None
    char = "f" if is_half(out) else out.dtype.char
    if parts is None or char not in parts.loops.add or not _added(parts, input, out, char):
        generic.scatter_add(xp, input, dim, index, src, out=out)


def _added(parts: _Parts, input: Array, out: Array, char: str) -> bool:
    """Add to the input's elements; False where a position is beyond the dimension."""
    if not _is_within(parts, input, out):
        return False
    table = parts.loops.add if parts.has_inner else parts.loops.add_rows
    x, target, values = input.reshape(parts.indexed.shape), parts.indexed, parts.other
    if not is_half(out):
        return parts.is_done(table, char, x, parts.index, values, target)
    wide, added = np.empty(target.shape, "f"), np.empty(values.shape, "f")
    widen(x, wide)
    widen(values, added)
    is_done = parts.is_done(table, char, wide, parts.index, added, wide)
    if is_done:
        narrow(wide, target)
    return is_done


@kernel(indexing.index_add, keys.CPU, movement=True)
def index_add(xp, input, dim, index, source, *, alpha, out):
    if out is not input:
        copy(input, out)
    generic_indexing.index_add(xp, out, dim, index, source, alpha=alpha, out=out)
