"""Copies of matrices and calls of BLAS and LAPACK one after the other, in one call from Python.

A sequence is a table of 64-bit numbers, which ``server/engine/cpu/linear_algebra/sequences`` writes: room for the
addresses of a run, of which the one behind them stays 0, the number of steps, and the steps, each a code, its length
and what the code needs. A place is two numbers: which of the addresses, and the bytes to add. Steps count bytes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..arithmetic import compiled, i32, inlined
from ..tiles import write
from .routines import repeat

CALL, COPY, PERMUTATION, FIND_NUMBER, FIND_NAN, FIND_NOT_FINITE = range(6)
"""Call a routine for some matrices, copy matrices, write permutations of rows, and end the sequence where an integer
is not 0, where a number is NaN, or where one is NaN or infinite."""
ADDRESSES = 4
"""How many addresses a run is given."""
_WORD = 8
_PANEL, _PANELS_FROM = 32, 192
"""Matrices of so many columns are copied from rows to columns in panels of so many rows, which stay in the cache."""


def _reader(kind: Any, bits: int) -> Any:
    """A function that reads a number at any address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loaded = builder.load(builder.inttoptr(args[0], ir.IntType(bits).as_pointer()))
        loaded.align = 4
        return loaded

    @intrinsic  # type: ignore[untyped-decorator]
    def read(typing: Any, address: Any) -> Any:
        return kind(types.int64), generate

    return read


_word, _half = _reader(types.int64, 64), _reader(types.int32, 32)


@inlined
def _is_beyond(address: int, size: int, is_nan: int) -> Any:
    """Whether a real number of so many bytes is NaN or infinite, or NaN alone: its exponent is all ones."""
    if size == 4:
        return (_half(address) & 0x7FFFFFFF) >= 0x7F800000 + is_nan
    return (_word(address) & 0x7FFFFFFFFFFFFFFF) >= 0x7FF0000000000000 + is_nan


@inlined
def _copy_line(size: int, count: int, source: int, step: int, target: int, target_step: int, sign: int) -> None:
    """Copy numbers of so many bytes; ``sign`` has the bits of their last words that change."""
    if size == 4 and step == 4 and target_step == 4:
        for i in range(count):
            write(target + 4 * i, _half(source + 4 * i))
    elif size == 4:
        for i in range(count):
            write(target + i * target_step, _half(source + i * step))
    elif size == 8 and step == 8 and target_step == 8:
        for i in range(count):
            write(target + 8 * i, _word(source + 8 * i) ^ sign)
    elif size == 8:
        for i in range(count):
            write(target + i * target_step, _word(source + i * step) ^ sign)
    else:
        for i in range(count):
            write(target + i * target_step, _word(source + i * step))
            write(target + i * target_step + 8, _word(source + i * step + 8) ^ sign)


