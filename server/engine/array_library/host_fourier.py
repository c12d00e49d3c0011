"""Fourier transforms on the host by compiled loops: which of them a transform takes, and the memory that they need."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from server.engine import compiled
from server.engine.device import threads

from .addresses import data_address
from .fourier_tables import Tables, convolution_length, factors_of, is_smooth, lanes_tables, long_tables, matrix_of
from .host_libraries import mkl
from .host_single_signals import SingleSignals, scratch, single_signals

Array = Any
_COMPLEX, _REAL, _HERMITIAN = range(3)
_SCALES = (lambda points: 1.0, lambda points: 1 / math.sqrt(points), lambda points: 1 / points)
"""The factor of a transform by its mode, from the number of points."""
LEAST, _LEAST_SINGLE = 1 << 12, 1 << 9
"""Numbers of the result from which on the loops are used, and those of signals that are transformed one by one."""
_MOST_LANES = 1 << 12
"""The most elements of signals of which a vector has one in each lane: more do not stay in the second-level cache."""
_LEAST_LONG, _MOST_LONG, _LEAST_WHOLE = 1 << 8, 1 << 24, 1 << 9
"""Elements of signals that are transformed as matrices: at all, and where all lanes are used in rows and columns."""
_LEAST_IMAGE = 1 << 17
"""Bytes of what several axes are transformed in from which on it is done by itself: it stays in the cache meanwhile."""
_REMEMBERED = 256


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


_Run = Callable[[Array, Array], None]
_known: dict[Any, Any] = {}


def transform(input: Array, axes: tuple[int, ...], mode: int, forward: bool, out: Array) -> bool:
    """Write the transform, if the loops are there and as fast as a library's; return whether they were.

    Where one of the two is real, it has the lengths of the whole signal along the last axis.
    """
    if out.size < LEAST:
        return False
    loops = compiled.kernels("fourier")
    if loops is None:
        return False
    key = axes, mode, forward, input.dtype.char, out.dtype.char, input.shape, input.strides, out.shape, out.strides
    run = _known.get(key)
    if run is None:
        if len(_known) >= _REMEMBERED:
            _known.clear()
        run = _known[key] = _prepared(loops, input, axes, mode, forward, out) or _refused
    if run is _refused:
        return False
    run(input, out)
    return True


def by_addresses(
    given: Any, result: Any, whole: tuple[int, ...], mode: int, forward: bool
) -> Callable[[int, int], None] | bool | None:  # fmt: skip
    """What transforms dense signals along the last axis from one address to another, given both types.

    ``whole`` is the shape of the one that has all numbers. False where other loops or a library are as fast, None until
    the loops are there.
    """
    kind, dtype = _kind_of(given, result), result if result.kind == "c" else given
    length = whole[-1]
    if mkl() is not None or dtype.char not in "FD" or math.prod(whole) < _LEAST_SINGLE or (kind and length % 2):
        return False
    loops = compiled.kernels("single_signals")
    if loops is None:
        return None
    n = length // 2 if kind else length
    scale = _SCALES[mode](length)
    single = single_signals(loops, kind, math.prod(whole[:-1]), n, _steps(kind, n, dtype), scale, forward, dtype)
    return single.run if single else False


def _kind_of(given: Any, result: Any) -> int:
    """The kind of signals, by the types of what is given and of the result."""
    return _REAL if given.kind != "c" else _HERMITIAN if result.kind != "c" else _COMPLEX


def _steps(kind: int, n: int, dtype: Any) -> tuple[int, int]:
    """The bytes from signal to signal, of what is given and of the result."""
    return (n + (kind == _HERMITIAN)) * dtype.itemsize, (n + (kind == _REAL)) * dtype.itemsize


def _refused(input: Array, out: Array) -> None:
    """What stands for a transform that is not for the loops."""


def _prepared(
    loops: Any, input: Array, axes: tuple[int, ...], mode: int, forward: bool, out: Array
) -> _Run | None:  # fmt: skip
    kind = _kind_of(input.dtype, out.dtype)
    dtype = out.dtype if kind != _HERMITIAN else input.dtype
    if dtype.char not in "FD" or not out.size:
        return None
    whole = input if kind == _REAL else out
    scale = _SCALES[mode](math.prod([whole.shape[axis] for axis in axes]))
    dense = _all_axes(loops, kind, axes, scale, forward, dtype, whole.shape, out.shape)
    return None if dense is None else _between_dense(dense, input, out)


def _all_axes(
    loops: Any, kind: int, axes: tuple[int, ...], scale: float, forward: bool, dtype: Any, whole: tuple[int, ...],
    shape: tuple[int, ...],
) -> _Run | None:  # fmt: skip
    """A transform of row-major arrays, the real or the complex one of which, and the result, have these shapes."""
    first_axis = min(axes)
    images = math.prod(shape[:first_axis])
    if len(axes) > 1 and images > 1 and math.prod(shape[first_axis:]) * dtype.itemsize >= _LEAST_IMAGE:
        inner = tuple([axis - first_axis for axis in axes])
        run = _all_axes(loops, kind, inner, scale, forward, dtype, whole[first_axis:], shape[first_axis:])
        return None if run is None else _by_images(run, images, first_axis)
    runs: list[_Run] = []
    for axis in axes[::-1]:
        run = _along(loops, kind, axis, scale, forward, dtype, shape if runs else whole)
        if run is None:
            return None
        runs.append(run)
        kind, scale = _COMPLEX, 1.0
    first, others = runs[0], runs[1:]

    def transform_all(input: Array, out: Array) -> None:
        first(input, out)
        for other in others:
            other(out, out)

    return transform_all if others else first


def _by_images(run: _Run, count: int, dimensions: int) -> _Run:
    """The same for each of the first dimensions' elements by itself."""

    def transform_images(input: Array, out: Array) -> None:
        for image, target in zip(
            input.reshape(count, *input.shape[dimensions:]), out.reshape(count, *out.shape[dimensions:]), strict=True
        ):
            run(image, target)

    return transform_images


