"""Reading and writing the signals of Fourier transforms, of which every lane of a vector has another one.

In memory of our own element k of the signals is a complex vector, a slot. ``first`` and ``second`` are where in a slot
the real and the imaginary parts are, in bytes: exchanged, they make a backward transform of a forward one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .vectors import LONG, WIDTHS, Pair, Vectors

COMPLEX, REAL, HERMITIAN, REAL_WHOLE, HERMITIAN_WHOLE = range(5)
"""What a signal is: complex numbers, pairs of real ones, or the first half of the transform of such; real numbers one
by one, and the first half of the transform of these."""


def instructions(write: Callable[..., None]) -> Any:
    """Make a function of ``write``, which writes its instructions. Its first argument is a number of the type.

    That one is a factor where a factor is wanted; the other arguments are integers.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write(Vectors(builder, signature.args[0].bitwidth // 8), *args)
        return context.get_dummy_value()

    def function(typing: Any, factor: Any, *given: Any) -> Any:
        return types.void(factor, *given), generate

    function.__signature__ = inspect.signature(write)  # type: ignore[attr-defined]
    return intrinsic(function)


@intrinsic  # type: ignore[untyped-decorator]
def lanes_of(typing: Any, number: Any) -> Any:
    """How many numbers of this type a vector has, which is known when this is compiled."""
    lanes = WIDTHS[number.bitwidth // 8]
    return types.int64(number), lambda context, builder, signature, args: ir.Constant(LONG, lanes)


@intrinsic  # type: ignore[untyped-decorator]
def bytes_of(typing: Any, number: Any) -> Any:
    """How many bytes such a number has."""
    size = number.bitwidth // 8
    return types.int64(number), lambda context, builder, signature, args: ir.Constant(LONG, size)


@instructions
def read_rows(
    v: Vectors, _: Any, source: Any, lane_step: Any, last: Any, target: Any, first: Any, second: Any, ahead: Any
) -> None:  # fmt: skip
    """Signals one behind the other: as many numbers of each as a vector has lanes, which are half as many slots.

    What is ``ahead`` bytes further on will be read next.
    """
    rows = [v.load(address) for address in _rows(v, source, lane_step, last, ahead, False)]
    for number, vector in enumerate(v.transposed(rows)):
        slot = v.moved(target, number // 2 * 2 * v.lanes * v.bytes)
        v.store(vector, v.builder.add(slot, second if number % 2 else first))


@instructions
def write_rows(
    v: Vectors, scale: Any, source: Any, first: Any, second: Any, target: Any, lane_step: Any, last: Any, ahead: Any
) -> None:  # fmt: skip
    """Write what ``read_rows`` has read back to signals one behind the other, times a factor."""
    factor, vectors = v.spread(scale), []
    for number in range(v.lanes):
        slot = v.moved(source, number // 2 * 2 * v.lanes * v.bytes)
        vectors.append(v.times(v.load(v.builder.add(slot, second if number % 2 else first)), factor))
    rows = v.transposed(vectors)
    for row, address in _last_first(rows, _rows(v, target, lane_step, last, ahead, True)):
        v.store(row, address)


@instructions
def read_short_rows(
    v: Vectors, _: Any, source: Any, lane_step: Any, last: Any, count: Any, target: Any, first: Any, second: Any,
    ahead: Any,
) -> None:  # fmt: skip
    """Read signals one behind the other that have only ``count`` numbers.

    What is in the slots behind them is of no meaning.
    """
    mask = v.first_lanes(v.builder.add(count, count))
    rows = [v.load_lanes(address, mask) for address in _rows(v, source, lane_step, last, ahead, False)]
    for number, vector in enumerate(v.transposed(rows)):
        slot = v.moved(target, number // 2 * 2 * v.lanes * v.bytes)
        v.store(vector, v.builder.add(slot, second if number % 2 else first))


@instructions
def write_short_rows(
    v: Vectors, scale: Any, source: Any, first: Any, second: Any, target: Any, lane_step: Any, last: Any, count: Any,
    ahead: Any,
) -> None:  # fmt: skip
    """Write what ``read_short_rows`` has read back to signals of ``count`` numbers, times a factor."""
    factor, vectors = v.spread(scale), []
    for number in range(v.lanes):
        slot = v.moved(source, number // 2 * 2 * v.lanes * v.bytes)
        vectors.append(v.times(v.load(v.builder.add(slot, second if number % 2 else first)), factor))
    mask = v.first_lanes(v.builder.add(count, count))
    for row, address in _last_first(v.transposed(vectors), _rows(v, target, lane_step, last, ahead, True)):
        v.store_lanes(row, address, mask)


@instructions
def read_real_rows(
    v: Vectors, _: Any, source: Any, lane_step: Any, last: Any, count: Any, target: Any, ahead: Any
) -> None:  # fmt: skip
    """Real signals one behind the other: at most as many numbers of each as a vector has lanes, a slot's part for each.

    Where there are fewer, what is in the slots behind them is of no meaning.
    """
    mask = v.first_lanes(count)
    rows = [v.load_lanes(address, mask) for address in _rows(v, source, lane_step, last, ahead, False)]
    for number, vector in enumerate(v.transposed(rows)):
        v.store(vector, v.moved(target, number * 2 * v.lanes * v.bytes))


@instructions
def write_real_rows(
    v: Vectors, scale: Any, source: Any, target: Any, lane_step: Any, last: Any, count: Any, ahead: Any
) -> None:  # fmt: skip
    """Write what ``read_real_rows`` has read back to real signals one behind the other, times a factor."""
    factor, mask = v.spread(scale), v.first_lanes(count)
    slots = [v.load(v.moved(source, number * 2 * v.lanes * v.bytes)) for number in range(v.lanes)]
    rows = v.transposed([v.times(slot, factor) for slot in slots])
    for row, address in _last_first(rows, _rows(v, target, lane_step, last, ahead, True)):
        v.store_lanes(row, address, mask)


def _rows(v: Vectors, start: Any, step: Any, last: Any, ahead: Any, is_written: bool) -> list[Any]:
    """Addresses of rows; lanes after the last signal have that one, too. What is so many bytes ahead is fetched."""
    addresses = []
    for lane in range(v.lanes):
        number = ir.Constant(LONG, lane)
        is_there = v.builder.icmp_signed("<", number, last)
        row = v.builder.select(is_there, number, last)
        addresses.append(v.builder.add(start, v.builder.mul(row, step)))
        v.prefetch(v.builder.add(addresses[-1], ahead), is_written)
    return addresses


def _last_first(rows: list[Any], addresses: list[Any]) -> list[tuple[Any, Any]]:
    """Rows to be written: those that are no signal's first, so that the last signal's own row is written after them."""
    return list(zip(rows, addresses, strict=True))[::-1]


@instructions
def transpose_block(v: Vectors, _: Any, source: Any, source_step: Any, target: Any, target_step: Any) -> None:
    """Copy a square of numbers, as wide as a vector, so that its rows become columns; steps are from row to row."""
    rows = [v.load(v.builder.add(source, v.scaled(number, source_step))) for number in range(v.lanes)]
    for number, column in enumerate(v.transposed(rows)):
        v.store(column, v.builder.add(target, v.scaled(number, target_step)))


@instructions
def read_side(v: Vectors, _: Any, source: Any, target: Any, first: Any, second: Any) -> None:
    """One element of signals that lie side by side, complex numbers."""
    _prefetch_next(v, source, False)
    real, imag = v.apart(source)
    v.store(real, v.builder.add(target, first))
    v.store(imag, v.builder.add(target, second))


@instructions
def write_side(v: Vectors, scale: Any, source: Any, first: Any, second: Any, target: Any) -> None:
    """Write what ``read_side`` has read back to signals that lie side by side, times a factor."""
    factor = v.spread(scale)
    value = [v.times(v.load(v.builder.add(source, part)), factor) for part in (first, second)]
    v.write_together((value[0], value[1]), target)
    _prefetch_next(v, target, True)


@instructions
def read_part_of_side(v: Vectors, _: Any, source: Any, lanes: Any, target: Any, first: Any, second: Any) -> None:
    """One element of fewer signals than a vector has lanes."""
    numbers = v.builder.add(lanes, lanes)
    a = v.load_lanes(source, v.first_lanes(numbers))
    rest = v.builder.sub(numbers, ir.Constant(LONG, v.lanes))
    b = v.load_lanes(v.moved(source, v.lanes * v.bytes), v.first_lanes(rest))
    even = range(0, 2 * v.lanes, 2)
    v.store(v.shuffle(a, b, even), v.builder.add(target, first))
    v.store(v.shuffle(a, b, [lane + 1 for lane in even]), v.builder.add(target, second))


@instructions
def write_part_of_side(
    v: Vectors, scale: Any, source: Any, first: Any, second: Any, target: Any, lanes: Any
) -> None:  # fmt: skip
    """Write what ``read_part_of_side`` has read back to fewer signals than a vector has lanes, times a factor."""
    factor, numbers = v.spread(scale), v.builder.add(lanes, lanes)
    real, imag = [v.times(v.load(v.builder.add(source, part)), factor) for part in (first, second)]
    order = [lane + part * v.lanes for lane in range(v.lanes) for part in (0, 1)]
    rest = v.builder.sub(numbers, ir.Constant(LONG, v.lanes))
    v.store_lanes(v.shuffle(real, imag, order[: v.lanes]), target, v.first_lanes(numbers))
    behind = v.moved(target, v.lanes * v.bytes)
    v.store_lanes(v.shuffle(real, imag, order[v.lanes :]), behind, v.first_lanes(rest))


def _prefetch_next(v: Vectors, address: Any, is_written: bool) -> None:
    """Have the same element of the next signals be fetched."""
    for part in (2, 3):
        v.prefetch(v.moved(address, part * v.lanes * v.bytes), is_written)


@instructions
def move(v: Vectors, scale: Any, source: Any, target: Any) -> None:
    """One vector, with a factor: real numbers of signals that lie side by side."""
    v.store(v.times(v.load(source), v.spread(scale)), target)


@instructions
def move_part(v: Vectors, scale: Any, source: Any, target: Any, lanes: Any) -> None:
    """The same of fewer signals than a vector has lanes."""
    mask = v.first_lanes(lanes)
    v.store_lanes(v.times(v.load_lanes(source, mask), v.spread(scale)), target, mask)


@instructions
def turn(v: Vectors, _: Any, source: Any, factors: Any, target: Any) -> None:
    """Write the product of a slot and a vector of factors as numbers whose two parts are neighbours."""
    v.write_together(v.product(v.pair_at(source), v.pair_at(factors)), target)


@instructions
def multiply(v: Vectors, _: Any, source: Any, factor: Any, target: Any, first: Any, second: Any) -> None:
    """Write the product of a slot, and a number by which all its lanes are multiplied, to a slot."""
    real, imag = v.product(v.pair_at(source), v.number_at(factor))
    v.store(real, v.builder.add(target, first))
    v.store(imag, v.builder.add(target, second))


@instructions
def multiply_row(v: Vectors, scale: Any, source: Any, factors: Any, target: Any) -> None:
    """Write products of numbers whose two parts are neighbours, as many as a vector has lanes, with one more factor."""
    product, factor = v.product(v.apart(source), v.apart(factors)), v.spread(scale)
    v.write_together((v.times(product[0], factor), v.times(product[1], factor)), target)


@instructions
def copy_slot(v: Vectors, _: Any, source: Any, target: Any) -> None:
    """Copy a slot."""
    v.write_pair(v.pair_at(source), target)


@instructions
def add_slots(
    v: Vectors, _: Any, a: Any, b: Any, by_a: Any, by_b: Any, target: Any, total: Any
) -> None:  # fmt: skip
    """Write the sum and the difference of two slots, which are multiplied by numbers; add the sum to a total."""
    x, y = v.product(v.pair_at(a), v.number_at(by_a)), v.product(v.pair_at(b), v.number_at(by_b))
    sums = v.plus(x, y)
    v.write_pair(sums, target)
    v.write_pair(v.minus(x, y), v.moved(target, 2 * v.lanes * v.bytes))
    v.write_pair(v.plus(v.pair_at(total), sums), total)


@instructions
def clear(v: Vectors, _: Any, target: Any) -> None:
    """Write a vector of zeros."""
    v.store(v.constant(0.0), target)


@intrinsic  # type: ignore[untyped-decorator]
def number_at(typing: Any, number: Any, address: Any) -> Any:
    """The number of this type at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        v = Vectors(builder, signature.args[0].bitwidth // 8)
        return v.load(args[1], v.number)

    return number(number, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def word(typing: Any, address: Any, place: Any) -> Any:
    """The integer at a place of an array of them."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        moved = builder.add(args[0], builder.mul(args[1], LONG(8)))
        return builder.load(builder.inttoptr(moved, LONG.as_pointer()))

    return types.int64(types.int64, types.int64), generate


@instructions
def mirror(v: Vectors, _: Any, source: Any, target: Any, first: Any, second: Any) -> None:
    """Write the conjugate of a slot to another one."""
    v.store(v.load(v.builder.add(source, first)), v.builder.add(target, first))
    v.store(v.negative(v.load(v.builder.add(source, second))), v.builder.add(target, second))


def _halves(v: Vectors, a: Pair, b: Pair, factor: Pair) -> tuple[Pair, Pair]:
    """Elements k and m - k of the transform of 2 m real numbers, by those of the transform of their pairs."""
    half = v.constant(0.5)
    conjugate = b[0], v.negative(b[1])
    even = [v.times(part, half) for part in v.plus(a, conjugate)]
    difference = [v.times(part, half) for part in v.minus(a, conjugate)]
    odd = v.product((difference[1], v.negative(difference[0])), factor)
    low, high = v.plus((even[0], even[1]), odd), v.minus((even[0], even[1]), odd)
    return low, (high[0], v.negative(high[1]))


def _pairs(v: Vectors, a: Pair, b: Pair, factor: Pair) -> tuple[Pair, Pair]:
    """Twice the elements k and m - k of the transform of pairs, by those of the transform of 2 m real numbers."""
    conjugate = b[0], v.negative(b[1])
    even = v.plus(a, conjugate)
    odd = v.product(v.minus(a, conjugate), (factor[0], v.negative(factor[1])))
    turned = v.negative(odd[1]), odd[0]
    low, high = v.plus(even, turned), v.minus(even, turned)
    return low, (high[0], v.negative(high[1]))


def _by_slots(compute: Callable[..., tuple[Pair, Pair]]) -> Any:
    @instructions
    def function(
        v: Vectors, _: Any, a: Any, b: Any, factor: Any, low: Any, high: Any, first: Any, second: Any
    ) -> None:  # fmt: skip
        results = compute(v, v.pair_at(a), v.pair_at(b), v.number_at(factor))
        for (real, imag), target in zip(results, (low, high), strict=True):
            v.store(real, v.builder.add(target, first))
            v.store(imag, v.builder.add(target, second))

    return function


def _by_numbers(compute: Callable[..., tuple[Pair, Pair]]) -> Any:
    @instructions
    def function(v: Vectors, scale: Any, a: Any, b: Any, factors: Any, low: Any, high: Any) -> None:
        factor = v.spread(scale)
        results = compute(v, v.apart(a), v.reversed(v.apart(b)), v.apart(factors))
        for result, target in zip((results[0], v.reversed(results[1])), (low, high), strict=True):
            v.write_together((v.times(result[0], factor), v.times(result[1], factor)), target)

    return function


halve, pair = _by_slots(_halves), _by_slots(_pairs)
"""Compute slots k and m - k of one from those of the other, given the factor exp(-2 pi i k / 2 m)."""
halve_row, pair_row = _by_numbers(_halves), _by_numbers(_pairs)
"""The same of one signal: for as many k, counted on from ``a`` and back to ``b``, as a vector has lanes.

Addresses are those of the first numbers in memory, whose two parts are neighbours.
"""
