"""Products of matrices of bfloat16 by the processor's products of pairs, which add up in single precision.

The right side is packed a block of columns at a time: a panel has pairs of neighbours of a column, (length, width).
Addresses and offsets count bytes. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arithmetic import compiled, i32, rounded
from ..tiles import HAS_PAIRS, LANES, PAIRS_PAY, SHAPES, tile_of_pairs

__all__ = ["PAIRS_PAY", "WIDTH", "multiply"]

Array = Any
_TILE, _VECTORS = SHAPES[0]
WIDTH = _VECTORS * LANES
"""The columns of a block."""
_HEIGHT = 96 // _TILE * _TILE
"""So many rows of sums are kept at a time, which stay in the first-level cache."""
_LENGTH = 512
"""So many pairs are added up at a time: a panel of as many rows stays in a core's caches."""
_HALVES = "int16[:,::1]"


@compiled(_HALVES, "int64", "int32[:,::1]")
def _pack(right: Array, first: int, panel: Array) -> None:
    """Write the pairs of columns from the first on; those that are missing are zeros."""
    count = min(panel.shape[1], right.shape[1] - first)
    for pair in range(panel.shape[0]):
        for lane in range(count):
            low, high = right[2 * pair, first + lane], right[2 * pair + 1, first + lane]
            panel[pair, lane] = (i32(low) & i32(0xFFFF)) | (i32(high) << i32(16))
        for lane in range(count, panel.shape[1]):
            panel[pair, lane] = 0


@compiled(_HALVES, "int64", "int32[:,::1]")
def _pack_turned(right: Array, first: int, panel: Array) -> None:
    """The same of a matrix whose columns are given as rows."""
    count = min(panel.shape[1], right.shape[0] - first)
    for lane in range(count):
        column = right[first + lane]
        for pair in range(panel.shape[0]):
            panel[pair, lane] = (i32(column[2 * pair]) & i32(0xFFFF)) | (i32(column[2 * pair + 1]) << i32(16))
    for pair in range(panel.shape[0]):
        for lane in range(count, panel.shape[1]):
            panel[pair, lane] = 0


def _multiplication() -> Any:
    @compiled("int64", "int64", "int64", "int64", _HALVES, "boolean", "float32[::1]", _HALVES)
    def multiply(
        first: int, last: int, splits: int, left: int, right: Array, is_turned: bool, bias: Array, out: Array
    ) -> None:  # fmt: skip
        """Write parts of a product, to whose rows a bias is added that may be empty.

        ``left`` is the address of a row-major matrix, ``right`` has an even number of rows, or is the transpose of such
        a matrix. Unit u is part u % splits of the rows of block u // splits of columns.
        """
        (m, n), k = out.shape, right.shape[1 if is_turned else 0]
        pairs = k // 2
        starts, steps = np.empty((m + _TILE - 1) // _TILE * _TILE, np.int64), np.empty(pairs, np.int64)
        for r in range(starts.size):
            starts[r] = min(r, m - 1) * 2 * k
        for pair in range(pairs):
            steps[pair] = 4 * pair
        panel, sums = np.empty((pairs, WIDTH), np.int32), np.empty((_HEIGHT, WIDTH), np.float32)
        packed = -1
        tiles = starts.size // _TILE
        for unit in range(first, last):
            block = unit // splits
            part = unit - block * splits
            if block != packed:
                if is_turned:
                    _pack_turned(right, block * WIDTH, panel)
                else:
                    _pack(right, block * WIDTH, panel)
                packed = block
            count = min(WIDTH, n - block * WIDTH)
            begin, end = tiles * part // splits * _TILE, tiles * (part + 1) // splits * _TILE
            for top in range(begin, end, _HEIGHT):
                bottom = min(top + _HEIGHT, end)
                sums[:] = 0
                for at in range(0, pairs, _LENGTH):
                    for r in range(top, bottom, _TILE):
                        tile_of_pairs(
                            _TILE, _VECTORS, left, starts.ctypes.data + 8 * r, steps.ctypes.data + 8 * at,
                            panel.ctypes.data + 4 * WIDTH * at, min(_LENGTH, pairs - at),
                            sums.ctypes.data + 4 * WIDTH * (r - top),
                        )  # fmt: skip
                for r in range(top, min(bottom, m)):
                    row, target = sums[r - top], out[r, block * WIDTH : block * WIDTH + count]
                    for c in range(bias.size and count):
                        row[c] += bias[block * WIDTH + c]
                    for c in range(count):
                        target[c] = rounded(row[c], target)

    return multiply


multiply = _multiplication() if HAS_PAIRS else None
"""None where the processor has no such instruction, for which nothing can be compiled."""