def _between_dense(run: _Run, input: Array, out: Array) -> _Run:
    """The same for arrays of any layout."""
    if input.flags.c_contiguous and out.flags.c_contiguous:
        return run

    def copy(input: Array, out: Array) -> None:
        target = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        run(np.ascontiguousarray(input), target)
        if target is not out:
            out[...] = target

    return copy


def _along(
    loops: Any, kind: int, axis: int, scale: float, forward: bool, dtype: Any, shape: tuple[int, ...]
) -> _Run | None:  # fmt: skip
    """A transform along one axis of row-major arrays, the real or the complex one of which has this shape."""
    length = shape[axis]
    if kind != _COMPLEX and length % 2:
        return _odd(loops, kind, axis, scale, forward, dtype, shape)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    n = length if kind == _COMPLEX else length // 2
    lanes = loops.WIDTHS[dtype.itemsize // 2]
    if inner == 1:
        step = _rows(loops, kind, outer, n, scale, forward, dtype, lanes)
    elif n <= _MOST_LANES and inner >= lanes // 2:
        step = _beside(loops, kind, outer, n, inner, scale, forward, dtype, lanes)
    else:
        return _moved(loops, kind, axis, scale, forward, dtype, shape)
    if step is None:
        return None
    return _of_arrays(step.run)


def _of_arrays(run: Callable[[int, int], None]) -> _Run:
    """A transform from one address to another, of arrays."""

    def transform_one(input: Array, out: Array) -> None:
        run(data_address(input), data_address(out))

    return transform_one


def _moved(
    loops: Any, kind: int, axis: int, scale: float, forward: bool, dtype: Any, shape: tuple[int, ...]
) -> _Run | None:  # fmt: skip
    """The same by copies in which the axis is the last."""
    run = _along(loops, kind, len(shape) - 1, scale, forward, dtype, (*shape[:axis], *shape[axis + 1 :], shape[axis]))
    if run is None:
        return None

    def copy(input: Array, out: Array) -> None:
        target = np.moveaxis(out, axis, -1)
        memory = np.empty(target.shape, out.dtype)
        run(np.ascontiguousarray(np.moveaxis(input, axis, -1)), memory)
        target[...] = memory

    return copy


def _odd(
    loops: Any, kind: int, axis: int, scale: float, forward: bool, dtype: Any, shape: tuple[int, ...]
) -> _Run | None:  # fmt: skip
    """The same for an odd number of real numbers: of complex ones."""
    run = _along(loops, _COMPLEX, axis, scale, forward, dtype, shape)
    if run is None:
        return None
    length = shape[axis]
    half = (slice(None),) * axis + (slice(length // 2 + 1),)
    behind = (slice(None),) * axis + (slice(length // 2 + 1, None),)
    mirrored = (slice(None),) * axis + (slice(length // 2, 0, -1),)
    start = (slice(None),) * axis + (0,)

    def forward_odd(input: Array, out: Array) -> None:
        whole = np.empty(shape, dtype)
        run(input.astype(dtype), whole)
        out[...] = whole[half]

    def backward_odd(input: Array, out: Array) -> None:
        whole = np.empty(shape, dtype)
        whole[half] = input[half]
        whole[start].imag = 0
        np.conjugate(input[mirrored], out=whole[behind])
        run(whole, whole)
        out[...] = whole.real

    return forward_odd if kind == _REAL else backward_odd


def _rows(
    loops: Any, kind: int, count: int, n: int, scale: float, forward: bool, dtype: Any, lanes: int
) -> _Step | SingleSignals | None:  # fmt: skip
    """Signals one behind the other: those of usual lengths one by one; of others lanes have one each, or are parts."""
    size = dtype.itemsize
    steps = _steps(kind, n, dtype)
    alone = compiled.kernels("single_signals")
    single = alone and single_signals(alone, kind, count, n, steps, scale, forward, dtype)
    if single:
        return single
    shape = matrix_of(n, lanes, _MOST_LANES) if _LEAST_LONG <= n <= _MOST_LONG else None
    from_, to = steps
    is_whole = (
        shape is not None and is_smooth(n) and n >= _LEAST_WHOLE and not any([length % lanes for length in shape])
    )
    if shape is not None and (n > _MOST_LANES or count < lanes or is_whole):
        rows, columns = shape
        pitch = (columns + lanes) * size
        padded = columns if is_smooth(columns) else convolution_length(columns)
        slots = _slots(loops, max(rows, padded), lanes * size)
        spare = 0 if kind == _COMPLEX else -(-(n + 1) * size // 64) * 64
        tables = long_tables(rows, columns, kind == _COMPLEX, lanes, dtype)
        sizes = [kind, not forward, n, 0, rows, columns, pitch, len(factors_of(rows)), padded]
        return _Step(
            loops.transform[dtype.char], scale, np.array(sizes, np.int64), np.array([from_, to], np.int64), tables,
            count, slots, pitch * rows, spare, count * n * size * 2,
        )  # fmt: skip
    if n > _MOST_LANES:
        return None
    places = [0, size, from_, 0, size, to, 0]
    return _lanes(loops, kind, 1, n, count, places, scale, forward, dtype, lanes)


def _slots(loops: Any, n: int, slot: int) -> int:
    """Bytes of scratch memory for slots of so many elements."""
    return int(-(-((loops.ROOM + 2 * (n + 1)) * slot + loops.PAD) // 64) * 64)


def _beside(
    loops: Any, kind: int, outer: int, n: int, inner: int, scale: float, forward: bool, dtype: Any, lanes: int
) -> _Step | None:  # fmt: skip
    """Signals that lie side by side."""
    size, real = dtype.itemsize, dtype.itemsize // 2
    whole, half = [n * inner * size, inner * size, size], [(n + 1) * inner * size, inner * size, size]
    pairs = [n * inner * size, inner * real, real]
    places = {_COMPLEX: whole + whole, _REAL: pairs + half, _HERMITIAN: half + pairs}[kind]
    return _lanes(loops, kind, outer, n, inner, [*places, 1], scale, forward, dtype, lanes)


def _lanes(
    loops: Any, kind: int, outer: int, n: int, inner: int, places: list[int], scale: float, forward: bool, dtype: Any,
    lanes: int,
) -> _Step | None:  # fmt: skip
    padded = n if is_smooth(n) else convolution_length(n)
    if padded > _MOST_LANES:
        return None
    groups = outer * -(-inner // lanes)
    tables = lanes_tables(n, padded, kind == _COMPLEX, lanes, dtype)
    sizes = np.array([kind, not forward, n, padded, inner], np.int64)
    memory = _slots(loops, padded, lanes * dtype.itemsize)
    return _Step(
        loops.transform[dtype.char], scale, sizes, np.array(places, np.int64), tables, groups, memory, 0, 0,
        outer * inner * n * dtype.itemsize * 2,
    )  # fmt: skip
