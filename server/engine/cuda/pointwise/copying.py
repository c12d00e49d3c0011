"""Copies and conversions: elements as they are, or cast, from any layout to any other.

Where source and target are contiguous along different dimensions, tiles go through shared memory so that both sides
move whole lines. All other copies are element-wise kernels. Copies without a cast move bits.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from server.engine import keys
from server.engine.cuda.runtime.geometry import INDEXING, VECTOR_BYTES, Layout, blocks, layout_of, packed
from server.engine.cuda.runtime.launch import load, nothing
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Backend, Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import MAX_DIMENSIONS, Meta
from telegrad_protocol.ops import creation, pointwise, rearrange
from telegrad_protocol.ops.layers import nn

from .expressions import Chosen
from .pointwise import Fire, computing, elementwise, generated, launcher

_BITS = {1: dtypes.uint8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
_SHORTEST_SIDE = 32
_THREADS = 256


def as_bits(meta: Meta) -> Meta:
    """The same memory, seen as integers of the same size where there are such."""
    bits = _BITS.get(meta.dtype.itemsize, meta.dtype)
    return Meta.of(meta.shape, bits, meta.device, meta.strides, meta.offset)


def copied(target: Meta, source: Meta) -> tuple[Fire, list[int]]:
    """The launch that copies one layout into another, cast and broadcast, and where both begin in memory, in bytes."""
    if target.dtype is source.dtype:
        target, source = as_bits(target), as_bits(source)
    layout = layout_of(target.shape, [target, source])
    crossing = _crossing(layout)
    if crossing is None:
        fire, _, offsets = generated(target, {"input": source}, Chosen("input"), computing(source.dtype))
        return fire, offsets
    fire = _transposing(target, source, layout, crossing)
    return fire, [target.offset * target.dtype.itemsize, source.offset * source.dtype.itemsize]


def copying(backend: Backend, target: Meta, source: Meta, at: int | None = None, index: int = 0) -> Launch:
    """A launch that copies argument number ``index`` into the first output; with ``at``, into that argument."""
    if not target.numel:
        return nothing
    fire, offsets = copied(target, source)
    return launcher(fire, backend, [index], offsets, at)


def _crossing(layout: Layout) -> int | None:
    """The dimension that the source is contiguous along, if it is not the target's and both are long."""
    if len(layout.shape) < 2 or layout.inner(0) != 1 or layout.inner(1) <= 1:
        return None
    dims = [d for d, step in enumerate(layout.strides[1]) if step == 1]
    is_long = dims and min(layout.shape[dims[0]], layout.shape[-1]) >= _SHORTEST_SIDE
    return dims[0] if is_long else None


class Tile(NamedTuple):
    """How a kernel moves tiles: types, their edge, vectors on both sides, and the layout of all other dimensions."""

    source: str
    computed: str
    target: str
    edge: int
    width_in: int
    width_out: int
    layout: str


def _transposing(target: Meta, source: Meta, layout: Layout, along: int) -> Fire:
    (target_steps, source_steps), last = layout.strides, len(layout.shape) - 1
    others = [d for d in range(len(layout.shape)) if d not in (along, last)]
    batch = Layout(
        tuple([layout.shape[d] for d in others]), tuple([tuple([s[d] for d in others]) for s in layout.strides]), (0, 0)
    )
    rows, columns = layout.shape[along], layout.shape[-1]
    reach_in = [source_steps[d] for d in range(len(layout.shape)) if d != along] + [rows, source.offset]
    reach_out = [target_steps[d] for d in range(last)] + [columns, target.offset]
    edge = 64 if target.dtype.itemsize < 8 else 32
    kind = "wide" if layout.is_wide else "narrow"
    tile = Tile(
        CTYPES[source.dtype], CTYPES[computing(source.dtype)], CTYPES[target.dtype],
        edge, _width(source.dtype, reach_in, edge), _width(target.dtype, reach_out, edge),
        f"{kind}_layout<{max(len(others), 1)}, 2>",
    )  # fmt: skip
    across, down = blocks(columns, tile.edge), blocks(rows, tile.edge)
    constants: list[tuple[str, int] | bytes] = [
        ("i64", rows), ("i64", columns), ("i64", target_steps[along]), ("i64", source_steps[last]),
        ("unsigned", across), ("unsigned", down), packed(batch, wide=layout.is_wide),
    ]  # fmt: skip
    return load(assembled(PRELUDE, INDEXING, _text(tile)), "transposing").prepare(
        across * down * batch.numel, _THREADS, "PP", constants
    )


