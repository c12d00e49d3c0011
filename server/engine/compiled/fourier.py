"""Fourier transforms of many signals, one in every lane of a vector, and of long ones.

A long transform is two steps of shorter ones, of the columns and then the rows of a matrix, the lanes of which are
neighbours in it. Addresses and steps count bytes. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from typing import Any

from .arithmetic import compiled
from .passes import PAD, ROOM, Signals, convolve, passes
from .signals import bytes_of, clear, halve, halve_row, lanes_of, number_at, pair, pair_row
from .slots import read_lanes, read_real, specialized, write_lanes, write_real
from .tiles import write
from .vectors import WIDTHS as WIDTHS

Array = Any
COMPLEX, REAL, HERMITIAN = range(3)
"""What a signal is: complex numbers, twice as many real ones, or the first half of the transform of such."""


@specialized
def _read_halves(
    one: float, given: Signals, n: int, halves: int, slots: int, first: int, second: int, room: int
) -> None:  # fmt: skip
    """Read n + 1 numbers of each signal, and write what the transform of pairs of real numbers is made from.

    The imaginary parts of the first and the last number are not looked at.
    """
    source, step, lane_step, lanes = given[:4]
    size, block = bytes_of(one), lanes_of(one) // 2
    vector, slot = 2 * block * size, 4 * block * size
    block = min(block, n // 2 + 1)
    high = room + block * slot
    for start in range(0, n // 2 + 1, block):
        begin = min(start, n // 2 + 1 - block)
        end = n - begin - block + 1
        read_lanes(one, source + begin * step, step, lane_step, lanes, block, room, 0, vector)
        read_lanes(one, source + end * step, step, lane_step, lanes, block, high, 0, vector)
        if begin == 0:
            clear(one, room + vector)
            clear(one, high + (block - 1) * slot + vector)
        for k in range(block):
            pair(
                one, room + k * slot, high + (block - 1 - k) * slot, halves + 2 * size * (begin + k),
                slots + (begin + k) * slot, slots + (n - begin - k) * slot, first, second,
            )  # fmt: skip


@specialized
def _write_halves(scale: float, one: float, results: int, n: int, halves: int, wanted: Signals, room: int) -> None:
    """Write the n + 1 first numbers of the transforms of real signals, given those of their pairs."""
    target, step, lane_step, lanes = wanted[:4]
    size, block = bytes_of(one), lanes_of(one) // 2
    vector, slot = 2 * block * size, 4 * block * size
    block = min(block, n // 2 + 1)
    high = room + block * slot
    for start in range(0, n // 2 + 1, block):
        begin = min(start, n // 2 + 1 - block)
        end = n - begin - block + 1
        for k in range(block):
            opposite = n - begin - k
            halve(
                one, results + (begin + k) * slot, results + (0 if opposite == n else opposite) * slot,
                halves + 2 * size * (begin + k), room + k * slot, high + (block - 1 - k) * slot, 0, vector,
            )  # fmt: skip
        write_lanes(scale, room, 0, vector, target + begin * step, step, lane_step, lanes, block)
        write_lanes(scale, high, 0, vector, target + end * step, step, lane_step, lanes, block)


@specialized
def _transform_lanes(
    scale: float, one: float, source: int, target: int, sizes: Array, places: Array, factors: Array, tables: Array,
    memory: int, begin: int, end: int,
) -> None:  # fmt: skip
    kind, is_backward, n, padded, inner = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    most, size = lanes_of(one), bytes_of(one)
    vector, slot = size * most, 2 * size * most
    first, second = (vector, 0) if is_backward else (0, vector)
    slots = memory + ROOM * slot
    groups = (inner + most - 1) // most
    nowhere = (0, 0, 0, 0, 0, 0)
    for group in range(begin, end):
        outer, start = group // groups, group % groups * most
        lanes = min(most, inner - start)
        origin, goal = source + outer * places[0] + start * places[2], target + outer * places[3] + start * places[5]
        given = (origin, places[1], places[2], lanes, first, second)
        wanted = (goal, places[4], places[5], lanes, first, second)
        reads = not (kind == HERMITIAN or (kind == REAL and places[6]))
        writes = not (kind == REAL or (kind == HERMITIAN and places[6]))
        if kind == HERMITIAN:
            _read_halves(one, given, n, tables[1], slots, first, second, memory)
        elif not reads:
            read_real(one, origin, places[1], places[2], lanes, n, slots, first, second)
        if padded > n:
            if reads:
                read_lanes(one, origin, places[1], places[2], lanes, n, slots, first, second)
            place = convolve(one, n, factors, tables, padded, memory, 0)
        else:
            from_, to = given if reads else nowhere, wanted if writes else nowhere
            place = passes(scale, one, factors, tables[0], n, memory, 0, from_, to, 0)
        results = slots if place == 0 else slots + (padded + 1) * slot + PAD
        if kind == REAL:
            _write_halves(scale, one, results, n, tables[1], wanted, memory)
        elif not writes:
            write_real(scale, results, first, second, goal, places[4], places[5], lanes, n)
        elif padded > n:
            write_lanes(scale, results, first, second, goal, places[4], places[5], lanes, n)


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
        given = (source + start * number, columns * number, number, lanes, first, second)
        wanted = (matrix + start * number, pitch, number, lanes, first, second)
        between = tables[3] + group * rows * number * most
        passes(one, one, factors[:count], tables[0], rows, memory, 0, given, wanted, between)


@specialized
def _rows(
    scale: float, one: float, matrix: int, target: int, first: int, second: int, sizes: Array, factors: Array,
    tables: Array, memory: int, begin: int, end: int,
) -> None:  # fmt: skip
    """The second step, of some groups of rows."""
    rows, columns, pitch, count, padded = sizes[4], sizes[5], sizes[6], sizes[7], sizes[8]
    most, number = lanes_of(one), 2 * bytes_of(one)
    for group in range(begin, end):
        start = group * most
        lanes = min(most, rows - start)
        given = (matrix + start * pitch, number, pitch, lanes, 0, number * most // 2)
        wanted = (target + start * number, rows * number, number, lanes, first, second)
        if padded == columns:
            passes(scale, one, factors[count:], tables[2], columns, memory, 0, given, wanted, 0)
            continue
        slots = memory + ROOM * number * most
        read_lanes(one, given[0], number, pitch, lanes, columns, slots, 0, number * most // 2)
        place = convolve(one, columns, factors[count:], tables[4:], padded, memory, 0)
        results = slots if place == 0 else slots + (padded + 1) * number * most + PAD
        write_lanes(scale, results, first, second, wanted[0], rows * number, number, lanes, columns)


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
    """The opposite, twice as large; the imaginary parts of the first and the last number are not looked at."""
    most, size = lanes_of(one), bytes_of(one)
    for k in range(0, n // 2 + 1, most):
        back = (n - k - most + 1) * 2 * size
        pair_row(one, source + 2 * size * k, source + back, halves + 2 * size * k, target + 2 * size * k, target + back)
    low, high = number_at(one, source), number_at(one, source + 2 * size * n)
    write(target, low + high)
    write(target + size, low - high)


LANES, ALL, PAIRS, COLUMNS, ROWS, HALVES = range(6)
"""Stages: transforms of a signal in every lane; all stages of long transforms of some signals, or one of one signal."""


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
    if stage == LANES:
        _transform_lanes(scale, one, source, target, sizes, places, factors, tables, memory, begin, end)
    else:
        _transform_long(
            scale, one, source, target, sizes, places, factors, tables, memory, matrix, spare, stage, begin, end
        )  # fmt: skip


@compiled("float64", "float64", *_ARGUMENTS)
def _double(
    scale: float, one: float, source: int, target: int, sizes: Array, places: Array, factors: Array, tables: Array,
    memory: int, matrix: int, spare: int, stage: int, begin: int, end: int,
) -> None:  # fmt: skip
    if stage == LANES:
        _transform_lanes(scale, one, source, target, sizes, places, factors, tables, memory, begin, end)
    else:
        _transform_long(
            scale, one, source, target, sizes, places, factors, tables, memory, matrix, spare, stage, begin, end
        )  # fmt: skip


transform = {"F": _single, "D": _double}
"""Transform signals ``begin`` to ``end``, or groups of as many as a vector has lanes, by the complex type's character.

``scale`` is a factor of the result, ``one`` is 1. All else that is not in arrays is an address, or counts.

``memory`` is scratch memory of ROOM + 2 * (padded + 1) slots and PAD bytes, or for the longer of rows and columns.

In the stage LANES the integers of ``sizes``: the
kind, whether the transform is backward, n (half the length of real signals), the length of the convolution or n, and
how many signals an outer one has. ``places``: the steps from an outer one of the source to the next, between elements
and between signals; the same of the target; whether real signals lie side by side. ``tables`` are addresses: of the
passes' twiddles, of exp(-2 pi i k / 2 n), and of the convolution's three tables of factors.

In other stages elements of signals are neighbours, and a signal is a matrix of rows x columns = n elements. ``places``:
from signal to signal of source and target. ``sizes``: kind, whether backward, n, 0, rows, columns, the bytes from row
to row of ``matrix``, how many of the ``factors`` are those of columns, and the length of the convolution that a row is,
or its own. ``tables``: the columns' twiddles, exp(-2 pi i k / 2 n), the rows' twiddles, the factors between the steps,
as slots by groups of columns, and five as in the stage LANES for rows that are convolutions. ``matrix`` has memory for
the rows, ``spare`` for n + 1 numbers unless signals are complex.
"""
