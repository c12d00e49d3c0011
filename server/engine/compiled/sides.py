"""Copies of a few signals that lie side by side, after which they lie one behind the other, and the opposite.

Addresses count bytes. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from .arithmetic import compiled
from .signals import (
    bytes_of,
    lanes_of,
    move_part,
    read_part_of_side,
    read_real_rows,
    read_short_rows,
    write_part_of_side,
    write_real_rows,
    write_short_rows,
)  # fmt: skip
from .slots import specialized
from .vectors import WIDTHS as WIDTHS


@specialized
def _to_rows(one: float, source: int, target: int, n: int, inner: int, is_real: int, memory: int) -> None:
    size, most = bytes_of(one), lanes_of(one)
    vector, number = most * size, size if is_real else 2 * size
    for k in range(0, n, most):
        count = min(most, n - k)
        side = source + k * inner * number
        if is_real:
            read_real_rows(one, side, inner * number, count - 1, inner, memory, 0)
        else:
            read_short_rows(one, side, inner * number, count - 1, inner, memory, 0, vector, 0)
        for signal in range(inner):
            slot, row = memory + signal * 2 * vector, target + (signal * n + k) * number
            if is_real:
                move_part(one, slot, row, count)
            else:
                write_part_of_side(one, slot, 0, vector, row, count)


@specialized
def _to_sides(one: float, source: int, target: int, n: int, inner: int, is_real: int, memory: int) -> None:
    size, most = bytes_of(one), lanes_of(one)
    vector, number = most * size, size if is_real else 2 * size
    for k in range(0, n, most):
        count = min(most, n - k)
        side = target + k * inner * number
        for signal in range(inner):
            slot, row = memory + signal * 2 * vector, source + (signal * n + k) * number
            if is_real:
                move_part(one, row, slot, count)
            else:
                read_part_of_side(one, row, count, slot, 0, vector)
        if is_real:
            write_real_rows(one, memory, side, inner * number, count - 1, inner, 0)
        else:
            write_short_rows(one, memory, 0, vector, side, inner * number, count - 1, inner, 0)


@specialized
def _copy(
    one: float, source: int, target: int, outer: int, n: int, inner: int, is_real: int, is_back: int, memory: int
) -> None:  # fmt: skip
    nbytes = n * inner * bytes_of(one) * (1 if is_real else 2)
    for number in range(outer):
        if is_back:
            _to_sides(one, source + number * nbytes, target + number * nbytes, n, inner, is_real, memory)
        else:
            _to_rows(one, source + number * nbytes, target + number * nbytes, n, inner, is_real, memory)


@compiled("float32", *["int64"] * 8)
def _single(
    one: float, source: int, target: int, outer: int, n: int, inner: int, is_real: int, is_back: int, memory: int
) -> None:  # fmt: skip
    _copy(one, source, target, outer, n, inner, is_real, is_back, memory)


@compiled("float64", *["int64"] * 8)
def _double(
    one: float, source: int, target: int, outer: int, n: int, inner: int, is_real: int, is_back: int, memory: int
) -> None:  # fmt: skip
    _copy(one, source, target, outer, n, inner, is_real, is_back, memory)


copy = {"F": _single, "D": _double}
"""Copy ``outer`` times ``inner`` signals of ``n`` numbers that lie side by side, by the complex type's character.

``one`` is 1. There are at most half as many complex signals as a vector has lanes, or as many real ones as it has.
``memory`` is scratch memory of as many complex vectors as a vector has lanes.
"""