def _width(dtype: DType, reach: list[int], edge: int) -> int:
    """Elements of an access that divides all steps; no more than give each thread one."""
    width = min(VECTOR_BYTES // dtype.itemsize, edge * edge // _THREADS)
    while any(step % width for step in reach):
        width //= 2
    return width


@functools.lru_cache(maxsize=1 << 10)
def _text(tile: Tile) -> str:
    source, computed, target, edge, width_in, width_out, layout = tile
    return f"""
// thread n of a tile of rows cut into vectors: 8 lanes of a warp, or all if they hold one element, move along a row
template <int WIDTH> __device__ __forceinline__ void place(int n, int& row, int& start) {{
    constexpr int lanes = WIDTH == 1 ? 32 : {edge} / WIDTH < 8 ? {edge} / WIDTH : 8, warps = {edge} / WIDTH / lanes;
    const int lane = n % 32, warp = n / 32;
    row = lane / lanes + warp / warps * (32 / lanes);
    start = (lane % lanes + warp % warps * lanes) * WIDTH;
}}
extern "C" __global__ void __launch_bounds__({_THREADS}) transposing({target}* out, const {source}* in, i64 rows,
    i64 columns, i64 step_out, i64 step_in, unsigned across, unsigned down, const {layout} batch) {{
    typedef {layout}::index index;
    constexpr int loads = {edge * edge} / {width_in} / {_THREADS}, stores = {edge * edge} / {width_out} / {_THREADS};
    __shared__ {target} held[{edge}][{edge} + (sizeof({target}) < 4 ? 4 / sizeof({target}) : 1)];
    const unsigned tile = blockIdx.x % (across * down);
    const i64 column0 = (i64)(tile % across) * {edge}, row0 = (i64)(tile / across) * {edge};
    index at[2];
    batch.find((index)(blockIdx.x / (across * down)), at);
    out += at[0] + row0 * step_out + column0;
    in += at[1] + column0 * step_in + row0;
    vec<{source}, {width_in}> read[loads];
#pragma unroll
    for (int k = 0; k < loads; ++k) {{
        int column, row;
        place<{width_in}>(threadIdx.x + k * {_THREADS}, column, row);
        if (column0 + column < columns && row0 + row < rows)
            read[k] = *(const vec<{source}, {width_in}>*)(in + column * step_in + row);
    }}
#pragma unroll
    for (int k = 0; k < loads; ++k) {{
        int column, row;
        place<{width_in}>(threadIdx.x + k * {_THREADS}, column, row);
#pragma unroll
        for (int j = 0; j < {width_in}; ++j)
            held[column][row + j] = cast<{target}>(cast<{computed}>(read[k].at[j]));
    }}
    __syncthreads();
#pragma unroll
    for (int k = 0; k < stores; ++k) {{
        int row, column;
        place<{width_out}>(threadIdx.x + k * {_THREADS}, row, column);
        if (column0 + column < columns && row0 + row < rows) {{
            vec<{target}, {width_out}> moved;
#pragma unroll
            for (int j = 0; j < {width_out}; ++j) moved.at[j] = held[column + j][row];
            *(vec<{target}, {width_out}>*)(out + row * step_out + column) = moved;
        }}
    }}
}}
"""


@prepares(creation.clone, keys.CUDA, deferrable=True)
@prepares(rearrange._in_layout, keys.CUDA, deferrable=True)
@prepares(pointwise._to_copy, keys.CUDA, deferrable=True)
def copy(request: Request) -> Launch:
    """A copy in another layout, or of another type."""
    return copying(request.backend, request.outs[0], request.args[0])


@prepares(creation.copy_, keys.CUDA, deferrable=True)
def copy_over(request: Request) -> Launch:
    """Overwrite a tensor; by way of a copy where both share memory."""
    target, source = request.args[:2]
    backend = request.backend
    launch = copying(backend, target, source, at=0, index=1)
    if not target.numel or target is source:
        return launch

    def checked(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        if args[0].storage is args[1].storage:
            staged = backend.empty(source.like())
            copying(backend, staged.meta, source)((args[1],), (staged,))
            copying(backend, target, staged.meta, at=0, index=1)((args[0], staged), ())
        else:
            launch(args, outs)

    return checked


@prepares(rearrange.repeat, keys.CUDA, deferrable=True)
def repeat(request: Request) -> Launch | None:
    """Copies side by side: the result is seen with two dimensions for each of its own, how often and how long."""
    source, repeats = request.args
    out = request.outs[0]
    if 2 * out.ndim > MAX_DIMENSIONS:
        return None
    lengths = (1,) * (out.ndim - source.ndim) + source.shape
    shape = tuple([n for pair in zip(repeats, lengths, strict=True) for n in pair])
    steps = [(step * length, step) for step, length in zip(out.strides, lengths, strict=True)]
    spread = out.view(shape, tuple([step for pair in steps for step in pair]))
    once = tuple([n for length in lengths for n in (1, length)])
    held = (0,) * (out.ndim - source.ndim) + source.strides
    seen = source.view(once, tuple([step for length_step in held for step in (0, length_step)]))
    return copying(request.backend, spread, seen)


@prepares(nn.constant_pad_nd, keys.CUDA, deferrable=True)
def pad(request: Request) -> Launch:
    """The value everywhere, then what is left of the input in its place."""
    source, pads, value = request.args
    out, backend = request.outs[0], request.backend
    margins = [(pads[2 * k], pads[2 * k + 1]) for k in range(len(pads) // 2)]
    inside, left = _cut(out, margins, 1), _cut(source, margins, -1)
    fill = elementwise(backend, out, {"value": value}, Chosen("value"), out.dtype)
    place = copying(backend, inside, left)
    if inside.numel == out.numel:
        return place

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        fill(args, outs)
        place(args, outs)

    return launch


def _cut(meta: Meta, margins: list[tuple[int, int]], sign: int) -> Meta:
    """What lies inside of margins of the given sign; they come for the last dimension first."""
    shape, offset = list(meta.shape), meta.offset
    for dim, pair in zip(reversed(range(meta.ndim)), margins, strict=False):
        before, after = (max(sign * margin, 0) for margin in pair)
        shape[dim] -= before + after
        offset += before * meta.strides[dim]
    return meta.view(shape, meta.strides, offset)
