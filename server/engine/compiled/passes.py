"""Passes of small Fourier transforms over slots: complex vectors, every lane of which has another signal (Stockham).

Addresses count bytes. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from typing import Any

from .butterflies import add_odd, butterfly, transform_complex
from .signals import add_slots, bytes_of, clear, copy_slot, lanes_of, multiply, number_at, turn, word
from .slots import read_lanes, specialized, write_lanes
from .tiles import write

Signals = tuple[int, int, int, int, int, int, int]
"""Where signals are: address, step between elements, step between signals, how many they are, and where in a slot their
real and imaginary parts go, and how many bytes further on the next ones are, or 0; the address is 0 if they are in
slots."""
ROOM = 96
"""Slots at the beginning of a transform's memory for what stays in the first-level cache."""
PAD = 64
"""Bytes between slots and others, so that they do not begin at the same place of a page."""


def _pass(radix: int) -> Any:
    @specialized
    def run(one: float, source: int, target: int, length: int, count: int, twiddles: int) -> None:
        """Make ``count`` transforms of ``radix`` * ``length`` from ``radix`` times as many of ``length``."""
        size = bytes_of(one)
        slot = 2 * size * lanes_of(one)
        if length == 1:
            for k in range(count):
                butterfly(
                    one, radix, False, source + k * slot, count * slot, target + k * radix * slot, slot, twiddles
                )  # fmt: skip
            return
        for k in range(count):
            for j in range(length):
                butterfly(
                    one, radix, True, source + (k * length + j) * slot, count * length * slot,
                    target + (k * radix * length + j) * slot, length * slot, twiddles + 2 * size * (radix - 1) * j,
                )  # fmt: skip

    return run


def _first(radix: int) -> Any:
    @specialized
    def run(one: float, given: Signals, target: int, count: int, room: int, block: int) -> None:
        """The first pass, ``block`` elements of all signals at a time, of each of its parts."""
        source, step, lane_step, lanes, first, second, ahead = given
        slot = 2 * lanes_of(one) * bytes_of(one)
        for start in range(0, count, block):
            begin = min(start, count - block)
            for q in range(radix):
                read_lanes(
                    one, source + (q * count + begin) * step, step, lane_step, lanes, block, room + q * block * slot,
                    first, second, ahead,
                )  # fmt: skip
            for k in range(block):
                butterfly(
                    one, radix, False, room + k * slot, block * slot, target + (begin + k) * radix * slot, slot, 0
                )  # fmt: skip

    return run


def _last(radix: int) -> Any:
    @specialized
    def run(
        scale: float, one: float, source: int, wanted: Signals, between: int, length: int, twiddles: int, room: int,
        block: int,
    ) -> None:  # fmt: skip
        """The last pass, whose results are multiplied by ``between``, vectors of factors, if that is not 0."""
        target, step, lane_step, lanes, first, second, ahead = wanted
        size = bytes_of(one)
        slot = 2 * lanes_of(one) * size
        for start in range(0, length, block):
            begin = min(start, length - block)
            for j in range(block):
                butterfly(
                    one, radix, True, source + (begin + j) * slot, length * slot, room + j * slot, block * slot,
                    twiddles + 2 * size * (radix - 1) * (begin + j),
                )  # fmt: skip
            for p in range(radix):
                k = p * length + begin
                if between:
                    for j in range(block):
                        turn(one, room + (p * block + j) * slot, between + (k + j) * slot, target + (k + j) * step)
                else:
                    write_lanes(
                        scale, room + p * block * slot, first, second, target + k * step, step, lane_step, lanes, block,
                        ahead,
                    )  # fmt: skip

    return run


_pass2, _pass3, _pass4, _pass5, _pass7, _pass8, _pass11, _pass13 = [_pass(r) for r in (2, 3, 4, 5, 7, 8, 11, 13)]
_first3, _first4, _first5, _first8 = [_first(r) for r in (3, 4, 5, 8)]
_last3, _last4, _last5, _last8 = [_last(r) for r in (3, 4, 5, 8)]
MOST_FIXED = 13
"""The largest radix whose instructions are written one by one; larger ones are odd."""


