"""Attention's forward pass by our own kernel for Hopper: halves, heads of 64 or 128, no mask and no dropout.

Where there are too few tiles of queries for all multiprocessors, cuDNN's kernels, which cut them finer, are faster.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from server.engine.cuda.runtime.compiler import EXACT
from server.engine.cuda.runtime.hopper_text import HOPPER
from server.engine.cuda.runtime.launch import Launch as Fire
from server.engine.cuda.runtime.launch import architecture, load, multiprocessors, pointer
from server.engine.cuda.runtime.prelude import CTYPES
from server.engine.cuda.runtime.tile_maps import maps_of
from server.engine.operators import Request
from server.engine.ops.layers.attention import suits_cudnn
from server.engine.value import Launch, Value
from telegrad_protocol.meta import Meta

from .hopper_kernel_text import BLOCKS, CAPACITIES, GROUP_ROWS, TILINGS, text_of
from .hopper_order import Order, Walk, order_of

_LEAST_ROWS = 128
"""The fewest rows: with fewer, too much of a tile is empty."""
LEAST_BALANCE = 0.9
"""The least average utilization of multiprocessors: below, smaller tiles are faster."""


class Balanced(NamedTuple):
    """A launch and its balance: the average utilization of multiprocessors, above 0 and at most 1."""

    launch: Launch
    balance: float


def _suits(query: Meta, key: Meta, value: Meta, output: Meta, scale: float) -> bool:
    rows, width = query.shape[2:]
    if width not in TILINGS or value.shape[3] != width or not suits_cudnn(query, key, value):
        return False
    fits = max(rows, key.shape[2]) < 1 << 31 and _row_tiles(query) <= CAPACITIES[-1]
    return fits and rows >= _LEAST_ROWS and 0 < scale < math.inf and suits_cudnn(output, key, value)


def _row_tiles(query: Meta) -> int:
    return -(-query.shape[2] // TILINGS[query.shape[3]].rows)


def _before(query: Meta) -> int:
    """Rows of the first tile, in whole groups, that are before the first row."""
    spare = _row_tiles(query) * TILINGS[query.shape[3]].rows - query.shape[2]
    return spare // GROUP_ROWS * GROUP_ROWS


def _orders(query: Meta, key: Meta, is_causal: bool, blocks: int) -> Iterator[tuple[int, Order]]:
    """For each launch the first of all samples' heads, and the order of its tiles."""
    tiling, row_tiles, columns = TILINGS[query.shape[3]], _row_tiles(query), key.shape[2]
    ends = [(tile + 1) * tiling.rows - _before(query) if is_causal else columns for tile in range(row_tiles)]
    seen = tuple(-(-min(end, columns) // tiling.columns) for end in ends)
    head_bytes = max(2 * columns * query.shape[3] * query.dtype.itemsize * key.shape[1] // query.shape[1], 1)
    heads, at_once = query.shape[0] * query.shape[1], CAPACITIES[-1] // row_tiles
    for first in range(0, heads, at_once):
        yield first, order_of(Walk(min(at_once, heads - first), seen, head_bytes), blocks)


def _prepared(query: Meta, key: Meta, is_causal: bool, scale: float, first: int, order: Order) -> Fire:
    """The launch of a kernel; takes where logarithms go, and the four maps in one."""
    heads, width = query.shape[1], query.shape[3]
    tiling, capacity = TILINGS[width], next(size for size in CAPACITIES if len(order.tiles) <= size)
    lengths = (query.shape[2], key.shape[2], _row_tiles(query), _before(query))
    sizes = (heads, heads // key.shape[1], *lengths, first, is_causal)
    constants = (struct.pack("=8if", *sizes, scale * math.log2(math.e)), order.packed(BLOCKS, capacity))
    kernel = load(text_of(CTYPES[query.dtype], width, capacity), "hopper_attention", (EXACT,))
    return kernel.prepare(len(order.begin) - 1, tiling.threads, ("P", "512s"), constants, tiling.shared_bytes(width))


def forward(request: Request) -> Balanced | None:
    """softmax(query @ key.T * scale) @ value, and the logarithms of the rows' sums where backward will need them."""
    query, key, value, mask, is_causal, scale, trains = request.args
    backend, output = request.backend, request.outs[0]
    device = backend.device.index or 0
    if mask is not None or architecture(device) != HOPPER or not _suits(query, key, value, output, scale):
        return None
    orders = list(_orders(query, key, is_causal, min(multiprocessors(device), BLOCKS)))
    fires = [_prepared(query, key, is_causal, scale, first, order) for first, order in orders]
    tiling = TILINGS[query.shape[3]]
    query_map, key_map = maps_of(query, tiling.rows), maps_of(key, tiling.columns)
    value_map, output_map = maps_of(value, tiling.columns), maps_of(output, GROUP_ROWS)

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        stream, logsum = backend.stream, pointer(outs[1]) if trains else 0
        q, k, v = [pointer(value) for value in args[:3]]
        maps = query_map(q) + key_map(k) + value_map(v) + output_map(pointer(outs[0]))
        for fire in fires:
            fire(stream, logsum, maps)

    return Balanced(launch, min(order.balance for _, order in orders))
