"""Slots of Fourier transforms, complex vectors every lane of which has another signal: reading and writing the signals.

Addresses count bytes. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit, types

from .arithmetic import OPTIONS
from .signals import bytes_of, lanes_of, move, number_at, read_rows, read_side, write_rows, write_side
from .tiles import write

Array = Any


def specialized(function: Callable[..., Any]) -> Any:
    """Compile a part of transforms for the type of numbers that it is called with, once for all integers.

    Numba would compile it again for each combination of arguments that are written as numbers, which makes no
    transform faster.
    """
    dispatcher = njit(**OPTIONS)(function)
    resolve = dispatcher.get_call_template
    dispatcher.get_call_template = lambda args, keywords: resolve(tuple(map(types.unliteral, args)), keywords)
    return dispatcher


@specialized
def read_lanes(
    one: float, source: int, step: int, lane_step: int, lanes: int, count: int, slots: int, first: int, second: int
) -> None:  # fmt: skip
    """Read ``count`` complex numbers of each of some signals."""
    size, most = bytes_of(one), lanes_of(one)
    slot, block = 2 * size * most, most // 2
    if lane_step == 2 * size and lanes == most:
        for k in range(count):
            read_side(one, source + k * step, slots + k * slot, first, second)
    elif step == 2 * size and count >= block:
        for k in range(0, count, block):
            k = min(k, count - block)
            read_rows(one, source + k * step, lane_step, lanes - 1, slots + k * slot, first, second)
    else:
        for k in range(count):
            for lane in range(most):  # those after the last signal have that one, too
                place, target = source + k * step + min(lane, lanes - 1) * lane_step, slots + k * slot + lane * size
                write(target + first, number_at(one, place))
                write(target + second, number_at(one, place + size))


@specialized
def write_lanes(
    scale: float, slots: int, first: int, second: int, target: int, step: int, lane_step: int, lanes: int, count: int
) -> None:  # fmt: skip
    """The opposite."""
    size, most = bytes_of(scale), lanes_of(scale)
    slot, block = 2 * size * most, most // 2
    if lane_step == 2 * size and lanes == most:
        for k in range(count):
            write_side(scale, slots + k * slot, first, second, target + k * step)
    elif step == 2 * size and count >= block:
        for k in range(0, count, block):
            k = min(k, count - block)
            write_rows(scale, slots + k * slot, first, second, target + k * step, lane_step, lanes - 1)
    else:
        for k in range(count):
            for lane in range(lanes):
                place, source = target + k * step + lane * lane_step, slots + k * slot + lane * size
                write(place, number_at(scale, source + first) * scale)
                write(place + size, number_at(scale, source + second) * scale)


@specialized
def read_real(
    one: float, source: int, step: int, lane_step: int, lanes: int, count: int, slots: int, first: int, second: int
) -> None:  # fmt: skip
    """Read real numbers of signals that lie side by side: ``count`` pairs of neighbours."""
    size, most = bytes_of(one), lanes_of(one)
    for k in range(2 * count):
        place = source + k * step
        target = slots + k // 2 * 2 * size * most + (second if k % 2 else first)
        if lanes == most:
            move(one, place, target)
        else:
            for lane in range(lanes):
                write(target + lane * size, number_at(one, place + lane * lane_step))


@specialized
def write_real(
    scale: float, slots: int, first: int, second: int, target: int, step: int, lane_step: int, lanes: int, count: int
) -> None:  # fmt: skip
    """The opposite."""
    size, most = bytes_of(scale), lanes_of(scale)
    for k in range(2 * count):
        place = target + k * step
        source = slots + k // 2 * 2 * size * most + (second if k % 2 else first)
        if lanes == most:
            move(scale, source, place)
        else:
            for lane in range(lanes):
                write(place + lane * lane_step, number_at(scale, source + lane * size) * scale)
