"""``gather``, ``scatter`` and ``scatter_add`` of large dense tensors by compiled loops, of which threads take parts.

The generic kernels compute where loops are not there, for other layouts, and where the index is shorter than the others
along a dimension that it does not index.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.indexing import check_index, dimension
from server.engine.cpu.halves import is_half, narrow, widen
from server.engine.device import threads
from server.engine.ops import scattering as generic
from server.engine.ops.indexing import copy_input
from server.engine.registry import kernel
from telegrad_protocol.ops import scattering as ops

Array = Any
_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


class _Parts(NamedTuple):
    """Tensors as (outer, indexed, inner), or as matrices where there is nothing inner."""

    loops: Any
    has_inner: bool
    tensors: list[Array]

    def run(self, table: dict[Any, Any], key: Any) -> None:
        """Call a loop with the outer parts, of which threads take some each."""
        first = self.tensors[0]
        shares = threads.shares_of(len(first), sum([tensor.nbytes for tensor in self.tensors]))
        threads.run_loop(table[key], [tuple([tensor[share] for tensor in self.tensors]) for share in shares])


def _parts(name: str, dim: int, indexed: Array, index: Array, other: Array) -> _Parts | None:
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
    check_index(name, index, indexed.shape[dim], dimension(dim, indexed.shape[dim]))
    shape: tuple[int, ...] = math.prod(outer), -1
    has_inner = math.prod(inner) > 1
    shape = (*shape, math.prod(inner)) if has_inner else shape
    return _Parts(loops, has_inner, [array.reshape(shape) for array in given])


def _as_integers(parts: _Parts) -> tuple[_Parts, int]:
    """The same with integers of an element's size in place of elements, and that size."""
    x, index, other = parts.tensors
    kind = _INTEGERS[x.itemsize]
    return parts._replace(tensors=[x.view(kind), index, other.view(kind)]), x.itemsize


@kernel(ops.gather, keys.CPU, movement=True)
def gather(xp, input, dim, index, *, sparse_grad, out):
    parts = _parts("gather", dim, input, index, out)
    if parts is None:
        generic.gather(xp, input, dim, index, sparse_grad=sparse_grad, out=out)
        return
    parts, size = _as_integers(parts)
    parts.run(parts.loops.gather if parts.has_inner else parts.loops.gather_rows, size)


@kernel(ops.scatter, keys.CPU, movement=True)
def scatter(xp, input, dim, index, src, *, reduce, out):
    parts = _parts("scatter", dim, out, index, src) if reduce is None else None
    if parts is None:
        generic.scatter(xp, input, dim, index, src, reduce=reduce, out=out)
        return
    copy_input(xp, out, input)
    parts, size = _as_integers(parts)
    parts.run(parts.loops.scatter if parts.has_inner else parts.loops.scatter_rows, size)


@kernel(ops.scatter_add, keys.CPU, movement=True)
def scatter_add(xp, input, dim, index, src, *, out):
    parts = _parts("scatter", dim, out, index, src)
    char = "f" if is_half(out) else out.dtype.char
    if parts is None or char not in parts.loops.add:
        generic.scatter_add(xp, input, dim, index, src, out=out)
        return
    copy_input(xp, out, input)
    target, places, values = parts.tensors
    if is_half(out):
        wide = np.empty(target.shape, "f"), places, np.empty(values.shape, "f")
        widen(target, wide[0])
        widen(values, wide[2])
        parts = parts._replace(tensors=list(wide))
    parts.run(parts.loops.add if parts.has_inner else parts.loops.add_rows, char)
    if is_half(out):
        narrow(wide[0], target)
