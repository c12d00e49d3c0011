"""Which elements of a source the elements of a convolution's result are sums of: numbers, and tables of offsets.

Along an axis, element ``first`` + ``every`` * t of a result is a sum over taps of the kernel: of the source's elements
``step`` * t + ``shift`` by tap. The axis of a convolution is one such part; that of a transposed one is as many as its
stride, each with the taps that meet its elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

Array = Any


class Part(NamedTuple):
    """Some elements of a result along one axis."""

    first: int
    every: int
    size: int
    step: int
    taps: tuple[int, ...]
    shifts: tuple[int, ...]

    def reach(self, begin: int, end: int) -> tuple[int, int]:
        """The first element of the source that the elements from ``begin`` to ``end`` need, and one after the last."""
        return self.step * begin + min(self.shifts), self.step * (end - 1) + max(self.shifts) + 1


def parts_of_convolution(kernel: int, stride: int, padding: int, dilation: int, size: int) -> list[Part]:
    """The part of an axis whose result has ``size`` elements."""
    shifts = tuple([dilation * tap - padding for tap in range(kernel)])
    return [Part(0, 1, size, stride, tuple(range(kernel)), shifts)]


def parts_of_transposed(kernel: int, stride: int, padding: int, dilation: int, size: int) -> list[Part]:
    """The parts of an axis of a transposed convolution whose result has ``size`` elements."""
    parts = []
    for first in range(min(stride, size)):
        met = [(tap, first + padding - dilation * tap) for tap in range(kernel)]
        taps = [(tap, distance // stride) for tap, distance in met if distance % stride == 0]
        reached = -(-(size - first) // stride)
        parts.append(Part(first, stride, reached, 1, tuple([t for t, _ in taps]), tuple([s for _, s in taps])))
    return parts


_MOST_TABLES, _MOST_OFFSETS = 256, 1 << 13
"""How many tables are kept, of at most so many offsets: 16 MB of them."""
_tables: dict[Any, Array] = {}


def _kept(make: Callable[..., Array]) -> Callable[..., Array]:
    """A function that makes tables; what it made for the same arguments is returned again, unless that is large."""

    @wraps(make)
    def find(*args: Any) -> Array:
        table = _tables.get((make, args))
        if table is None:
            table = make(*args)
            if len(table) <= _MOST_OFFSETS:
                if len(_tables) >= _MOST_TABLES:
                    _tables.clear()
                _tables[make, args] = table
        return table

    return find


Steps = tuple[tuple[int, int], ...]
"""Pairs of a count and of the bytes between two elements, outermost first."""


@_kept
def offsets(steps: Steps, multiple: int = 1) -> Array:
    """The offsets, in bytes, of elements in row-major order; the last one is repeated up to a multiple of a number."""
    total = np.zeros(1, np.int64)
    for count, step in steps:
        total = (total[:, None] + np.arange(count, dtype=np.int64) * step).reshape(-1)
    return _ended(total, multiple)


@_kept
def tap_offsets(
    parts: tuple[Part, ...], strides: tuple[int, ...], channels: int, channel_step: int, channels_last: bool,
    multiple: int = 1,
) -> Array:  # fmt: skip
    """The offsets of all channels' elements that meet the taps, from that of the first element in reach.

    They are ordered by channels first, or last; the last one is repeated up to a multiple of a number.
    """
    lowest = [min(part.shifts) for part in parts]
    shifts = [[shift - low for shift in part.shifts] for part, low in zip(parts, lowest, strict=True)]
    return _ended(_by_channels(shifts, strides, channels, channel_step, channels_last), multiple)


@_kept
def weight_offsets(
    parts: tuple[Part, ...], strides: tuple[int, ...], channels: int, channel_step: int, channels_last: bool
) -> Array:  # fmt: skip
    """The offsets of the weights of the same channels and taps, in the same order."""
    return _by_channels([part.taps for part in parts], strides, channels, channel_step, channels_last)


def _by_channels(
    places: Sequence[Sequence[int]], strides: tuple[int, ...], channels: int, channel_step: int, channels_last: bool
) -> Array:  # fmt: skip
    """The offsets of these places, one list for each axis, in all channels."""
    taps = np.zeros(1, np.int64)
    for along, stride in zip(places, strides, strict=True):
        taps = (taps[:, None] + np.array(along, np.int64) * stride).reshape(-1)
    first = np.arange(channels, dtype=np.int64) * channel_step
    pairs = taps[:, None] + first if channels_last else first[:, None] + taps
    return np.ascontiguousarray(pairs.reshape(-1))


def _ended(table: Array, multiple: int) -> Array:
    missing = -len(table) % multiple
    return np.concatenate([table, np.repeat(table[-1:], missing)]) if missing else table


def combinations(parts: list[list[Part]]) -> list[tuple[Part, ...]]:
    """One part of each axis, in all combinations."""
    return list(itertools.product(*parts))