@inlined
def _clear_line(size: int, count: int, target: int, step: int) -> None:
    """Write zeros in place of numbers."""
    if size == step:
        for i in range(count * size // 4):
            write(target + 4 * i, i32(0))
        return
    for i in range(count):
        if size == 4:
            write(target + i * step, i32(0))
        else:
            write(target + i * step, 0)
            if size == 16:
                write(target + i * step + 8, 0)


@compiled("int64", "int64")
def _copy(table: int, step: int) -> None:
    """Copy the diagonals from the lowest to the highest of some matrices, and clear others, where that is wanted."""
    size, count, m, n = _word(step), _word(step + 8), _word(step + 16), _word(step + 24)
    lowest, highest, copies, clears, sign = (
        _word(step + 32), _word(step + 40), _word(step + 48), _word(step + 56), _word(step + 64)
    )  # fmt: skip
    step += 72
    source, a_batch, a_row, a_column = (
        _word(table + _WORD * _word(step)) + _word(step + 8), _word(step + 16), _word(step + 24), _word(step + 32)
    )  # fmt: skip
    step += 40
    target, b_batch, b_row, b_column = (
        _word(table + _WORD * _word(step)) + _word(step + 8), _word(step + 16), _word(step + 24), _word(step + 32)
    )  # fmt: skip
    rows = _PANEL if n >= _PANELS_FROM and a_column == size else m
    for number in range(count):
        a, b = source + number * a_batch, target + number * b_batch
        for first in range(0, m, max(rows, 1)):
            last = min(first + rows, m)
            for j in range(n):
                start = min(max(first, j - highest), last)
                end = max(start, min(last, j - lowest + 1))
                to = b + j * b_column
                if copies:
                    _copy_line(
                        size, end - start, a + j * a_column + start * a_row, a_row, to + start * b_row, b_row, sign
                    )
                if clears:
                    _clear_line(size, start - first, to + first * b_row, b_row)
                    _clear_line(size, last - end, to + end * b_row, b_row)


@compiled("int64", "int64")
def _call(table: int, step: int) -> None:
    """Call a routine, once the addresses that are new in this run are among its arguments."""
    function, arguments, count, places = _word(step), _word(step + 8), _word(step + 16), _word(step + 24)
    words = step + 32
    place = words + 2 * _WORD * arguments
    for _ in range(places):
        write(words + _WORD * _word(place), _word(table + _WORD * _word(place + 8)) + _word(place + 16))
        place += 24
    repeat(function, arguments, words, words + _WORD * arguments, count)


@compiled("int64", "int64")
def _write_permutations(table: int, step: int) -> None:
    """Write the matrices P of P L U = A, given the rows, from 1, that LAPACK exchanged; ``one`` is a number's bits."""
    size, count, m, n, one, exchanged = (
        _word(step), _word(step + 8), _word(step + 16), _word(step + 24), _word(step + 32), _word(step + 40)
    )  # fmt: skip
    rows = _word(table + _WORD * _word(step + 48)) + _word(step + 56)
    order = _word(table + _WORD * _word(step + 64)) + _word(step + 72)
    step += 80
    target, batch, row, column = (
        _word(table + _WORD * _word(step)) + _word(step + 8), _word(step + 16), _word(step + 24), _word(step + 32)
    )  # fmt: skip
    for number in range(count):
        at, given = target + number * batch, rows + number * exchanged
        for i in range(m):
            write(order + 4 * i, i32(i))
        for i in range(n):
            other = _half(given + 4 * i) - 1
            if other >= 0 and other < m:  # a routine may tell of no row at all where numbers are NaN
                first, second = _half(order + 4 * i), _half(order + 4 * other)
                write(order + 4 * i, second)
                write(order + 4 * other, first)
        if column == size and row == m * size:
            _clear_line(size, m * m, at, column)
        else:
            for i in range(m):
                _clear_line(size, m, at + i * row, column)
        for i in range(m):
            place = at + _half(order + 4 * i) * row + i * column
            if size == 4:
                write(place, i32(one))
            else:
                write(place, one)


@compiled("int64", "int64", "int64", returns="boolean")
def _finds(table: int, step: int, code: int) -> bool:
    """Whether there is what a code tells to look for among some numbers."""
    is_nan = 1 if code == FIND_NAN else 0
    size, count, apart = _word(step), _word(step + 8), _word(step + 16)
    at = _word(table + _WORD * _word(step + 24)) + _word(step + 32)
    for _ in range(count):
        if _half(at) != 0 if code == FIND_NUMBER else _is_beyond(at, size, is_nan):
            return True
        at += apart
    return False


@compiled("int64", "int64", "int64", "int64", "int64", returns="boolean")
def run(table: int, first: int, second: int, third: int, fourth: int) -> bool:
    """Execute a sequence with up to four addresses; return whether it ended early."""
    write(table, first)
    write(table + _WORD, second)
    write(table + 2 * _WORD, third)
    write(table + 3 * _WORD, fourth)
    step = table + _WORD * (ADDRESSES + 2)
    for _ in range(_word(table + _WORD * (ADDRESSES + 1))):
        code = _word(step)
        if code == CALL:
            _call(table, step + 2 * _WORD)
        elif code == COPY:
            _copy(table, step + 2 * _WORD)
        elif code == PERMUTATION:
            _write_permutations(table, step + 2 * _WORD)
        elif _finds(table, step + 2 * _WORD, code):
            return True
        step += _WORD * _word(step + _WORD)
    return False
