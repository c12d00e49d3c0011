"""Fourier transforms of many signals by loops in which every lane of a vector has another signal.

Says where signals are, one behind the other or side by side, and makes what the loops are given.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np

from server.engine.device import threads

from .addresses import data_address
from .fourier_tables import Tables, convolution_length, is_one_pass, is_smooth, lanes_tables
from .host_single_signals import scratch

Array = Any
COMPLEX, REAL, HERMITIAN, REAL_WHOLE, HERMITIAN_WHOLE = range(5)
"""The kinds of signals that ``server/engine/compiled/signals`` has."""
MOST = 1 << 12
"""The most elements of signals of which a vector has one in each lane: more do not stay in the second-level cache."""
_MOST_FETCHED, _LEAST_FETCHED = 1 << 11, 1 << 20
"""Bytes of a signal up to which, and of all of them from which on, those of the next group are fetched ahead of it.

Each group is then another page, on which the processor does not go on by itself.
"""


_MOST_VECTORS = 1 << 12
"""Bytes for as many complex vectors as a vector has lanes."""


class Places(NamedTuple):
    """Where signals are: bytes from an outer one to the next, between elements, and between signals."""

    outer: int
    step: int
    lane: int


class Lanes(NamedTuple):
    """Transforms of some groups of signals: a loop, its factor and its plan, and bytes of scratch memory."""

    loop: Any
    scale: float
    plan: Array
    address: int
    tables: Tables
    groups: int
    memory: int
    nbytes: int

    def run(self, source: int, target: int) -> None:
        """Transform what is at one address into another."""
        pieces = threads.count() if self.nbytes >= threads.LEAST_BYTES else 1
        if pieces > 1 and self.groups > 1:
            self._run_on_threads(source, target, 2 * pieces)
            return
        self.loop(self.scale, 1.0, self.address, source, target, scratch.address(self.memory), 0, self.groups)

    def _run_on_threads(self, source: int, target: int, most: int) -> None:
        pieces = min(self.groups, most, max(1, self.nbytes // threads.LEAST_SHARE))
        memory = scratch.take(self.memory * pieces)  # is kept until the threads are done
        start, calls = data_address(memory), []
        for number, share in enumerate(threads.parts_of(self.groups, pieces)):
            room = start + self.memory * number
            calls.append((self.scale, 1.0, self.address, source, target, room, share.start, share.stop))
        threads.run_loop(self.loop, calls)


def kind_of(kind: int, length: int, most_whole: int) -> tuple[int, int]:
    """The kind as which loops transform signals of so many numbers, and how many elements these then have.

    Real numbers are pairs, or elements one by one where they are few or an odd number.
    """
    if kind == COMPLEX:
        return COMPLEX, length
    if length % 2 or length <= most_whole:
        return (REAL_WHOLE if kind == REAL else HERMITIAN_WHOLE), length
    return kind, length // 2


def rows(kind: int, n: int, size: int) -> tuple[Places, Places]:
    """Where signals are that lie one behind the other: those that are given, and the results."""
    real = size // 2
    if kind in (REAL_WHOLE, HERMITIAN_WHOLE):
        places = Places(0, real, n * real), Places(0, size, (n // 2 + 1) * size)
    else:
        places = Places(0, size, n * size), Places(0, size, (n + (kind != COMPLEX)) * size)
    return places if kind in (COMPLEX, REAL, REAL_WHOLE) else places[::-1]


def sides(kind: int, n: int, inner: int, size: int) -> tuple[Places, Places]:
    """The same of ``inner`` signals each that lie side by side."""
    real = size // 2
    if kind == COMPLEX:
        place = Places(n * inner * size, inner * size, size)
        return place, place
    is_whole = kind in (REAL_WHOLE, HERMITIAN_WHOLE)
    length, half = (n, n // 2 + 1) if is_whole else (2 * n, n + 1)
    numbers, transformed = (
        Places(length * inner * real, inner * real, real),
        Places(half * inner * size, inner * size, size),
    )
    return (numbers, transformed) if kind in (REAL, REAL_WHOLE) else (transformed, numbers)


def lanes_of(
    loops: Any, kind: int, outer: int, n: int, inner: int, places: tuple[Places, Places], scale: float, forward: bool,
    dtype: Any,
) -> Lanes | None:  # fmt: skip
    """What transforms ``outer`` times ``inner`` signals of ``n`` elements; None where they are too long."""
    padded = n if is_smooth(n) or is_one_pass(n) else convolution_length(n)
    if padded > MOST:
        return None
    lanes, is_pairs = loops.WIDTHS[dtype.itemsize // 2], kind in (REAL, HERMITIAN)
    made = lanes_tables(n, padded, not is_pairs, lanes, dtype)
    nbytes = outer * inner * n * dtype.itemsize * 2
    are_rows = all([place.lane > place.step for place in places])
    is_few = are_rows and not is_pairs and 1 < n <= loops.MOST_WHOLE
    is_fetched = are_rows and nbytes >= _LEAST_FETCHED and max(places[0].lane, places[1].lane) <= _MOST_FETCHED
    head = [kind, not forward, n, padded, inner, *places[0], *places[1], is_fetched, is_few]
    tables = [made.factors.size, made.factors.ctypes.data, made.addresses.ctypes.data]
    plan = np.array([*head, *tables], np.int64)
    memory = slots_of(loops, padded, lanes, dtype.itemsize)
    groups = outer * -(-inner // lanes)
    return Lanes(loops.transform[dtype.char], scale, plan, plan.ctypes.data, made, groups, memory, nbytes)


def slots_of(loops: Any, n: int, lanes: int, size: int) -> int:
    """Bytes of scratch memory for slots of so many elements."""
    return int(-(-((loops.ROOM + 2 * (n + 1) + lanes) * lanes * size + loops.PAD) // 64) * 64)


class Sides(NamedTuple):
    """A copy of signals that lie side by side to where they lie one behind the other, or back."""

    loop: Any
    shape: tuple[int, int, int]
    dtype: Any
    is_back: bool

    @classmethod
    def of(cls, loops: Any, shape: tuple[int, int, int], dtype: Any, is_back: bool) -> Sides:
        lanes = loops.WIDTHS[dtype.itemsize // (2 if dtype.kind == "c" else 1)]
        few = shape[2] <= (lanes // 2 if dtype.kind == "c" else lanes)
        return cls(loops.copy[dtype.char.upper()] if few else None, shape, dtype, is_back)

    def run(self, source: int, target: int) -> None:
        """Copy what is at one address to another."""
        if self.loop:
            is_real = self.dtype.kind != "c"
            self.loop(1.0, source, target, *self.shape, is_real, self.is_back, scratch.address(_MOST_VECTORS))
            return
        outer, length, inner = self.shape
        rows, beside = (outer, inner, length), (outer, length, inner)
        from_, to = (rows, beside) if self.is_back else (beside, rows)
        array_at(target, to, self.dtype)[...] = array_at(source, from_, self.dtype).swapaxes(1, 2)


def array_at(address: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """NumPy's view of an array at an address."""
    memory = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return np.ndarray(shape, dtype, memory)
