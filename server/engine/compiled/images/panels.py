"""Right sides and results of products of matrices, between their own layouts and panels of vectors.

A panel is a row-major matrix as wide as a tile, whose columns are lanes. Where elements that follow each other in a
lane lie side by side, squares of them are transposed in registers. Addresses and offsets count bytes. Functions
release the GIL and run on one thread.
"""

from __future__ import annotations

from typing import Any

from ..arithmetic import compiled, f32
from ..signals import transpose_block
from ..tiles import LANES, move, read, write

Array = Any
OFFSETS = "int64[::1]"
_BYTES = 4


@compiled(OFFSETS, "int64", returns="boolean")
def _are_neighbours(places: Array, first: int) -> bool:
    """Whether as many elements as a vector has lanes lie side by side, from the first of these offsets on."""
    if first + LANES > places.size:
        return False
    begin, differences = places[first], 0
    for number in range(LANES):
        differences |= places[first + number] - begin - _BYTES * number
    return differences == 0


@compiled("int64", "int64", "int64", OFFSETS, "int64", "int64")
def pack(source: int, lane_step: int, lanes: int, places: Array, panel: int, width: int) -> None:
    """Write the panel of a matrix whose columns, ``lanes`` of them, are ``lane_step`` apart; the rest are zeros."""
    whole, k = lanes // LANES * LANES, 0
    while k < places.size:
        row, target, count, first = source + places[k], panel + _BYTES * k * width, 1, 0
        if whole and _are_neighbours(places, k):
            for lane in range(0, whole, LANES):
                transpose_block(f32(1), row + lane * lane_step, lane_step, target + _BYTES * lane, _BYTES * width)
            count, first = LANES, whole
        for i in range(count):
            for lane in range(first, lanes):
                write(target + _BYTES * (i * width + lane), read(row + _BYTES * i + lane * lane_step))
            for lane in range(max(first, lanes), width):
                write(target + _BYTES * (i * width + lane), f32(0.0))
        k += count


@compiled("int64", "int64", "int64", "int64", OFFSETS, "int64", "int64")
def unpack(panel: int, width: int, lanes: int, target: int, places: Array, first: int, last: int) -> None:
    """Write rows of a panel as rows side by side: row r's ``lanes`` elements to ``target`` + ``places[r]``."""
    for r in range(first, last):
        row, place = panel + _BYTES * (r - first) * width, target + places[r]
        for lane in range(lanes):
            write(place + _BYTES * lane, read(row + _BYTES * lane))


@compiled("int64", "int64", "int64", "int64", "int64", OFFSETS, "int64", "int64")
def unpack_lanes(
    panel: int, width: int, lanes: int, target: int, lane_step: int, places: Array, first: int, last: int
) -> None:  # fmt: skip
    """The same where lanes are ``lane_step`` apart."""
    whole, r = lanes // LANES * LANES, first
    while r < last:
        row, place, count, begin = panel + _BYTES * (r - first) * width, target + places[r], 1, 0
        if whole and r + LANES <= last and _are_neighbours(places, r):
            for lane in range(0, whole, LANES):
                transpose_block(f32(1), row + _BYTES * lane, _BYTES * width, place + lane * lane_step, lane_step)
            count, begin = LANES, whole
        for i in range(count):
            for lane in range(begin, lanes):
                write(place + _BYTES * i + lane * lane_step, read(row + _BYTES * (i * width + lane)))
        r += count


@compiled("int64", "int64", "float32[:,:,::1]", "int64", "int64", "float32[:,:,::1]")
def pad(first_plane: int, last_plane: int, source: Array, top: int, left: int, out: Array) -> None:
    """Write some planes with zeros around them: ``top`` lines before, and ``left`` elements before each line.

    Where these are negative, as many lines and elements are left out.
    """
    height, begin, first = source.shape[1], min(max(left, 0), out.shape[2]), max(-left, 0)
    count = max(min(source.shape[2] - first, out.shape[2] - begin), 0)
    for n in range(first_plane, last_plane):
        for y in range(out.shape[1]):
            line, is_empty = out[n, y], y < top or y >= top + height
            end = 0 if is_empty else begin + count
            if not is_empty:
                move(line[begin:].ctypes.data, source[n, y - top, first:].ctypes.data, count)
            for i in range(begin if end else 0):
                line[i] = f32(0.0)
            for i in range(end, line.size):
                line[i] = f32(0.0)