@specialized
def _pass_odd(
    one: float, radix: int, source: int, target: int, length: int, count: int, roots: int, twiddles: int, room: int
) -> None:  # fmt: skip
    """A pass of an odd radix, given its roots of unity."""
    size = bytes_of(one)
    slot = 2 * size * lanes_of(one)
    half = radix // 2
    for k in range(count):
        for j in range(length):
            origin, step = source + (k * length + j) * slot, count * length * slot
            goal, stride = target + (k * radix * length + j) * slot, length * slot
            factors = twiddles + 2 * size * (radix - 1) * j
            copy_slot(one, origin, room)
            for q in range(1, half + 1):
                add_slots(
                    one, origin + q * step, origin + (radix - q) * step, factors + 2 * size * (q - 1),
                    factors + 2 * size * (radix - q - 1), room + (2 * q - 1) * slot, room,
                )  # fmt: skip
            copy_slot(one, room, goal)
            for p in range(1, half + 1):
                add_odd(
                    one,
                    origin,
                    room + slot,
                    half,
                    roots + 2 * size * half * (p - 1),
                    goal + p * stride,
                    goal + (radix - p) * stride,
                )


@specialized
def _only_pass(one: float, radix: int, source: int, target: int) -> None:
    """All of a transform of a length that is a radix only of transforms of that length."""
    if radix == 16:
        transform_complex(one, 16, source, target)
    elif radix == 12:
        transform_complex(one, 12, source, target)
    elif radix == 10:
        transform_complex(one, 10, source, target)
    elif radix == 6:
        transform_complex(one, 6, source, target)
    elif radix == 9:
        transform_complex(one, 9, source, target)
    elif radix == 15:
        transform_complex(one, 15, source, target)
    else:
        transform_complex(one, 14, source, target)


