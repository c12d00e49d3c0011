"""Fourier transforms of one signal after the other, the lanes of a vector being neighbours in it (Stockham).

The first pass has as many parts as a vector has lanes, so that vectors of all later passes are whole. Signals are read
in the first pass and written in the last; in between they are slots, complex vectors of neighbours. Addresses count
bytes. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from .arithmetic import compiled
from .butterflies import transformed
from .fourier import halve_signal, pair_signal
from .signals import COMPLEX as COMPLEX
from .signals import REAL, bytes_of, clear, lanes_of, multiply_row, word
from .slots import specialized
from .vectors import WIDTHS as WIDTHS
from .vectors import Vectors


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _begin(typing: Any, number: Any, is_exchanged: Any, source: Any, step: Any, target: Any) -> Any:
    """Transform as many parts as there are lanes, ``step`` bytes apart, of as many neighbours; write them as slots.

    The two parts of the numbers are exchanged first if so.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        v = Vectors(builder, signature.args[0].bitwidth // 8)
        source, step, target = args[2:]
        order = slice(None, None, -1 if signature.args[1].literal_value else 1)
        given = [v.apart(builder.add(source, v.scaled(part, step)))[order] for part in range(v.lanes)]
        real, imag = [v.transposed(part) for part in zip(*transformed(v, given), strict=True)]
        for number, value in enumerate(zip(real, imag, strict=True)):
            v.write_pair(value, v.moved(target, 2 * v.lanes * v.bytes * number))
        return context.get_dummy_value()

    return types.void(number, is_exchanged, *[types.int64] * 3), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _go_on(
    typing: Any, number: Any, radix: Any, source: Any, source_step: Any, target: Any, target_step: Any, twiddles: Any
) -> Any:  # fmt: skip
    """Multiply slots that are so many bytes apart by slots of factors, but the first, and transform them."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        v = Vectors(builder, signature.args[0].bitwidth // 8)
        values = _twiddled(v, signature.args[1].literal_value, args[2], args[3], args[6])
        for number, value in enumerate(values):
            v.write_pair(value, builder.add(args[4], v.scaled(number, args[5])))
        return context.get_dummy_value()

    return types.void(number, radix, *[types.int64] * 5), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _end(
    typing: Any, scale: Any, radix: Any, is_exchanged: Any, source: Any, source_step: Any, target: Any,
    target_step: Any, twiddles: Any,
) -> Any:  # fmt: skip
    """The same, with a factor, to numbers whose two parts are neighbours, and are exchanged if so."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        v = Vectors(builder, signature.args[0].bitwidth // 8)
        factor, order = v.spread(args[0]), slice(None, None, -1 if signature.args[2].literal_value else 1)
        values = _twiddled(v, signature.args[1].literal_value, args[3], args[4], args[7])
        for number, value in enumerate(values):
            real, imag = [v.times(part, factor) for part in value][order]
            v.write_together((real, imag), builder.add(args[5], v.scaled(number, args[6])))
        return context.get_dummy_value()

    return types.void(scale, radix, is_exchanged, *[types.int64] * 5), generate


def _twiddled(v: Vectors, radix: int, source: Any, step: Any, twiddles: Any) -> Any:
    given = [v.pair_at(v.builder.add(source, v.scaled(part, step))) for part in range(radix)]
    slot = 2 * v.lanes * v.bytes
    factors = [v.pair_at(v.moved(twiddles, slot * part)) for part in range(radix - 1)]
    return transformed(v, [given[0], *[v.product(a, b) for a, b in zip(given[1:], factors, strict=True)]])


@specialized
def _first(one: float, source: int, target: int, count: int, is_exchanged: int) -> None:
    """The first pass, of as many parts of ``count`` elements as a vector has lanes, to ``count`` slots."""
    most, size = lanes_of(one), bytes_of(one)
    for start in range(0, count, most):
        begin = min(start, count - most)
        origin, goal = source + begin * 2 * size, target + begin * 2 * most * size
        if is_exchanged:
            _begin(one, True, origin, count * 2 * size, goal)
        else:
            _begin(one, False, origin, count * 2 * size, goal)


def _pass(radix: int) -> Any:
    @specialized
    def run(one: float, source: int, target: int, slots: int, count: int, twiddles: int) -> None:
        """Make ``count`` transforms of ``radix`` * ``slots`` slots from ``radix`` times as many of ``slots``."""
        slot = 2 * lanes_of(one) * bytes_of(one)
        for j in range(slots):
            for k in range(count):
                _go_on(
                    one, radix, source + (k * slots + j) * slot, count * slots * slot,
                    target + (k * radix * slots + j) * slot, slots * slot, twiddles + (radix - 1) * slot * j,
                )  # fmt: skip

    return run


def _last(radix: int) -> Any:
    @specialized
    def run(scale: float, source: int, target: int, slots: int, twiddles: int, is_exchanged: int) -> None:
        """The last pass."""
        slot = 2 * lanes_of(scale) * bytes_of(scale)
        if is_exchanged:
            for j in range(slots):
                _end(
                    scale, radix, True, source + j * slot, slots * slot, target + j * slot, slots * slot,
                    twiddles + (radix - 1) * slot * j,
                )  # fmt: skip
            return
        for j in range(slots):
            _end(
                scale, radix, False, source + j * slot, slots * slot, target + j * slot, slots * slot,
                twiddles + (radix - 1) * slot * j,
            )  # fmt: skip

    return run


_pass2, _pass3, _pass4, _pass5, _pass7, _pass8 = [_pass(radix) for radix in (2, 3, 4, 5, 7, 8)]
_last3, _last4, _last5, _last8 = [_last(radix) for radix in (3, 4, 5, 8)]
PASSES, ENDS = (8, 7, 5, 4, 3, 2), (8, 5, 4, 3)
"""The radices that passes may have, and the last one."""


@specialized
def _signal(
    scale: float, one: float, source: int, target: int, n: int, is_backward: int, plan: int, memory: int
) -> None:  # fmt: skip
    """Transform ``n`` complex numbers; ``plan`` has the number of passes behind the first one, and for each its radix
    and the address of its factors; ``memory`` is two times as many slots."""
    most, number_bytes = lanes_of(one), 2 * bytes_of(one)
    _first(one, source, memory, n // most, is_backward)
    passes, slots, given, taken = word(plan, 0), 1, memory, memory + n * number_bytes + 64
    for number in range(passes - 1):
        radix, twiddles = word(plan, 1 + 2 * number), word(plan, 2 + 2 * number)
        count = n // (most * slots * radix)
        if radix == 8:
            _pass8(one, given, taken, slots, count, twiddles)
        elif radix == 4:
            _pass4(one, given, taken, slots, count, twiddles)
        elif radix == 5:
            _pass5(one, given, taken, slots, count, twiddles)
        elif radix == 3:
            _pass3(one, given, taken, slots, count, twiddles)
        elif radix == 7:
            _pass7(one, given, taken, slots, count, twiddles)
        else:
            _pass2(one, given, taken, slots, count, twiddles)
        slots *= radix
        given, taken = taken, given
    radix, twiddles = word(plan, 2 * passes - 1), word(plan, 2 * passes)
    if radix == 8:
        _last8(scale, given, target, slots, twiddles, is_backward)
    elif radix == 4:
        _last4(scale, given, target, slots, twiddles, is_backward)
    elif radix == 5:
        _last5(scale, given, target, slots, twiddles, is_backward)
    else:
        _last3(scale, given, target, slots, twiddles, is_backward)


@specialized
def _multiply(scale: float, source: int, factors: int, target: int, n: int) -> None:
    """Write ``n`` products of complex numbers, at least as many as a vector has lanes."""
    most, number_bytes = lanes_of(scale), 2 * bytes_of(scale)
    for start in range(0, n, most):
        place = min(start, n - most) * number_bytes
        multiply_row(scale, source + place, factors + place, target + place)


@specialized
def _convolve(
    scale: float, one: float, source: int, target: int, n: int, padded: int, tables: int, plan: int, memory: int
) -> None:  # fmt: skip
    """Transform ``n`` numbers by a convolution of ``padded`` ones (Bluestein), given the addresses of factors.

    Those of the signal and of the result are the first, and those of the other side's transform the second.
    """
    most, number_bytes = lanes_of(one), 2 * bytes_of(one)
    chirp, kernel = word(tables, 0), word(tables, 1)
    given = memory + 2 * padded * number_bytes + 64
    taken = given + (padded + most) * number_bytes
    _multiply(one, source, chirp, given, n)
    for place in range(n * number_bytes, padded * number_bytes, most * number_bytes // 2):
        clear(one, given + place)
    _signal(one, one, given, taken, padded, 0, plan, memory)
    _multiply(one, taken, kernel, taken, padded)
    _signal(one, one, taken, given, padded, 1, plan, memory)
    _multiply(scale, given, chirp, target, n)


@specialized
def _whole_signal(
    scale: float, one: float, source: int, target: int, n: int, is_backward: int, plan: int, memory: int
) -> None:  # fmt: skip
    """Transform ``n`` complex numbers, by a convolution where the plan says so."""
    padded = word(plan, 6)
    if padded > n:
        _convolve(scale, one, source, target, n, padded, plan + 56, plan + 72, memory)
    else:
        _signal(scale, one, source, target, n, is_backward, plan + 72, memory)


@specialized
def _signals(
    scale: float, one: float, plan: int, source: int, target: int, memory: int, spare: int, begin: int, end: int
) -> None:  # fmt: skip
    kind, is_backward, n, halves = word(plan, 0), word(plan, 1), word(plan, 2), word(plan, 5)
    for signal in range(begin, end):
        origin, goal = source + signal * word(plan, 3), target + signal * word(plan, 4)
        if kind == COMPLEX:
            _whole_signal(scale, one, origin, goal, n, is_backward, plan, memory)
        elif kind == REAL:
            _whole_signal(one, one, origin, spare, n, is_backward, plan, memory)
            halve_signal(scale, one, spare, goal, n, halves)
        else:
            pair_signal(one, origin, spare, n, halves)
            _whole_signal(scale, one, spare, goal, n, is_backward, plan, memory)


@compiled("float32", "float32", *["int64"] * 7)
def _single(
    scale: float, one: float, plan: int, source: int, target: int, memory: int, spare: int, begin: int, end: int
) -> None:  # fmt: skip
    _signals(scale, one, plan, source, target, memory, spare, begin, end)


@compiled("float64", "float64", *["int64"] * 7)
def _double(
    scale: float, one: float, plan: int, source: int, target: int, memory: int, spare: int, begin: int, end: int
) -> None:  # fmt: skip
    _signals(scale, one, plan, source, target, memory, spare, begin, end)


transform = {"F": _single, "D": _double}
"""Transform signals ``begin`` to ``end``, by the complex type's character.

``scale`` is a factor of the result, ``one`` is 1; the rest are addresses. ``plan`` has integers: the kind of signals,
whether the transform is backward, n (half the length of real signals), the bytes from signal to signal of source and
target, the address of exp(-2 pi i k / 2 n) for the first half of n and a vector more, the length of the convolution by
which they are transformed, or n, the addresses of the convolution's two tables of factors, and what ``_signal`` is told
of passes. That length has at least as many elements as a vector of vectors has lanes, and n twice as many as a vector.
``memory`` is scratch memory for twice that length of numbers and 64 bytes, and for four times that length and two
vectors of numbers more if there is a convolution, ``spare`` for n + 1 unless signals are complex.
"""
