"""Products of matrices whose left sides are read by tables of offsets: what convolutions are made of.

A right side is packed into panels, (blocks, length, width), whose width is that of a tile: a whole number of vectors.
Addresses and offsets count bytes. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from typing import Any

from .arithmetic import compiled, f32
from .tiles import LANES, SHAPES, read, tile, write

Array = Any
_LENGTH = 1024
"""So many products are added up at a time: a panel of as many rows stays in a core's second-level cache."""
_ROWS = 96
"""So many rows of sums are kept at a time, which stay in the first-level cache."""
_OFFSETS, _PANELS, _SUMS = "int64[::1]", "float32[:,:,::1]", "float32[:,::1]"


@compiled("int64", "int64", "int64", _OFFSETS, _PANELS)
def pack(source: int, lane_step: int, lanes: int, steps: Array, panels: Array) -> None:
    """Write the panels of a matrix whose columns, ``lanes`` of them, are ``lane_step`` apart; the rest are zeros."""
    width = panels.shape[2]
    for block in range(panels.shape[0]):
        count = min(width, lanes - block * width)
        start = source + block * width * lane_step
        for k in range(steps.size):
            row = start + steps[k]
            for lane in range(count):
                panels[block, k, lane] = read(row + lane * lane_step)
            for lane in range(count, width):
                panels[block, k, lane] = 0.0


def _multiplication(rows: int, vectors: int) -> Any:
    width = vectors * LANES
    height = _ROWS // rows * rows

    @compiled(
        "int64", _OFFSETS, _OFFSETS, _PANELS, _SUMS, "int64", _OFFSETS, "int64", "int64", _SUMS
    )  # fmt: skip
    def multiply(
        source: int, starts: Array, steps: Array, panels: Array, bias: Array, out: int, targets: Array, lane_step: int,
        lanes: int, sums: Array,
    ) -> None:  # fmt: skip
        """Write products, to which a row of ``bias`` is added: row r's to ``out`` + ``targets[r]``.

        ``starts`` are a whole number of tiles' rows, of which those of ``targets`` are written. ``sums`` is scratch
        memory.
        """
        for block in range(panels.shape[0]):
            first_lane = block * width
            count = min(width, lanes - first_lane)
            for top in range(0, starts.size, height):
                bottom = min(top + height, starts.size)
                for r in range(bottom - top):
                    for lane in range(width):
                        sums[r, lane] = bias[block, lane]
                for k in range(0, steps.size, _LENGTH):
                    length = min(_LENGTH, steps.size - k)
                    for r in range(top, bottom, rows):
                        tile(
                            rows, vectors, source, starts.ctypes.data + 8 * r, steps.ctypes.data + 8 * k,
                            panels.ctypes.data + 4 * width * (block * steps.size + k), length,
                            sums.ctypes.data + 4 * width * (r - top),
                        )  # fmt: skip
                written = min(bottom, targets.size) - top
                if lane_step == 4:
                    for r in range(written):
                        place = out + targets[top + r] + 4 * first_lane
                        for lane in range(count):
                            write(place + 4 * lane, sums[r, lane])
                else:
                    for lane in range(count):
                        place = out + (first_lane + lane) * lane_step
                        for r in range(written):
                            write(place + targets[top + r], sums[r, lane])

    return multiply


def _accumulation(rows: int, vectors: int) -> Any:
    width = vectors * LANES

    @compiled(_OFFSETS, "int64", "int64", _OFFSETS, _OFFSETS, _OFFSETS, _OFFSETS, _PANELS, _SUMS)
    def accumulate(
        rights: Array, lane_step: int, lanes: int, places: Array, lefts: Array, starts: Array, steps: Array,
        panel: Array, sums: Array,
    ) -> None:  # fmt: skip
        """Add products to sums of shape (rows, width), one for each of several addresses of left and right sides.

        A right side has ``lanes`` columns that are ``lane_step`` apart, whose elements are at ``places``; ``starts``
        are a whole number of tiles' rows. ``panel``, (1, length, width), is scratch memory.
        """
        for i in range(rights.size):
            pack(rights[i], lane_step, lanes, places, panel)
            for k in range(0, steps.size, _LENGTH):
                length = min(_LENGTH, steps.size - k)
                for r in range(0, starts.size, rows):
                    tile(
                        rows, vectors, lefts[i], starts.ctypes.data + 8 * r, steps.ctypes.data + 8 * k,
                        panel.ctypes.data + 4 * width * k, length, sums.ctypes.data + 4 * width * r,
                    )  # fmt: skip

    return accumulate


@compiled("float32[:,:,::1]", "int64", "int64", "float32[:,:,::1]")
def pad(source: Array, top: int, left: int, out: Array) -> None:
    """Write planes with zeros around them: ``top`` lines before, and ``left`` elements before each line."""
    height, length = source.shape[1], source.shape[2]
    for n in range(source.shape[0]):
        for y in range(out.shape[1]):
            line = out[n, y]
            if y < top or y >= top + height:
                line[:] = f32(0.0)
            else:
                line[:left] = f32(0.0)
                line[left : left + length] = source[n, y - top]
                line[left + length :] = f32(0.0)


multiply = {shape: _multiplication(*shape) for shape in SHAPES}
accumulate = {shape: _accumulation(*shape) for shape in SHAPES}
"""By the rows and vectors of a tile."""
