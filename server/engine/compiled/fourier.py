"""Fourier transforms of long signals.

A long transform is two steps of shorter ones, of the columns and then the rows of a matrix, the lanes of which are
neighbours in it. Addresses and steps count bytes. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from typing import Any

from .arithmetic import compiled
from .passes import PAD, ROOM, convolve, passes
from .signals import HERMITIAN, REAL, bytes_of, halve_row, lanes_of, number_at, pair_row
from .slots import read_lanes, specialized, write_lanes
from .tiles import write
from .vectors import WIDTHS as WIDTHS

Array = Any


@specialized
def _columns(
    one: float, source: int, matrix: int, first: int, second: int, sizes: Array, factors: Array, tables: Array,
    memory: int, begin: int, end: int,
) -> None:  # fmt: skip
    """The first step of a long transform, of some groups of columns; ``matrix`` gets what the second one takes."""
    rows, columns, pitch, count = sizes[4], sizes[5], sizes[6], sizes[7]
    most, number = lanes_of(one), 2 * bytes_of(one)
    for group in range(begin, end):
        start = group * most
        lanes = min(most, columns - start)
        given = (source + start * number, columns * number, number, lanes, first, second, 0)
        wanted = (matrix + start * number, pitch, number, lanes, first, second, 0)
        between = tables[3] + group * rows * number * most
        passes(one, one, factors.ctypes.data, count, tables[0], rows, memory, 0, given, wanted, between)


@specialized
def _rows(
    scale: float, one: float, matrix: int, target: int, first: int, second: int, sizes: Array, factors: Array,
    tables: Array, memory: int, begin: int, end: int,
) -> None:  # fmt: skip
    """The second step, of some groups of rows."""
    rows, columns, pitch, count, padded = sizes[4], sizes[5], sizes[6], sizes[7], sizes[8]
    most, number = lanes_of(one), 2 * bytes_of(one)
    behind, rest = factors.ctypes.data + 8 * count, factors.size - count
    for group in range(begin, end):
        start = group * most
        lanes = min(most, rows - start)
        given = (matrix + start * pitch, number, pitch, lanes, 0, number * most // 2, 0)
        wanted = (target + start * number, rows * number, number, lanes, first, second, 0)
        if padded == columns:
            passes(scale, one, behind, rest, tables[2], columns, memory, 0, given, wanted, 0)
            continue
        slots = memory + ROOM * number * most
        read_lanes(one, given[0], number, pitch, lanes, columns, slots, 0, number * most // 2, 0)
        place = convolve(one, columns, behind, rest, tables.ctypes.data + 32, padded, memory, 0)
        results = slots if place == 0 else slots + (padded + 1) * number * most + PAD
        write_lanes(scale, results, first, second, wanted[0], rows * number, number, lanes, columns, 0)


@specialized
def halve_signal(scale: float, one: float, source: int, target: int, n: int, halves: int) -> None:
    """The first half of the transform of 2 n real numbers from that of their pairs, behind which is room for one."""
    most, size = lanes_of(one), bytes_of(one)
    for part in (0, size):
        write(source + 2 * size * n + part, number_at(one, source + part))
    for k in range(0, n // 2 + 1, most):
        back = (n - k - most + 1) * 2 * size
        halve_row(
            scale, source + 2 * size * k, source + back, halves + 2 * size * k, target + 2 * size * k, target + back
        )  # fmt: skip


@specialized
def pair_signal(one: float, source: int, target: int, n: int, halves: int) -> None:
    """Twice the transform of pairs of 2 n real numbers, from the first half of the transform of these numbers.

    The imaginary parts of the first and the last of the n + 1 numbers that are given are not looked at.
    """
    most, size = lanes_of(one), bytes_of(one)
    for k in range(0, n // 2 + 1, most):
        back = (n - k - most + 1) * 2 * size
        pair_row(one, source + 2 * size * k, source + back, halves + 2 * size * k, target + 2 * size * k, target + back)
    low, high = number_at(one, source), number_at(one, source + 2 * size * n)
    write(target, low + high)
    write(target + size, low - high)


ALL, PAIRS, COLUMNS, ROWS, HALVES = range(1, 6)
"""Stages of long transforms: all of them of some signals, or one of one signal."""


@specialized
def _transform_long(
    scale: float, one: float, source: int, target: int, sizes: Array, places: Array, factors: Array, tables: Array,
    memory: int, matrix: int, spare: int, stage: int, begin: int, end: int,
) -> None:  # fmt: skip
    kind, is_backward, n, rows, columns = sizes[0], sizes[1], sizes[2], sizes[4], sizes[5]
    most = lanes_of(one)
    vector = bytes_of(one) * most
    first, second = (vector, 0) if is_backward else (0, vector)
    for signal in range(begin, end) if stage == ALL else range(1):
        origin, goal = source + signal * places[0], target + signal * places[1]
        if kind == HERMITIAN and (stage in (ALL, PAIRS)):
            pair_signal(one, origin, spare, n, tables[1])
        if stage in (ALL, COLUMNS):
            groups = (0, (columns + most - 1) // most) if stage == ALL else (begin, end)
            given = spare if kind == HERMITIAN else origin
            _columns(one, given, matrix, first, second, sizes, factors, tables, memory, groups[0], groups[1])
        if stage in (ALL, ROWS):
            groups = (0, (rows + most - 1) // most) if stage == ALL else (begin, end)
            result, factor = (spare, one) if kind == REAL else (goal, scale)
            _rows(factor, one, matrix, result, first, second, sizes, factors, tables, memory, groups[0], groups[1])
        if kind == REAL and (stage in (ALL, HALVES)):
            halve_signal(scale, one, spare, goal, n, tables[1])


_ARGUMENTS = ["int64", "int64", *["int64[::1]"] * 4, *["int64"] * 6]


@compiled("float32", "float32", *_ARGUMENTS)
def _single(
    scale: float, one: float, source: int, target: int, sizes: Array, places: Array, factors: Array, tables: Array,
    memory: int, matrix: int, spare: int, stage: int, begin: int, end: int,
) -> None:  # fmt: skip
    _transform_long(
        scale, one, source, target, sizes, places, factors, tables, memory, matrix, spare, stage, begin, end
    )  # fmt: skip


@compiled("float64", "float64", *_ARGUMENTS)
def _double(
    scale: float, one: float, source: int, target: int, sizes: Array, places: Array, factors: Array, tables: Array,
    memory: int, matrix: int, spare: int, stage: int, begin: int, end: int,
) -> None:  # fmt: skip
    _transform_long(
        scale, one, source, target, sizes, places, factors, tables, memory, matrix, spare, stage, begin, end
    )  # fmt: skip


transform = {"F": _single, "D": _double}
"""Transform signals ``begin`` to ``end``, or groups of as many as a vector has lanes, by the complex type's character.

``scale`` is a factor of the result, ``one`` is 1. All else that is not in arrays is an address, or counts.

``memory`` is scratch memory of ROOM + 2 * (padded + 1) slots and PAD bytes, or for the longer of rows and columns.

Elements of signals are neighbours, and a signal is a matrix of rows x columns = n elements. ``places``:
from signal to signal of source and target. ``sizes``: kind, whether backward, n, 0, rows, columns, the bytes from row
to row of ``matrix``, how many of the ``factors`` are those of columns, and the length of the convolution that a row is,
or its own. ``tables``: the columns' twiddles, exp(-2 pi i k / 2 n), the rows' twiddles, the factors between the steps,
as slots by groups of columns, and five as ``lanes`` has them for rows that are convolutions. ``matrix`` has memory for
the rows, ``spare`` for n + 1 numbers unless signals are complex.
"""
