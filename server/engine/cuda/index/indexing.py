"""Reading where indices point: embedding, index_select, gather, take, index, and one_hot.

All are one kernel over the result's shape, see ``index_text``. Indices are checked as they are met: see ``faults``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from server.engine import keys
from server.engine.array_library.indexing import dimension
from server.engine.checks import Check
from server.engine.cuda.rows.rowwise import byte_offset, dense, fits_grid
from server.engine.cuda.runtime import geometry
from server.engine.cuda.runtime.faults import FAULTS, expect, record_of
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.layout import Size, broadcast_strides, contiguous_strides
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import indexing as ops
from telegrad_protocol.ops import scattering as element_ops

from .index_text import FETCHING, THREADS, fetching

MOVED = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "c128"}
"""What elements of a size are moved as."""
_ITEMS, _WIDE_ITEMS = 4, 2
"""Accesses of a thread, and those that take 16 bytes."""
_MANY = 1 << 22
"""Accesses of which each thread may take twice as many."""
_STRIP = 64
"""Columns that are gone through together: enough for whole cache lines."""
_STRIP_BYTES = 2048
"""The same where all columns have the same indices."""


class Indexed(NamedTuple):
    """Index tensors over an iterated shape, and the dimension of the indexed operand that each counts in."""

    shape: Size
    rest: Size
    """Strides of the indexed operand along the iterated dimensions, zero where an index decides."""
    strides: tuple[Size, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    wraps: bool = False


def vector(meta: Meta) -> tuple[Size, Size]:
    """Shape and strides; those of a vector of one element for a 0-d tensor."""
    return (meta.shape, meta.strides) if meta.ndim else ((1,), (1,))


def along(indexed: Meta, dim: int, index: Meta, shape: Size) -> Indexed:
    """One index per iterated element, along a dimension."""
    own, strides = vector(indexed)
    dim %= len(own)
    rest = tuple([0 if d == dim else step for d, step in enumerate(strides)])
    return Indexed(shape, rest, (vector(index)[1],), (own[dim],), (strides[dim],))


def across(indexed: Meta, dim: int, index: Meta) -> Indexed:
    """One index per part of ``indexed`` along a dimension."""
    own, strides = vector(indexed)
    dim %= len(own)
    count, (step,) = math.prod(index.shape), index.strides or (0,)
    shape = (*own[:dim], count, *own[dim + 1 :])
    rest = tuple([0 if d == dim else stride for d, stride in enumerate(strides)])
    spread = tuple([step if d == dim else 0 for d in range(len(own))])
    return Indexed(shape, rest, (spread,), (own[dim],), (strides[dim],))


def placed(name: str, indexed: Meta, indices: Sequence[Meta | None]) -> Indexed:
    """Several index tensors, broadcast together, in the dimensions where they stand."""
    place = ops.Placement(name, indexed, indices)
    lead, trail = place.at, len(place.shape) - place.at - len(place.block)
    kept = [indexed.strides[d] for d in range(indexed.ndim) if d not in place.dims]
    rest = (*kept[:lead], *(0,) * len(place.block), *kept[lead:])
    given = [index for index in indices if index is not None]
    spread = [(*(0,) * lead, *broadcast_strides(i.shape, i.strides, place.block), *(0,) * trail) for i in given]
    sizes, steps = (tuple([source[d] for d in place.dims]) for source in (indexed.shape, indexed.strides))
    return Indexed(place.shape, rest, tuple(spread), sizes, steps, wraps=True)


def places(indexed: Meta, dims: Sequence[int]) -> tuple[str, ...]:
    """How messages call dimensions."""
    shape = vector(indexed)[0]
    return tuple([dimension(dim % len(shape), shape[dim % len(shape)]) for dim in dims])


def in_strips(layout: geometry.Layout, itemsize: int) -> geometry.Layout:
    """The layout gone through in strips of columns, where indices point into the columns.

    What the indices of a strip point at stays in the cache until the next strip.
    """
    shape, (_, rest, *indices) = layout.shape, layout.strides
    fixed = [d for d, step in enumerate(rest) if not step]
    if not fixed or not rest[-1]:
        return layout
    width = _STRIP if any(strides[-1] for strides in indices) else _STRIP_BYTES // itemsize
    if shape[-1] % width or shape[-1] == width:
        return layout
    at = fixed[0]

    def split(numbers: Size, outer: int, inner: int) -> Size:
        return (*numbers[:at], outer, *numbers[at:-1], inner)

    strides = [split(steps, steps[-1] * width, steps[-1]) for steps in layout.strides]
    return geometry.Layout(split(shape, shape[-1] // width, width), tuple(strides), layout.offsets)


class Iteration:
    """The layout of a kernel over an iterated shape: the other operand, the indexed one, the index tensors."""

    def __init__(self, placement: Indexed, other: Size, other_offset: int, indexed_offset: int, itemsize: int) -> None:
        offsets = [other_offset, indexed_offset, *(0 for _ in placement.strides)]
        strides = [other, placement.rest, *placement.strides]
        self.layout = in_strips(geometry.collapse(placement.shape, strides, offsets), itemsize)
        self.width = self._width(placement.steps, itemsize)
        self.count = self.layout.numel // self.width
        self.items = _WIDE_ITEMS if self.width * itemsize >= 16 else _ITEMS if self.count < _MANY else 2 * _ITEMS
        self.grid = -(-self.count // (THREADS * self.items))
        self.type = geometry.layout_type(self.layout)
        self.sizes = [("i64", number) for pair in zip(placement.sizes, placement.steps, strict=True) for number in pair]

    def _width(self, steps: Sequence[int], itemsize: int) -> int:
        """Elements that lie side by side wherever indices point, and may move in one access."""
        shape, strides = self.layout.shape, self.layout.strides
        if not shape or strides[1][-1] != 1 or strides[0][-1] not in (0, 1) or any(s[-1] for s in strides[2:]):
            return 1
        numbers = [shape[-1], *steps, *strides[1][:-1], self.layout.offsets[1]]
        if strides[0][-1] == 1:
            numbers += [*strides[0][:-1], self.layout.offsets[0]]
        else:
            return 1
        return math.gcd(max(16 // itemsize, 1), *numbers)

    @property
    def constants(self) -> list[Any]:
        """The parameters that follow the pointers."""
        return [geometry.packed(self.layout, self.width), ("i64", self.count), *self.sizes]


def _fetch(
    request: Request, placement: Indexed, source: int, positions: Sequence[Any], metas: Sequence[Meta], check: Check
) -> Launch | None:
    """The launch that reads argument ``source`` where index tensors at ``positions`` point.

    A position is that of an argument, or a pair: of a list among the arguments, and in it.
    """
    out, indexed = request.outs[0], request.args[source]
    if not out.numel:
        return lambda args, outs: None
    strides = out.strides if out.shape == placement.shape else contiguous_strides(placement.shape)
    iteration = Iteration(placement, strides, out.offset, indexed.offset, indexed.dtype.itemsize)
    if not fits_grid(iteration.grid):
        return None
    kinds = tuple([CTYPES[meta.dtype] for meta in metas])
    element = MOVED[indexed.dtype.itemsize]
    text = fetching(element, iteration.width, iteration.type, kinds, iteration.items, placement.wraps)
    kernel = load(assembled(PRELUDE, geometry.INDEXING, FAULTS, FETCHING, text), "run")
    fire = kernel.prepare(iteration.grid, THREADS, "PP" + "P" * len(kinds) + "PQ", iteration.constants)
    backend, o, x = request.backend, byte_offset(out), byte_offset(indexed)
    if len(positions) == 1 and isinstance(positions[0], int):
        return _with_one_index(backend, fire, source, positions[0], (o, x, byte_offset(metas[0])), check)
    offsets = [byte_offset(meta) for meta in metas]

    def launch(args: Any, outs: Any) -> None:
        record, tag = record_of(backend), expect(check)
        pointers = [args[a][b].storage.block.pointer + shift for (a, b), shift in zip(positions, offsets, strict=True)]
        fire(
            backend.stream, outs[0].storage.block.pointer + o, args[source].storage.block.pointer + x, *pointers,
            record.pointer, tag,
        )  # fmt: skip
        if tag:
            record.mark()

    return launch


def _with_one_index(
    backend: Any, fire: Any, source: int, position: int, offsets: tuple[int, int, int], check: Check
) -> Launch:
    o, x, i = offsets

    def launch(args: Any, outs: Any) -> None:
        record, tag = record_of(backend), expect(check)
        fire(
            backend.stream, outs[0].storage.block.pointer + o, args[source].storage.block.pointer + x,
            args[position].storage.block.pointer + i, record.pointer, tag,
        )  # fmt: skip
        if tag:
            record.mark()

    return launch


@prepares(ops._embedding, keys.CUDA, deferrable_unchecked=True)
def embedding(request: Request) -> Launch | None:
    index, weight = request.args[:2]
    rest = (*(0,) * index.ndim, weight.strides[1])
    placement = Indexed(request.outs[0].shape, rest, ((*index.strides, 0),), weight.shape[:1], weight.strides[:1])
    return _fetch(request, placement, 1, [0], [index], Check("embedding", (f"a table of {weight.shape[0]} rows",)))


@prepares(ops.index_select, keys.CUDA, deferrable_unchecked=True)
def index_select(request: Request) -> Launch | None:
    input, dim, index = request.args
    check = Check("index_select", places(input, [dim]))
    return _fetch(request, across(input, dim, index), 0, [2], [index], check)


@prepares(element_ops.gather, keys.CUDA, deferrable_unchecked=True)
def gather(request: Request) -> Launch | None:
    input, dim, index, _ = request.args
    if not index.numel:
        return lambda args, outs: None
    placement = along(input, dim, index, vector(index)[0])
    return _fetch(request, placement, 0, [2], [index], Check("gather", places(input, [dim])))


@prepares(element_ops.take, keys.CUDA, deferrable_unchecked=True)
def take(request: Request) -> Launch | None:
    input, index = request.args
    given = input.like()
    shape = vector(index)[0]
    placement = Indexed(shape, (0,) * len(shape), (vector(index)[1],), (input.numel,), (1,), wraps=True)
    flat = request._replace(args=(given if not input.is_contiguous else input, index))
    launch = _fetch(flat, placement, 0, [1], [index], Check("take", (f"{input.numel} elements",)))
    if launch is None or input.is_contiguous:
        return launch
    return lambda args, outs: launch((dense(args[0]), args[1]), outs)


@prepares(ops.index, keys.CUDA, deferrable_unchecked=True)
def index(request: Request) -> Launch | None:
    input, indices = request.args
    if ops.has_masks(indices):
        return None
    at = [d for d, index in enumerate(indices) if index is not None]
    placement = placed("index", input, indices)
    check = Check("index", places(input, at))
    return _fetch(request, placement, 0, [(1, d) for d in at], [indices[d] for d in at], check)


_ONE_HOT = r"""
extern "C" __global__ void __launch_bounds__(256) run(
    i64* out, const i64* in, fault_record* record, u64 tag, i64 classes, i64 count
) {
    i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    i64 target = in[i / classes], of_class = i % classes;
    if (of_class == 0 && (u64)target >= (u64)classes) report(record, tag, target, 0);
    out[i] = target == of_class;
}
"""


@prepares(ops.one_hot, keys.CUDA)
def one_hot(request: Request) -> Launch | None:
    index, classes = request.args
    (out,) = request.outs
    if not index.is_contiguous or not out.is_contiguous or out.dtype is not dtypes.int64:
        return None
    if not out.numel:
        return lambda args, outs: None
    grid = -(-out.numel // 256)
    kernel = load(f"{PRELUDE}{FAULTS}{_ONE_HOT}", "run")
    fire = kernel.prepare(grid, 256, "PPPQ", [("i64", classes), ("i64", out.numel)])
    check, backend = Check("one_hot", (f"{classes} classes",)), request.backend
    o, i = byte_offset(out), byte_offset(index)

    def launch(args: Any, outs: Any) -> None:
        record, tag = record_of(backend), expect(check)
        fire(
            backend.stream, outs[0].storage.block.pointer + o, args[0].storage.block.pointer + i, record.pointer,
            tag,
        )  # fmt: skip
        if tag:
            record.mark()

    return launch
