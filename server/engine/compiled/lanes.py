"""Fourier transforms of many signals, one in every lane of a vector.

Addresses and steps count bytes. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from .arithmetic import compiled
from .butterflies import transform_complex, transform_hermitian, transform_real
from .passes import PAD, ROOM, Signals, convolve, passes
from .signals import (
    COMPLEX,
    HERMITIAN,
    HERMITIAN_WHOLE,
    REAL,
    REAL_WHOLE,
    bytes_of,
    clear,
    halve,
    lanes_of,
    mirror,
    pair,
    word,
)  # fmt: skip
from .slots import read_lanes, read_numbers, read_real, specialized, write_lanes, write_numbers, write_real
from .vectors import WIDTHS as WIDTHS

MOST_WHOLE = 16
"""The most numbers of a signal whose transform is all in registers."""


@specialized
def _read_halves(
    one: float, given: Signals, n: int, halves: int, slots: int, first: int, second: int, room: int
) -> None:  # fmt: skip
    """Read n + 1 numbers of each signal, and write what the transform of pairs of real numbers is made from.

    The imaginary parts of the first and the last number are not looked at.
    """
    source, step, lane_step, lanes, _, _, ahead = given
    size, block = bytes_of(one), lanes_of(one) // 2
    vector, slot = 2 * block * size, 4 * block * size
    block = min(block, n // 2 + 1)
    high = room + block * slot
    for start in range(0, n // 2 + 1, block):
        begin = min(start, n // 2 + 1 - block)
        end = n - begin - block + 1
        read_lanes(one, source + begin * step, step, lane_step, lanes, block, room, 0, vector, ahead)
        read_lanes(one, source + end * step, step, lane_step, lanes, block, high, 0, vector, ahead)
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
    target, step, lane_step, lanes, _, _, ahead = wanted
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
        write_lanes(scale, room, 0, vector, target + begin * step, step, lane_step, lanes, block, ahead)
        write_lanes(scale, high, 0, vector, target + end * step, step, lane_step, lanes, block, ahead)


@specialized
def _few_complex(one: float, n: int, source: int, target: int) -> None:
    if n == 2:
        transform_complex(one, 2, source, target)
    elif n == 3:
        transform_complex(one, 3, source, target)
    elif n == 4:
        transform_complex(one, 4, source, target)
    elif n == 5:
        transform_complex(one, 5, source, target)
    elif n == 6:
        transform_complex(one, 6, source, target)
    elif n == 7:
        transform_complex(one, 7, source, target)
    elif n == 8:
        transform_complex(one, 8, source, target)
    elif n == 9:
        transform_complex(one, 9, source, target)
    elif n == 10:
        transform_complex(one, 10, source, target)
    elif n == 11:
        transform_complex(one, 11, source, target)
    elif n == 12:
        transform_complex(one, 12, source, target)
    elif n == 13:
        transform_complex(one, 13, source, target)
    elif n == 14:
        transform_complex(one, 14, source, target)
    elif n == 15:
        transform_complex(one, 15, source, target)
    else:
        transform_complex(one, 16, source, target)


@specialized
def _few_real(one: float, n: int, source: int, target: int) -> None:
    if n == 2:
        transform_real(one, 2, source, target)
    elif n == 3:
        transform_real(one, 3, source, target)
    elif n == 4:
        transform_real(one, 4, source, target)
    elif n == 5:
        transform_real(one, 5, source, target)
    elif n == 6:
        transform_real(one, 6, source, target)
    elif n == 7:
        transform_real(one, 7, source, target)
    elif n == 8:
        transform_real(one, 8, source, target)
    elif n == 9:
        transform_real(one, 9, source, target)
    elif n == 10:
        transform_real(one, 10, source, target)
    elif n == 11:
        transform_real(one, 11, source, target)
    elif n == 12:
        transform_real(one, 12, source, target)
    elif n == 13:
        transform_real(one, 13, source, target)
    elif n == 14:
        transform_real(one, 14, source, target)
    elif n == 15:
        transform_real(one, 15, source, target)
    else:
        transform_real(one, 16, source, target)


@specialized
def _few_hermitian(one: float, n: int, source: int, target: int) -> None:
    if n == 2:
        transform_hermitian(one, 2, source, target)
    elif n == 3:
        transform_hermitian(one, 3, source, target)
    elif n == 4:
        transform_hermitian(one, 4, source, target)
    elif n == 5:
        transform_hermitian(one, 5, source, target)
    elif n == 6:
        transform_hermitian(one, 6, source, target)
    elif n == 7:
        transform_hermitian(one, 7, source, target)
    elif n == 8:
        transform_hermitian(one, 8, source, target)
    elif n == 9:
        transform_hermitian(one, 9, source, target)
    elif n == 10:
        transform_hermitian(one, 10, source, target)
    elif n == 11:
        transform_hermitian(one, 11, source, target)
    elif n == 12:
        transform_hermitian(one, 12, source, target)
    elif n == 13:
        transform_hermitian(one, 13, source, target)
    elif n == 14:
        transform_hermitian(one, 14, source, target)
    elif n == 15:
        transform_hermitian(one, 15, source, target)
    else:
        transform_hermitian(one, 16, source, target)


@specialized
def _whole_real(one: float, n: int, factors: int, number: int, tables: int, padded: int, memory: int) -> int:
    """Transform slots of real numbers; return which of both results are in."""
    size, most = bytes_of(one), lanes_of(one)
    vector, slot = size * most, 2 * size * most
    slots = memory + ROOM * slot
    if 1 < n <= MOST_WHOLE:
        _few_real(one, n, slots, slots + (padded + 1) * slot + PAD)
        return 1
    for k in range(n):
        clear(one, slots + k * slot + vector)
    place: int = _from_slots(one, n, factors, number, tables, padded, memory)
    return place


@specialized
def _whole_hermitian(one: float, n: int, factors: int, number: int, tables: int, padded: int, memory: int) -> int:
    """Transform slots of the first half of Hermitian signals, whose two parts are exchanged, to real numbers."""
    size, most = bytes_of(one), lanes_of(one)
    vector, slot = size * most, 2 * size * most
    slots = memory + ROOM * slot
    if 1 < n <= MOST_WHOLE:
        _few_hermitian(one, n, slots, slots + (padded + 1) * slot + PAD)
        return 1
    clear(one, slots)
    if n % 2 == 0:
        clear(one, slots + n // 2 * slot)
    for k in range(1, (n + 1) // 2):
        mirror(one, slots + k * slot, slots + (n - k) * slot, vector, 0)
    place: int = _from_slots(one, n, factors, number, tables, padded, memory)
    return place


@specialized
def _from_slots(one: float, n: int, factors: int, number: int, tables: int, padded: int, memory: int) -> int:
    nowhere = (0, 0, 0, 0, 0, 0, 0)
    if padded > n:
        place: int = convolve(one, n, factors, number, tables, padded, memory, 0)
    else:
        place = passes(one, one, factors, number, word(tables, 0), n, memory, 0, nowhere, nowhere, 0)
    return place


@specialized
def _group(
    scale: float, one: float, plan: int, memory: int, given: Signals, wanted: Signals
) -> None:  # fmt: skip
    """Transform one signal in every lane."""
    kind, n, padded = word(plan, 0), word(plan, 2), word(plan, 3)
    number, factors, tables = word(plan, 13), word(plan, 14), word(plan, 15)
    origin, step, lane_step, lanes, first, second, ahead = given
    goal, goal_step, goal_lane_step, goal_ahead = wanted[0], wanted[1], wanted[2], wanted[6]
    size = bytes_of(one)
    slot = 2 * size * lanes_of(one)
    slots = memory + ROOM * slot
    others = slots + (padded + 1) * slot + PAD
    if kind == REAL_WHOLE:
        read_numbers(one, origin, step, lane_step, lanes, n, slots, ahead)
        place = _whole_real(one, n, factors, number, tables, padded, memory)
        write_lanes(
            scale, others if place else slots, first, second, goal, goal_step, goal_lane_step, lanes, n // 2 + 1,
            goal_ahead,
        )  # fmt: skip
        return
    if kind == HERMITIAN_WHOLE:
        is_short = 1 < n <= MOST_WHOLE
        real, imag = (second, first) if is_short else (first, second)
        read_lanes(one, origin, step, lane_step, lanes, n // 2 + 1, slots, real, imag, ahead)
        place = _whole_hermitian(one, n, factors, number, tables, padded, memory)
        results = (others if place else slots) + (0 if is_short else first)
        write_numbers(scale, results, goal, goal_step, goal_lane_step, lanes, n, goal_ahead)
        return
    halves, nowhere = word(tables, 1), (0, 0, 0, 0, 0, 0, 0)
    reads = not (kind == HERMITIAN or (kind == REAL and lane_step == size))
    writes = not (kind == REAL or (kind == HERMITIAN and goal_lane_step == size))
    if kind == HERMITIAN:
        _read_halves(one, given, n, halves, slots, first, second, memory)
    elif not reads:
        read_real(one, origin, step, lane_step, lanes, n, slots, first, second)
    if padded > n:
        if reads:
            read_lanes(one, origin, step, lane_step, lanes, n, slots, first, second, ahead)
        place = convolve(one, n, factors, number, tables, padded, memory, 0)
    else:
        from_, to = given if reads else nowhere, wanted if writes else nowhere
        place = passes(scale, one, factors, number, word(tables, 0), n, memory, 0, from_, to, 0)
    results = others if place else slots
    if kind == REAL:
        _write_halves(scale, one, results, n, halves, wanted, memory)
    elif not writes:
        write_real(scale, results, first, second, goal, goal_step, goal_lane_step, lanes, n)
    elif padded > n:
        write_lanes(scale, results, first, second, goal, goal_step, goal_lane_step, lanes, n, goal_ahead)


@specialized
def _few_rows(
    scale: float, one: float, plan: int, source: int, target: int, memory: int, begin: int, end: int
) -> None:  # fmt: skip
    """Transform signals of at most MOST_WHOLE numbers that lie one behind the other."""
    kind, n, inner, most = word(plan, 0), word(plan, 2), word(plan, 4), lanes_of(one)
    step, goal_step = word(plan, 7), word(plan, 10)
    ahead, goal_ahead = word(plan, 11) * step * most, word(plan, 11) * goal_step * most
    vector, half = bytes_of(one) * most, n // 2 + 1
    first, second = (vector, 0) if word(plan, 1) else (0, vector)
    slots = memory + ROOM * 2 * vector
    others = slots + (n + 1) * 2 * vector + PAD
    for group in range(begin, end):
        lanes = min(most, inner - group * most)
        origin, goal = source + group * most * step, target + group * most * goal_step
        if kind == REAL_WHOLE:
            read_numbers(one, origin, bytes_of(one), step, lanes, n, slots, ahead)
            _few_real(one, n, slots, others)
            write_lanes(scale, others, 0, vector, goal, 2 * bytes_of(one), goal_step, lanes, half, goal_ahead)
        elif kind == COMPLEX:
            read_lanes(one, origin, 2 * bytes_of(one), step, lanes, n, slots, first, second, ahead)
            _few_complex(one, n, slots, others)
            write_lanes(scale, others, first, second, goal, 2 * bytes_of(one), goal_step, lanes, n, goal_ahead)
        else:
            read_lanes(one, origin, 2 * bytes_of(one), step, lanes, half, slots, 0, vector, ahead)
            _few_hermitian(one, n, slots, others)
            write_numbers(scale, others, goal, bytes_of(one), goal_step, lanes, n, goal_ahead)


@specialized
def _groups(
    scale: float, one: float, plan: int, source: int, target: int, memory: int, begin: int, end: int
) -> None:  # fmt: skip
    inner, most = word(plan, 4), lanes_of(one)
    vector = bytes_of(one) * most
    first, second = (vector, 0) if word(plan, 1) else (0, vector)
    groups = (inner + most - 1) // most
    step, lane_step, goal_step, goal_lane_step = word(plan, 6), word(plan, 7), word(plan, 9), word(plan, 10)
    ahead, goal_ahead = word(plan, 11) * lane_step * most, word(plan, 11) * goal_lane_step * most
    if word(plan, 12):
        _few_rows(scale, one, plan, source, target, memory, begin, end)
        return
    for group in range(begin, end):
        outer, start = group // groups, group % groups * most
        lanes = min(most, inner - start)
        origin = source + outer * word(plan, 5) + start * lane_step
        goal = target + outer * word(plan, 8) + start * goal_lane_step
        given = (origin, step, lane_step, lanes, first, second, ahead)
        wanted = (goal, goal_step, goal_lane_step, lanes, first, second, goal_ahead)
        _group(scale, one, plan, memory, given, wanted)


@compiled("float32", "float32", *["int64"] * 6)
def _single(
    scale: float, one: float, plan: int, source: int, target: int, memory: int, begin: int, end: int
) -> None:  # fmt: skip
    _groups(scale, one, plan, source, target, memory, begin, end)


@compiled("float64", "float64", *["int64"] * 6)
def _double(
    scale: float, one: float, plan: int, source: int, target: int, memory: int, begin: int, end: int
) -> None:  # fmt: skip
    _groups(scale, one, plan, source, target, memory, begin, end)


transform = {"F": _single, "D": _double}
"""Transform groups ``begin`` to ``end`` of as many signals as a vector has lanes, by the complex type's character.

``scale`` is a factor of the result, ``one`` is 1; the rest are addresses. ``memory`` is scratch memory of
ROOM + 2 * (padded + 1) slots, at least as many as there are lanes more, and PAD bytes. ``plan`` has integers: the kind,
whether the transform is backward, n (half the length of signals that are pairs of real numbers), the length of the
convolution or n, how many signals an outer one has; the steps from an outer one of the source to the next, between
elements and between signals; the same of the target; whether the next group's signals are fetched before it;
whether there is one outer signal, whose numbers are neighbours, and n is not 1 and at most MOST_WHOLE; how many factors
there are; their address; that of the addresses of tables: of the passes'
twiddles, of exp(-2 pi i k / 2 n), and of the convolution's three tables of factors.
"""
