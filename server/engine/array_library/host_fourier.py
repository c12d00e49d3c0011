"""Fourier transforms on the host by compiled loops: which of them a transform takes, and the memory that they need."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count as numbers_from
from typing import Any, NamedTuple

import numpy as np

from server.engine import compiled
from server.engine.device import threads

from .addresses import data_address
from .fourier_tables import Tables, convolution_length, factors_of, is_one_pass, is_smooth, long_tables, matrix_of
from .host_lanes import (
    COMPLEX,
    HERMITIAN,
    HERMITIAN_WHOLE,
    MOST,
    REAL,
    REAL_WHOLE,
    Places,
    Sides,
    array_at,
    kind_of,
    lanes_of,
    rows,
    sides,
    slots_of,
)  # fmt: skip
from .host_libraries import mkl
from .host_single_signals import scratch, single_signals

Array = Any
_Run = Callable[[int, int], None]
"""A transform from one address to another."""
_SCALES = (lambda points: 1.0, lambda points: 1 / math.sqrt(points), lambda points: 1 / points)
"""The factor of a transform by its mode, from the number of points."""
LEAST = 1 << 12
"""Numbers of the result from which on loops are used whose lanes are parts of a signal, or are not all used."""
_LEAST_LONG, _MOST_LONG, _LEAST_WHOLE = 1 << 8, 1 << 24, 1 << 9
"""Elements of signals that are transformed as matrices: at all, and where all lanes are used in rows and columns."""
_LEAST_IMAGE = 1 << 17
"""Bytes of what several axes are transformed in from which on it is done by itself: it stays in the cache meanwhile."""
_LEAST_MOVED = 1 << 6
"""Elements of signals from which on few that lie side by side are copied first."""
_REMEMBERED = 256
_LEAST_LOADED = 1 << 9
"""Numbers of a transform for which loops are loaded; of smaller ones many are needed."""
MODULES = ("fourier", "lanes", "single_signals", "sides")
"""The modules of compiled loops that transform."""


class _Step(NamedTuple):
    """A transform along one axis: arguments of the loop, and how they are given to threads."""

    loop: Any
    scale: float
    sizes: Array
    places: Array
    tables: Tables
    groups: int
    memory: int
    """Bytes of scratch memory for the slots."""
    matrix: int
    """The same of a long transform's matrix, 0 where there is none, and of its spare numbers."""
    spare: int
    nbytes: int

    def run(self, source: int, target: int) -> None:
        """Transform what is at one address into another."""
        pieces = 1
        if self.nbytes >= threads.LEAST_BYTES and self.groups > 1 and threads.count() > 1:
            pieces = min(self.groups, 2 * threads.count(), max(1, self.nbytes // threads.LEAST_SHARE))
        each = self.memory + self.matrix + self.spare
        memory = scratch.take(each * pieces)
        start = data_address(memory)
        arguments = (
            self.scale, 1.0, source, target, self.sizes, self.places, self.tables.factors, self.tables.addresses,
        )  # fmt: skip
        if pieces == 1:
            self.loop(*arguments, *self._memory(start), 0, self.groups)
            return
        calls = []
        for number, share in enumerate(threads.parts_of(self.groups, pieces)):
            calls.append((*arguments, *self._memory(start + each * number), share.start, share.stop))
        threads.run_loop(self.loop, calls)

    def _memory(self, start: int) -> tuple[int, ...]:
        """Addresses, and the stage."""
        matrix = start + self.memory
        return start, matrix, matrix + self.matrix, 1 if self.matrix else 0


def transform(input: Array, axes: tuple[int, ...], mode: int, forward: bool, out: Array) -> bool:
    """Write the transform, if the loops are there and as fast as a library's; return whether they were.

    Where one of the two is real, it has the lengths of the whole signal along the last axis.
    """
    whole = input if input.dtype.kind != "c" else out
    run = by_addresses(input.dtype, out.dtype, whole.shape, axes, mode, forward)
    if not callable(run):
        return False
    given = np.ascontiguousarray(input)
    if out.flags.c_contiguous:
        run(data_address(given), data_address(out))
        return True
    dense = np.empty(out.shape, out.dtype)
    run(data_address(given), data_address(dense))
    out[...] = dense
    return True


_known: dict[Any, Any] = {}


def by_addresses(
    given: Any, result: Any, whole: tuple[int, ...], axes: tuple[int, ...], mode: int, forward: bool
) -> _Run | bool | None:  # fmt: skip
    """What transforms dense arrays along axes from one address to another, given both types.

    ``whole`` is the shape of the one that has all numbers. False where a library is as fast, None until the loops are
    there.
    """
    if _is_mkls(given, result):
        return False
    loops = _loops(math.prod(whole))
    if loops is None:
        return None
    key = given, result, whole, axes, mode, forward
    run = _known.get(key)
    if run is None:
        if len(_known) >= _REMEMBERED:
            _known.clear()
        run = _known[key] = _prepared(loops, *key) or False
    found: _Run | bool = run
    return found


def from_sides(
    given: Any, result: Any, whole: tuple[int, ...], pitch: int, mode: int, forward: bool
) -> _Run | bool | None:  # fmt: skip
    """The same along the last of two dimensions of what is given with the first one's elements as neighbours.

    ``pitch`` is the bytes from one element of the last dimension to the next; the result is dense.
    """
    if _is_mkls(given, result):
        return False
    loops = _loops(math.prod(whole))
    if loops is None:
        return None
    kind, dtype = _kind_of(given, result)
    signals, length = whole
    lanes = loops.lanes.WIDTHS[dtype.itemsize // 2]
    if dtype.char not in "FD" or signals < lanes // 4:
        return False
    each, n = kind_of(kind, length, loops.lanes.MOST_WHOLE)
    places = Places(0, pitch, given.itemsize), rows(each, n, dtype.itemsize)[1]
    made = lanes_of(loops.lanes, each, 1, n, signals, places, _SCALES[mode](length), forward, dtype)
    return made.run if made else False


def _kind_of(given: Any, result: Any) -> tuple[int, Any]:
    """The kind of signals, by the types of what is given and of the result, and the complex one of both types."""
    kind = REAL if given.kind != "c" else HERMITIAN if result.kind != "c" else COMPLEX
    return kind, given if kind == HERMITIAN else result


def _is_mkls(given: Any, result: Any) -> bool:
    """Whether MKL transforms, by both types. From complex numbers to real ones it takes up to four times as long."""
    return mkl() is not None and not (given.kind == "c" != result.kind)


class _Loops(NamedTuple):
    """The modules of compiled loops that transform: long signals, lanes of many, single ones, and copies of few."""

    long: Any
    lanes: Any
    single: Any
    sides: Any


_runs = numbers_from()
"""Counts small transforms for which loops were not loaded."""


def _loops(numbers: int) -> _Loops | None:
    """All of them, or None until they are there.

    Loading them takes time once, for which it needs a transform that is not small, or many.
    """
    is_much, (first, *others) = numbers >= _LEAST_LOADED, MODULES
    if (compiled.kernels(first) if is_much else compiled.kernels_after(_runs, first)) is None:
        return None
    modules = [compiled.kernels(first), *map(compiled.kernels, others)]
    return _Loops(*modules) if all(modules) else None


def _prepared(
    loops: _Loops, given: Any, result: Any, whole: tuple[int, ...], axes: tuple[int, ...], mode: int, forward: bool
) -> _Run | None:  # fmt: skip
    kind, dtype = _kind_of(given, result)
    if dtype.char not in "FD" or not math.prod(whole):
        return None
    scale = _SCALES[mode](math.prod([whole[axis] for axis in axes]))
    return _all_axes(loops, kind, axes, scale, forward, dtype, whole)


def _half(whole: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape of the first half of the transform of real numbers."""
    return (*whole[:axis], whole[axis] // 2 + 1, *whole[axis + 1 :])


def _all_axes(
    loops: _Loops, kind: int, axes: tuple[int, ...], scale: float, forward: bool, dtype: Any, whole: tuple[int, ...]
) -> _Run | None:  # fmt: skip
    """A transform of row-major arrays, of which the real one, or both, have this shape."""
    if len(axes) == 1:
        return _along(loops, kind, axes[0], scale, forward, dtype, whole)
    shape = whole if kind == COMPLEX else _half(whole, axes[-1])
    first_axis = min(axes)
    images, numbers = math.prod(shape[:first_axis]), math.prod(shape[first_axis:])
    if images > 1 and numbers * dtype.itemsize >= _LEAST_IMAGE:
        inner = tuple([axis - first_axis for axis in axes])
        run = _all_axes(loops, kind, inner, scale, forward, dtype, whole[first_axis:])
        size = math.prod(whole[first_axis:]) * dtype.itemsize // (1 if kind == COMPLEX else 2)
        steps = (numbers * dtype.itemsize, size)
        return run and _by_images(run, images, steps if kind == HERMITIAN else steps[::-1])
    last = _along(loops, kind, axes[-1], scale, forward, dtype, whole)
    others = [_along(loops, COMPLEX, axis, 1.0, forward, dtype, shape) for axis in axes[-2::-1]]
    if last is None or None in others:
        return None
    runs: Any = others
    return _hermitian_of(runs[::-1], last, math.prod(shape) * dtype.itemsize) if kind == HERMITIAN else _of(last, runs)


def _of(first: _Run, others: list[_Run]) -> _Run:
    """A transform after which others are made in place."""

    def run(source: int, target: int) -> None:
        first(source, target)
        for other in others:
            other(target, target)

    return run


def _hermitian_of(others: list[_Run], last: _Run, nbytes: int) -> _Run:
    """The same where the last one's result is real."""
    run_others = _of(others[0], others[1:])

    def run(source: int, target: int) -> None:
        memory = np.empty(nbytes, np.uint8)
        address = data_address(memory)
        run_others(source, address)
        last(address, target)

    return run


def _by_images(run: _Run, count: int, steps: tuple[int, int]) -> _Run:
    """The same for each of some images by itself, which are so many bytes apart."""

    def run_all(source: int, target: int) -> None:
        for number in range(count):
            run(source + number * steps[0], target + number * steps[1])

    return run_all


def _along(
    loops: _Loops, kind: int, axis: int, scale: float, forward: bool, dtype: Any, shape: tuple[int, ...]
) -> _Run | None:  # fmt: skip
    """A transform along one axis of row-major arrays, of which the real one, or both, have this shape."""
    length, outer, inner = shape[axis], math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    if inner == 1:
        return _rows(loops, kind, outer, length, scale, forward, dtype)
    lanes = loops.lanes.WIDTHS[dtype.itemsize // 2]
    if inner >= lanes // 2 or (inner >= lanes // 4 and length < _LEAST_MOVED):
        each, n = kind_of(kind, length, loops.lanes.MOST_WHOLE)
        places = sides(each, n, inner, dtype.itemsize)
        made = lanes_of(loops.lanes, each, outer, n, inner, places, scale, forward, dtype)
        if made:
            return made.run
    return _moved(loops, kind, (outer, length, inner), scale, forward, dtype)


def _moved(
    loops: _Loops, kind: int, shape: tuple[int, int, int], scale: float, forward: bool, dtype: Any
) -> _Run | None:  # fmt: skip
    """The same of signals that lie side by side, by copies in which they lie one behind the other."""
    outer, length, inner = shape
    run = _rows(loops, kind, outer * inner, length, scale, forward, dtype)
    if run is None:
        return None
    real = np.dtype(dtype.char.lower())
    half = outer, length // 2 + 1, inner
    operands = {COMPLEX: [(shape, dtype)] * 2, REAL: [(shape, real), (half, dtype)]}.get(
        kind, [(half, dtype), (shape, real)]
    )
    to_rows, to_sides = (Sides.of(loops.sides, *operands[0], False), Sides.of(loops.sides, *operands[1], True))
    nbytes = [math.prod(its_shape) * its_dtype.itemsize for its_shape, its_dtype in operands]

    def copy(source: int, target: int) -> None:
        memory = [np.empty(size, np.uint8) for size in nbytes]
        given, wanted = map(data_address, memory)
        to_rows.run(source, given)
        run(given, wanted)
        to_sides.run(wanted, target)

    return copy


def _odd(
    loops: _Loops, kind: int, count: int, length: int, scale: float, forward: bool, dtype: Any
) -> _Run | None:  # fmt: skip
    """A transform of signals of an odd number of real numbers, one behind the other: of complex ones."""
    run = _rows(loops, COMPLEX, count, length, scale, forward, dtype)
    if run is None:
        return None
    shape, half, real = (count, length), (count, length // 2 + 1), np.dtype(dtype.char.lower())

    def forward_odd(source: int, target: int) -> None:
        whole = array_at(source, shape, real).astype(dtype)
        address = data_address(whole)
        run(address, address)
        array_at(target, half, dtype)[...] = whole[:, : half[1]]

    def backward_odd(source: int, target: int) -> None:
        whole, given = np.empty(shape, dtype), array_at(source, half, dtype)
        whole[:, : half[1]] = given
        whole[:, 0].imag = 0
        np.conjugate(given[:, :0:-1], out=whole[:, half[1] :])
        address = data_address(whole)
        run(address, address)
        array_at(target, shape, real)[...] = whole.real

    return forward_odd if kind == REAL else backward_odd


def _rows(
    loops: _Loops, kind: int, count: int, length: int, scale: float, forward: bool, dtype: Any
) -> _Run | None:  # fmt: skip
    """Signals one behind the other: those of usual lengths one by one; of others lanes have one each, or are parts."""
    each, n = kind_of(kind, length, loops.lanes.MOST_WHOLE)
    lanes, is_much = loops.lanes.WIDTHS[dtype.itemsize // 2], count * n >= LEAST
    is_whole = each in (REAL_WHOLE, HERMITIAN_WHOLE)
    places = rows(each, n, dtype.itemsize)
    if not is_whole and not (is_one_pass(n) and count >= lanes // 4):
        steps = places[0].lane, places[1].lane
        single = single_signals(loops.single, kind, count, n, steps, scale, forward, dtype)
        if single:
            return single.run
        long = _long(loops, kind, count, n, steps, scale, forward, dtype) if is_much else None
        if long:
            return long.run
    if not is_much and count < lanes // 4:
        return None
    made = lanes_of(loops.lanes, each, 1, n, count, places, scale, forward, dtype)
    return made.run if made else _odd(loops, kind, count, length, scale, forward, dtype) if is_whole else None


def _long(
    loops: _Loops, kind: int, count: int, n: int, steps: tuple[int, int], scale: float, forward: bool, dtype: Any
) -> _Step | None:  # fmt: skip
    """Signals that are matrices; None where a signal in each lane is as fast."""
    lanes, size = loops.lanes.WIDTHS[dtype.itemsize // 2], dtype.itemsize
    shape = matrix_of(n, lanes, MOST) if _LEAST_LONG <= n <= _MOST_LONG else None
    if shape is None:
        return None
    is_whole = is_smooth(n) and n >= _LEAST_WHOLE and not any([each % lanes for each in shape])
    if not (n > MOST or count < lanes or is_whole):
        return None
    rows, columns = shape
    pitch = (columns + lanes) * size
    padded = columns if is_smooth(columns) else convolution_length(columns)
    slots = slots_of(loops.long, max(rows, padded), lanes, size)
    spare = 0 if kind == COMPLEX else -(-(n + 1) * size // 64) * 64
    tables = long_tables(rows, columns, kind == COMPLEX, lanes, dtype)
    sizes = [kind, not forward, n, 0, rows, columns, pitch, len(factors_of(rows)), padded]
    return _Step(
        loops.long.transform[dtype.char], scale, np.array(sizes, np.int64), np.array(steps, np.int64), tables, count,
        slots, pitch * rows, spare, count * n * size * 2,
    )  # fmt: skip
