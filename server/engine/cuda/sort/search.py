"""Searching in sorted lines as prepared kernels: one thread halves a line for one element."""

from __future__ import annotations

import struct
from typing import Any

from server.engine import keys
from server.engine.cuda.reduce.layout import flag, index_types, needs_wide
from server.engine.cuda.runtime.geometry import INDEXING, Layout, blocks, collapse, packed
from server.engine.cuda.runtime.launch import load, nothing
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import sorting as ops

from .launch import order_type
from .sort_text import ORDER

_THREADS = 256

TEXT = r"""
template <class O, class R, bool RIGHT>
DEV void search(R* out, const typename O::U* sought, const typename O::U* sorted, const lines_t& lines,
                index_t count, index_t length, index_t step) {
    index_t i = (index_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    index_t at[3];  // of the result, the element, and the line
    lines.find(i, at);
    typename O::U key = O::key(sought[at[1]]);
    index_t low = 0, high = length;
    while (low < high) {
        index_t middle = low + (high - low) / 2;
        typename O::U other = O::key(sorted[at[2] + middle * step]);
        if (RIGHT ? other <= key : other < key) low = middle + 1;
        else high = middle;
    }
    out[at[0]] = (R)low;
}
"""


def _search(request: Request, line: Meta, input: Any, right: bool, places: tuple[int, int]) -> Launch | None:
    """A launch that finds the place of each element of ``input``; the same types only, tensors only."""
    out = request.outs[0]
    if not isinstance(input, Meta) or input.dtype is not line.dtype or line.numel == 0:
        return None
    if not out.numel:
        return nothing
    along = (*line.strides[:-1], 0) if line.ndim > 1 else (0,) * input.ndim
    layout = collapse(input.shape, [out.strides, input.strides, along], [out.offset, input.offset, line.offset])
    is_wide = needs_wide(out, input, line)
    fire = _kernel(layout, line, out, right, is_wide)
    targets, elements, lines = (m.offset * m.dtype.itemsize for m in (out, input, line))
    at, sought = places

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        fire(
            request.backend.stream,
            outs[0].storage.block.pointer + targets,
            args[sought].storage.block.pointer + elements,
            args[at].storage.block.pointer + lines,
        )

    return launch


def _kernel(layout: Layout, line: Meta, out: Meta, right: bool, is_wide: bool) -> Any:
    text = "\n".join((
        PRELUDE, INDEXING, index_types(is_wide, lines_t=layout), ORDER, TEXT,
        f"typedef {order_type(line.dtype, False)} O;",
        f'extern "C" __global__ void find({CTYPES[out.dtype]}* out, const O::U* sought, const O::U* sorted,',
        "    const __grid_constant__ lines_t lines, index_t count, index_t length, index_t step) {",
        f"    search<O, {CTYPES[out.dtype]}, {flag(right)}>",
        "        (out, sought, sorted, lines, count, length, step);",
        "}\n",
    ))  # fmt: skip
    index = "=q" if is_wide else "=I"
    numbers = [struct.pack(index, n) for n in (layout.numel, line.shape[-1], line.strides[-1])]
    constants = [packed(layout, wide=is_wide), *numbers]
    return load(text, "find").prepare(blocks(layout.numel, _THREADS), _THREADS, "PPP", constants)


@prepares(ops.searchsorted, keys.CUDA, deferrable=True)
def searchsorted(request: Request) -> Launch | None:
    named = request.named
    if named["sorter"] is not None:
        return None
    right = named["right"] or named["side"] == "right"
    return _search(request, named["sorted_sequence"], named["input"], right, (0, 1))


@prepares(ops.bucketize, keys.CUDA, deferrable=True)
def bucketize(request: Request) -> Launch | None:
    named = request.named
    return _search(request, named["boundaries"], named["input"], bool(named["right"]), (1, 0))
