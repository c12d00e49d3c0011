"""Slots of Fourier transforms, complex vectors every lane of which has another signal: reading and writing the signals.

Addresses count bytes. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit, types

from .arithmetic import OPTIONS
from .signals import (
    bytes_of,
    lanes_of,
    move,
    move_part,
    number_at,
    read_part_of_side,
    read_real_rows,
    read_rows,
    read_short_rows,
    read_side,
    write_part_of_side,
    write_real_rows,
    write_rows,
    write_short_rows,
    write_side,
)  # fmt: skip
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
    one: float, source: int, step: int, lane_step: int, lanes: int, count: int, slots: int, first: int, second: int,
    ahead: int,
) -> None:  # fmt: skip
    """Read ``count`` complex numbers of each of some signals; what is ``ahead`` bytes further on is wanted next."""
    size, most = bytes_of(one), lanes_of(one)
    slot, block = 2 * size * most, most // 2
    if lane_step == 2 * size and lanes == most:
        for k in range(count):
            read_side(one, source + k * step, slots + k * slot, first, second)
    elif lane_step == 2 * size:
        for k in range(count):
            read_part_of_side(one, source + k * step, lanes, slots + k * slot, first, second)
    elif step == 2 * size and count >= block:
        for k in range(0, count, block):
            k = min(k, count - block)
            read_rows(one, source + k * step, lane_step, lanes - 1, slots + k * slot, first, second, ahead)
    elif step == 2 * size:
        read_short_rows(one, source, lane_step, lanes - 1, count, slots, first, second, ahead)
    else:
        for k in range(count):
            for lane in range(most):  # those after the last signal have that one, too
                place, target = source + k * step + min(lane, lanes - 1) * lane_step, slots + k * slot + lane * size
                write(target + first, number_at(one, place))
                write(target + second, number_at(one, place + size))


@specialized
def write_lanes(
    scale: float, slots: int, first: int, second: int, target: int, step: int, lane_step: int, lanes: int, count: int,
    ahead: int,
) -> None:  # fmt: skip
    """Write what ``read_lanes`` has read back to where it lies so, times a factor."""
    size, most = bytes_of(scale), lanes_of(scale)
    slot, block = 2 * size * most, most // 2
    if lane_step == 2 * size and lanes == most:
        for k in range(count):
            write_side(scale, slots + k * slot, first, second, target + k * step)
    elif lane_step == 2 * size:
        for k in range(count):
            write_part_of_side(scale, slots + k * slot, first, second, target + k * step, lanes)
    elif step == 2 * size and count >= block:
        for k in range(0, count, block):
            k = min(k, count - block)
            write_rows(scale, slots + k * slot, first, second, target + k * step, lane_step, lanes - 1, ahead)
    elif step == 2 * size:
        write_short_rows(scale, slots, first, second, target, lane_step, lanes - 1, count, ahead)
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
            move_part(one, place, target, lanes)


@specialized
def write_real(
    scale: float, slots: int, first: int, second: int, target: int, step: int, lane_step: int, lanes: int, count: int
) -> None:  # fmt: skip
    """Write what ``read_real`` has read back to where it lies so, times a factor."""
    size, most = bytes_of(scale), lanes_of(scale)
    for k in range(2 * count):
        place = target + k * step
        source = slots + k // 2 * 2 * size * most + (second if k % 2 else first)
        if lanes == most:
            move(scale, source, place)
        else:
            move_part(scale, source, place, lanes)


@specialized
def read_numbers(
    one: float, source: int, step: int, lane_step: int, lanes: int, count: int, slots: int, ahead: int
) -> None:  # fmt: skip
    """Read ``count`` real numbers of each of some signals as one part of as many slots."""
    size, most = bytes_of(one), lanes_of(one)
    slot = 2 * size * most
    if lane_step == size and lanes == most:
        for k in range(count):
            move(one, source + k * step, slots + k * slot)
    elif lane_step == size:
        for k in range(count):
            move_part(one, source + k * step, slots + k * slot, lanes)
    elif step == size:
        for k in range(0, count, most):
            read_real_rows(one, source + k * size, lane_step, lanes - 1, count - k, slots + k * slot, ahead)
    else:
        for k in range(count):
            for lane in range(most):
                place = source + k * step + min(lane, lanes - 1) * lane_step
                write(slots + k * slot + lane * size, number_at(one, place))


@specialized
def write_numbers(
    scale: float, slots: int, target: int, step: int, lane_step: int, lanes: int, count: int, ahead: int
) -> None:  # fmt: skip
    """Write what ``read_numbers`` has read back to where it lies so, times a factor."""
    size, most = bytes_of(scale), lanes_of(scale)
    slot = 2 * size * most
    if lane_step == size and lanes == most:
        for k in range(count):
            move(scale, slots + k * slot, target + k * step)
    elif lane_step == size:
        for k in range(count):
            move_part(scale, slots + k * slot, target + k * step, lanes)
    elif step == size:
        for k in range(0, count, most):
            write_real_rows(scale, slots + k * slot, target + k * size, lane_step, lanes - 1, count - k, ahead)
    else:
        for k in range(count):
            for lane in range(lanes):
                place = target + k * step + lane * lane_step
                write(place, number_at(scale, slots + k * slot + lane * size) * scale)
