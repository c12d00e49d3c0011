"""Products of matrices whose left sides are read by tables of offsets: what convolutions are made of.

A right side is packed into panels, (groups, blocks, length, width), whose width is that of a tile: a whole number of
vectors. Work is numbered: a call does the units of a range, so that threads share it without Python. Addresses and
offsets count bytes. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from typing import Any

from ..arithmetic import compiled, f32
from ..tiles import LANES, SHAPES, tile
from .panels import OFFSETS, pack, pad, unpack, unpack_lanes

__all__ = ["LANES", "SHAPES", "accumulate", "add_up", "multiply", "pack_all", "pad"]

Array = Any
_LENGTH = 1024
"""So many products are added up at a time: a panel of as many rows stays in a core's second-level cache."""
_ROWS = 96
"""So many rows of sums are kept at a time, which stay in the first-level cache."""
_BYTES = 4
_PANELS, _SUMS = "float32[:,:,:,::1]", "float32[:,::1]"


@compiled("int64", "int64", "int64", "int64", "int64", "int64", OFFSETS, _PANELS)
def pack_all(
    first: int, last: int, source: int, group_step: int, lane_step: int, lanes: int, places: Array, panels: Array
) -> None:  # fmt: skip
    """Write panels of matrices that are ``group_step`` apart; unit u is block u % blocks of group u // blocks."""
    blocks, length, width = panels.shape[1], panels.shape[2], panels.shape[3]
    for unit in range(first, last):
        group = unit // blocks
        lane = (unit - group * blocks) * width
        start = source + group * group_step + lane * lane_step
        pack(
            start,
            lane_step,
            min(width, lanes - lane),
            places,
            panels.ctypes.data + _BYTES * unit * length * width,
            width,
        )


def _multiplication(rows: int, vectors: int) -> Any:
    width = vectors * LANES
    height = _ROWS // rows * rows

    @compiled(
        "int64", "int64", "int64", OFFSETS, "int64", OFFSETS, OFFSETS, _PANELS, _SUMS, OFFSETS, OFFSETS, "int64",
        "int64", _SUMS,
    )  # fmt: skip
    def multiply(
        first: int, last: int, splits: int, sources: Array, group_step: int, starts: Array, steps: Array,
        panels: Array, bias: Array, outs: Array, targets: Array, lane_step: int, lanes: int, sums: Array,
    ) -> None:  # fmt: skip
        """Write products, to which a row of ``bias`` is added: row r's to an address of ``outs`` + ``targets[r]``.

        Unit u is part u % splits of the blocks of a group, of one of the sources and outs. Groups of a source are
        ``group_step`` apart. ``starts`` are a whole number of tiles' rows, of which those of ``targets`` are written.
        ``sums`` is scratch memory; ``bias`` has a row for each block of each group.
        """
        groups, blocks, size = panels.shape[0], panels.shape[1], panels.shape[2] * panels.shape[3]
        for unit in range(first, last):
            number = unit // splits
            part = unit - number * splits
            piece = number // groups
            group = number - piece * groups
            source = sources[piece] + group * group_step
            out = outs[piece] + group * lanes * lane_step
            for block in range(blocks * part // splits, blocks * (part + 1) // splits):
                row = group * blocks + block
                panel, place = panels.ctypes.data + _BYTES * row * size, out + block * width * lane_step
                many = min(width, lanes - block * width)
                for top in range(0, starts.size, height):
                    bottom = min(top + height, starts.size)
                    for r in range(bottom - top):
                        for lane in range(width):
                            sums[r, lane] = bias[row, lane]
                    for k in range(0, steps.size, _LENGTH):
                        length = min(_LENGTH, steps.size - k)
                        for r in range(top, bottom, rows):
                            tile(
                                rows, vectors, source, starts.ctypes.data + 8 * r, steps.ctypes.data + 8 * k,
                                panel + _BYTES * width * k, length, sums.ctypes.data + _BYTES * width * (r - top),
                            )  # fmt: skip
                    bottom = min(bottom, targets.size)
                    if lane_step == _BYTES:
                        unpack(sums.ctypes.data, width, many, place, targets, top, bottom)
                    else:
                        unpack_lanes(sums.ctypes.data, width, many, place, lane_step, targets, top, bottom)

    return multiply


def _accumulation(rows: int, vectors: int) -> Any:
    width = vectors * LANES

    @compiled(
        "int64", "int64", "boolean", OFFSETS, OFFSETS, "int64", "int64", OFFSETS, OFFSETS, "int64", OFFSETS, OFFSETS,
        "float32[:,:,:,:,::1]", _SUMS,
    )  # fmt: skip
    def accumulate(
        first: int, last: int, is_first: bool, edges: Array, rights: Array, lane_step: int, lanes: int, places: Array,
        lefts: Array, group_step: int, starts: Array, steps: Array, totals: Array, panel: Array,
    ) -> None:  # fmt: skip
        """Add products to ``totals``, (chunks, groups, blocks, rows, width), which are zeros before the first of them.

        Unit u is a block of a group of a chunk, in that order; a chunk's products are those of the left and right sides
        from ``edges[chunk]`` to ``edges[chunk + 1]``. A right side has ``lanes`` columns of each group, ``lane_step``
        apart, whose elements are at ``places``; a left side's groups are ``group_step`` apart. ``starts`` are a whole
        number of tiles' rows. ``panel``, (length, width), is scratch memory.
        """
        groups, blocks = totals.shape[1], totals.shape[2]
        for unit in range(first, last):
            number = unit // blocks
            block = unit - number * blocks
            chunk = number // groups
            group = number - chunk * groups
            sums = totals[chunk, group, block]
            if is_first:
                sums[:] = f32(0.0)
            lane = group * lanes + block * width
            for i in range(edges[chunk], edges[chunk + 1]):
                pack(
                    rights[i] + lane * lane_step, lane_step, min(width, lanes - block * width), places,
                    panel.ctypes.data, width,
                )  # fmt: skip
                for k in range(0, steps.size, _LENGTH):
                    length = min(_LENGTH, steps.size - k)
                    for r in range(0, starts.size, rows):
                        tile(
                            rows, vectors, lefts[i] + group * group_step, starts.ctypes.data + 8 * r,
                            steps.ctypes.data + 8 * k, panel.ctypes.data + _BYTES * width * k, length,
                            sums.ctypes.data + _BYTES * width * r,
                        )  # fmt: skip

    return accumulate


@compiled("int64", "int64", "float32[:,:,:,:,::1]", "int64", "int64", "int64", OFFSETS)
def add_up(first: int, last: int, totals: Array, out: int, lane_step: int, lanes: int, targets: Array) -> None:
    """Write the sums of ``totals`` over chunks: of the lanes of all groups, ``lane_step`` apart, row r to targets[r].

    Unit u is block u % blocks of group u // blocks. The first chunk's totals are overwritten.
    """
    chunks, blocks, width = totals.shape[0], totals.shape[2], totals.shape[4]
    for unit in range(first, last):
        group = unit // blocks
        block = unit - group * blocks
        sums = totals[0, group, block]
        for chunk in range(1, chunks):
            added = totals[chunk, group, block]
            for r in range(sums.shape[0]):
                for lane in range(width):
                    sums[r, lane] += added[r, lane]
        place = out + (group * lanes + block * width) * lane_step
        unpack_lanes(
            sums.ctypes.data, width, min(width, lanes - block * width), place, lane_step, targets, 0, targets.size
        )  # fmt: skip


multiply = {shape: _multiplication(*shape) for shape in SHAPES}
accumulate = {shape: _accumulation(*shape) for shape in SHAPES}
"""By the rows and vectors of a tile."""