@specialized
def _pass_any(
    one: float, radix: int, source: int, target: int, length: int, count: int, twiddles: int, room: int
) -> int:  # fmt: skip
    """A pass; returns where the next one's twiddles are."""
    size = bytes_of(one)
    if radix == 8:
        _pass8(one, source, target, length, count, twiddles)
    elif radix == 4:
        _pass4(one, source, target, length, count, twiddles)
    elif radix == 5:
        _pass5(one, source, target, length, count, twiddles)
    elif radix == 3:
        _pass3(one, source, target, length, count, twiddles)
    elif radix == 2:
        _pass2(one, source, target, length, count, twiddles)
    elif radix == 7:
        _pass7(one, source, target, length, count, twiddles)
    elif radix == 11:
        _pass11(one, source, target, length, count, twiddles)
    elif radix == 13:
        _pass13(one, source, target, length, count, twiddles)
    elif radix <= 16:
        _only_pass(one, radix, source, target)
    else:
        roots = twiddles
        twiddles += 2 * size * (radix // 2) ** 2
        _pass_odd(one, radix, source, target, length, count, roots, twiddles, room)
        behind: int = twiddles + 2 * size * (radix - 1) * length
        return behind
    following: int = twiddles + (2 * size * (radix - 1) * length if length > 1 else 0)
    return following


@specialized
def passes(
    scale: float, one: float, factors: int, number: int, twiddles: int, total: int, memory: int, place: int,
    given: Signals, wanted: Signals, between: int,
) -> int:  # fmt: skip
    """Transform slots of ``total`` elements, the product of so many integers at the address ``factors``.

    Signals are read from ``given`` and written to ``wanted`` on the way where these have addresses. ``memory`` is room,
    and two times as many slots, in the first or second of which, as ``place`` says, they are else; in which they are
    then is returned. ``scale`` and the vectors ``between`` multiply what is written.
    """
    most, number_bytes = lanes_of(one), 2 * bytes_of(one)
    slot = most * number_bytes
    room, slots = memory, memory + ROOM * slot
    both = (slots, slots + (total + 1) * slot + PAD)
    last = number - 1
    length, begin = 1, 0
    if given[0]:
        radix = word(factors, 0) if number else 0
        count = total // max(radix, 1)
        block = min(most // 2, count) if given[2] == number_bytes else most // 2
        if count < block or not (radix == 8 or radix == 5 or radix == 4 or radix == 3):
            read_lanes(one, given[0], given[1], given[2], given[3], total, both[place], given[4], given[5], given[6])
        else:
            if radix == 8:
                _first8(one, given, both[place], count, room, block)
            elif radix == 5:
                _first5(one, given, both[place], count, room, block)
            elif radix == 4:
                _first4(one, given, both[place], count, room, block)
            else:
                _first3(one, given, both[place], count, room, block)
            length, begin = radix, 1
    for at in range(begin, number):
        radix = word(factors, at)
        source = both[place]
        block = min(most // 2, length) if wanted[2] == number_bytes else most // 2
        if at == last and at and wanted[0] and length >= block and (not between or wanted[3] == most):
            if radix == 8:
                _last8(scale, one, source, wanted, between, length, twiddles, room, block)
                return place
            elif radix == 5:
                _last5(scale, one, source, wanted, between, length, twiddles, room, block)
                return place
            elif radix == 4:
                _last4(scale, one, source, wanted, between, length, twiddles, room, block)
                return place
            elif radix == 3:
                _last3(scale, one, source, wanted, between, length, twiddles, room, block)
                return place
        count = total // (length * radix)
        place = 1 - place
        twiddles = _pass_any(one, radix, source, both[place], length, count, twiddles, room)
        length *= radix
    if wanted[0]:
        _write(scale, one, both[place], wanted, total, between, room)
    return place


@specialized
def _write(scale: float, one: float, source: int, wanted: Signals, count: int, between: int, room: int) -> None:
    """Write signals from slots."""
    target, step, lane_step, lanes, first, second, ahead = wanted
    if not between:
        write_lanes(scale, source, first, second, target, step, lane_step, lanes, count, ahead)
        return
    size, most = bytes_of(one), lanes_of(one)
    slot = 2 * size * most
    for k in range(count):
        if lanes == most:
            turn(one, source + k * slot, between + k * slot, target + k * step)
            continue
        turn(one, source + k * slot, between + k * slot, room)
        for part in range(0, 2 * lanes * size, size):
            write(target + k * step + part, number_at(one, room + part))


@specialized
def convolve(
    one: float, n: int, factors: int, number: int, tables: int, padded: int, memory: int, place: int
) -> int:  # fmt: skip
    """Transform ``n`` slots by a convolution of ``padded`` ones (Bluestein); arguments are as those of ``passes``.

    ``tables`` is the address of those of five tables: the twiddles', another one, and what the signal, the transform of
    the other side and the result are multiplied by.
    """
    size = bytes_of(one)
    vector = size * lanes_of(one)
    slot, chirp, kernel, inverse = 2 * vector, word(tables, 2), word(tables, 3), word(tables, 4)
    twiddles = word(tables, 0)
    slots = memory + ROOM * slot
    both = (slots, slots + (padded + 1) * slot + PAD)
    nowhere = (0, 0, 0, 0, 0, 0, 0)
    for k in range(n):
        multiply(one, both[place] + k * slot, chirp + 2 * size * k, both[place] + k * slot, 0, vector)
    for part in range(2 * n, 2 * padded):
        clear(one, both[place] + part * vector)
    place = passes(one, one, factors, number, twiddles, padded, memory, place, nowhere, nowhere, 0)
    results = both[place]
    for k in range(padded):
        multiply(one, results + k * slot, kernel + 2 * size * k, results + k * slot, vector, 0)
    place = passes(one, one, factors, number, twiddles, padded, memory, place, nowhere, nowhere, 0)
    results = both[place]
    for k in range(n):
        multiply(one, results + k * slot, inverse + 2 * size * k, results + k * slot, vector, 0)
    return place
