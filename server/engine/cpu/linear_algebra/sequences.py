"""Sequences of steps on matrices in the memory of operands and results, executed by one compiled loop.

Steps copy matrices, call BLAS or LAPACK, and look whether something failed. Each of them can also be executed by
NumPy and ctypes, which is done where the loop is not compiled, and before it has been worth the time to load it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from itertools import count as numbers_from
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import numpy as np

from server.engine import compiled
from server.engine.array_library.addresses import data_address
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_libraries import FEW_CALLS, PREFIXES, Each, address_of, by_addresses, constant
from server.engine.value import Launch, Value
from telegrad_protocol.meta import Meta

Array = Any
_CALL, _COPY, _PERMUTATION, _FIND_NUMBER, _FIND_NAN, _FIND_NOT_FINITE = range(6)
_ADDRESSES = 4
"""The codes of ``server/engine/compiled/factorizations/sequences``, and how many addresses its tables have room for."""
FIXED = _ADDRESSES
"""The number of what is always 0, in place of an operand or a result: what is added to it is an address."""
_SIGN = -(1 << 63)
_pointer_of = attrgetter("storage.block.pointer")


class Place(NamedTuple):
    """Memory of an operand or a result, told by its number among both, or at an address."""

    number: int
    offset: int = 0
    step: int = 0

    def address(self, addresses: Sequence[int]) -> int:
        """Where it is in a run."""
        return (0 if self.number == FIXED else addresses[self.number]) + self.offset


class Matrices(NamedTuple):
    """A batch of matrices: where the first one is, and the bytes to the next matrix, row and column."""

    place: Place
    dtype: Any
    shape: tuple[int, int, int]
    steps: tuple[int, int, int]

    @property
    def transposed(self) -> Matrices:
        (count, m, n), (step, row, column) = self.shape, self.steps
        return self._replace(shape=(count, n, m), steps=(step, column, row))

    def block(self, rows: int, columns: int) -> Matrices:
        """The first rows and columns of each."""
        return self._replace(shape=(self.shape[0], rows, columns))

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(self.dtype.itemsize)

    @property
    def leading(self) -> int:
        """The elements from a column to the next, if LAPACK can read them where they are; else 0."""
        (_, m, n), (_, row, column), size = self.shape, self.steps, self.dtype.itemsize
        distance = column // size if n > 1 else m
        is_readable = (row == size or m == 1) and distance >= m and (n == 1 or column % size == 0)
        return max(distance, 1) if is_readable else 0

    def dense_at(self, place: Place) -> Matrices:
        """Others of this shape, with contiguous columns, one behind the other."""
        _, m, n = self.shape
        size = self.dtype.itemsize
        step = m * n * size
        return self._replace(place=place._replace(step=step), steps=(step, size, m * size))

    def array(self, addresses: Sequence[int]) -> Array:
        """NumPy's view of them."""
        if not math.prod(self.shape):
            return np.empty(self.shape, self.dtype)
        extent = sum([(size - 1) * step for size, step in zip(self.shape, self.steps, strict=True)])
        memory = (ctypes.c_char * (extent + self.dtype.itemsize)).from_address(self.place.address(addresses))
        return np.ndarray(self.shape, self.dtype, memory, 0, self.steps)

    @property
    def words(self) -> list[int]:
        return [self.place.number, self.place.offset, *self.steps]


class Step(Protocol):
    """A part of a sequence: the numbers that the compiled loop gets, and the same as a function."""

    @property
    def words(self) -> list[int]: ...

    def run(self, addresses: Sequence[int]) -> bool:
        """Do it; return whether the sequence is to end here."""
        ...


class Copy(NamedTuple):
    """Copies the diagonals from ``lowest`` to ``highest``, counted from the main one upwards; the others are cleared.

    Neither, where ``copies`` or ``clears`` is False. ``conjugates`` is for complex numbers.
    """

    source: Matrices
    target: Matrices
    lowest: int | None = None
    highest: int | None = None
    copies: bool = True
    clears: bool = True
    conjugates: bool = False

    @property
    def _band(self) -> tuple[int, int]:
        _, m, n = self.target.shape
        return -m if self.lowest is None else self.lowest, n if self.highest is None else self.highest

    @property
    def words(self) -> list[int]:
        sign = _SIGN if self.conjugates else 0
        head = [self.target.dtype.itemsize, *self.target.shape, *self._band, self.copies, self.clears, sign]
        return [_COPY, *head, *self.source.words, *self.target.words]

    def run(self, addresses: Sequence[int]) -> bool:
        source, target = self.source.array(addresses), self.target.array(addresses)
        (m, n), (lowest, highest) = target.shape[1:], self._band
        inside = np.tri(m, n, highest, dtype=bool) & ~np.tri(m, n, lowest - 1, dtype=bool)
        if self.copies:
            np.copyto(target, source.conj() if self.conjugates else source, where=inside)
        if self.clears:
            np.copyto(target, 0, where=~inside)
        return False


class WritePermutations(NamedTuple):
    """Writes square matrices P of P L U = A, given the rows, from 1, that LAPACK exchanged, so many for each.

    ``order`` is scratch memory for an int32 number of each row.
    """

    exchanged: Place
    number: int
    order: Place
    target: Matrices

    @property
    def words(self) -> list[int]:
        count, m, _ = self.target.shape
        dtype = self.target.dtype
        one = int.from_bytes(dtype.type(1).tobytes()[:8], "little")
        head = [dtype.itemsize, count, m, self.number, one, self.exchanged.step]
        return [_PERMUTATION, *head, *self.exchanged[:2], *self.order[:2], *self.target.words]

    def run(self, addresses: Sequence[int]) -> bool:
        count, m, _ = self.target.shape
        kind, matrices = np.dtype(np.int32), self.target.array(addresses)
        steps = self.exchanged.step, 4, 4
        exchanged = Matrices(self.exchanged, kind, (count, self.number, 1), steps).array(addresses)[..., 0]
        matrices[...] = 0
        for rows, matrix in zip(exchanged.tolist(), matrices, strict=True):
            order = list(range(m))
            for row, other in enumerate(rows):
                if 1 <= other <= m:
                    order[row], order[other - 1] = order[other - 1], order[row]
            matrix[order, range(m)] = 1
        return False


class Call:
    """Calls a routine, named without its first letter, once for each matrix; arguments are numbers, letters, places."""

    def __init__(self, name: str, dtype: Any, count: int, *arguments: int | str | Place) -> None:
        self._places = [(at, place) for at, place in enumerate(arguments) if isinstance(place, Place)]
        self._kept = [None if isinstance(given, Place) else constant(given) for given in arguments]
        self._function, self._count = PREFIXES[dtype.char] + name, count
        given = [Each(argument.step) if isinstance(argument, Place) else argument for argument in arguments]
        self._call = by_addresses(name, dtype, count, *given)

    @property
    def words(self) -> list[int]:
        given = [0 if kept is None else ctypes.addressof(kept) for kept in self._kept]
        steps = [0] * len(given)
        for at, place in self._places:
            steps[at] = place.step
        moved = [word for at, place in self._places for word in (at, place.number, place.offset)]
        head = [_CALL, address_of(self._function), len(given), self._count, len(self._places)]
        return [*head, *given, *steps, *moved]

    def run(self, addresses: Sequence[int]) -> bool:
        self._call(*[place.address(addresses) for _, place in self._places])
        return False


class EndIfAny(NamedTuple):
    """Ends the sequence where one of some int32 numbers is not 0: LAPACK's info."""

    place: Place
    size: int

    @property
    def words(self) -> list[int]:
        return [_FIND_NUMBER, 4, self.size, 4, *self.place[:2]]

    def run(self, addresses: Sequence[int]) -> bool:
        return any((ctypes.c_int32 * self.size).from_address(self.place.address(addresses)))


class EndIfNaN(NamedTuple):
    """Ends the sequence where one of some real numbers, or the real part of a complex one, is NaN."""

    place: Place
    dtype: Any
    size: int

    @property
    def words(self) -> list[int]:
        real = self.dtype.type(0).real.dtype.itemsize
        return [_FIND_NAN, real, self.size, self.place.step, *self.place[:2]]

    def run(self, addresses: Sequence[int]) -> bool:
        numbers = Matrices(self.place, self.dtype.type(0).real.dtype, (self.size, 1, 1), (self.place.step, 0, 0))
        return bool(np.isnan(numbers.array(addresses)).any())


class EndIfNotFinite(NamedTuple):
    """Ends the sequence where one of some dense numbers, real or complex, is infinite or NaN."""

    place: Place
    dtype: Any
    size: int

    @property
    def words(self) -> list[int]:
        real = self.dtype.type(0).real.dtype.itemsize
        return [_FIND_NOT_FINITE, real, self.size * self.dtype.itemsize // real, real, *self.place[:2]]

    def run(self, addresses: Sequence[int]) -> bool:
        numbers = Matrices(self.place, self.dtype, (self.size, 1, 1), (self.dtype.itemsize, 0, 0))
        return not np.isfinite(numbers.array(addresses)).all()


_runs = numbers_from()
"""Counts the sequences that were executed without the compiled loop."""


def _loop(count: int) -> Any:
    """The module of the compiled loop, None where it is not to be used yet."""
    name = "factorizations.sequences"
    return compiled.kernels(name) if count > FEW_CALLS else compiled.kernels_after(_runs, name)


def sequence(steps: Sequence[Step], count: int) -> Callable[..., bool]:
    """A function of up to four addresses that executes steps for so many matrices, and tells whether one ended it."""
    words = [0] * (_ADDRESSES + 1) + [len(steps)]
    for step in steps:
        code, *rest = step.words
        words += [code, len(rest) + 2, *rest]
    table = (ctypes.c_int64 * len(words))(*words)
    start, loop = ctypes.addressof(table), None

    def run(first: int, second: int, third: int = 0, fourth: int = 0, alive: Any = table) -> bool:
        nonlocal loop
        if loop is None:
            module = _loop(count)
            if module is None:
                return any(step.run((first, second, third, fourth)) for step in steps)
            loop = module.run
        return loop(start, first, second, third, fourth)

    return run


def step_of_batch(meta: Meta) -> int | None:
    """The elements from a matrix to the next, where there is one such number."""
    step = expected = None
    for size, stride in zip(reversed(meta.shape[:-2]), reversed(meta.strides[:-2]), strict=True):
        if size == 1:
            continue
        if expected is None:
            step = expected = stride
        if stride != expected:
            return None
        expected = stride * size
    return step or 0


def matrices_of(number: int, meta: Meta) -> Matrices:
    """The matrices of an operand or a result, which are copied where a batch has no one step."""
    step, size = step_of_batch(meta), meta.dtype.itemsize
    strides, offset = (meta.strides, meta.offset) if step is not None else (meta.like(meta.shape).strides, 0)
    count, apart = math.prod(meta.shape[:-2]), math.prod(meta.shape[-2:]) if step is None else step
    steps = apart * size, strides[-2] * size, strides[-1] * size
    return Matrices(
        Place(number, offset * size, steps[0]),
        np.dtype(NUMPY_DTYPES[meta.dtype]),
        (count, meta.shape[-2], meta.shape[-1]),
        steps,
    )


def numbers_of(number: int, meta: Meta, dimensions: int) -> Place:
    """Where a dense operand or result has numbers for each matrix: as many last dimensions, none for one number."""
    size = meta.dtype.itemsize
    return Place(number, meta.offset * size, math.prod(meta.shape[meta.ndim - dimensions :]) * size)


def _address_of_copy(value: Value) -> tuple[int, Any]:
    copy = np.ascontiguousarray(value.array)
    return data_address(copy), copy


def launch_in_sequence(
    steps: Sequence[Step], operands: Sequence[Meta], fallback: Launch, then: Launch | None = None
) -> Launch:
    """A launch that executes steps with the addresses of the first arguments and of the results, and then another one.

    ``fallback`` computes all of it where a step ends the sequence early.
    """
    known, run = len(operands), sequence(steps, math.prod(operands[0].shape[:-2]))
    scattered = [meta.ndim > 1 and step_of_batch(meta) is None for meta in operands]

    def launch(args: Any, outs: Any) -> None:
        if run(*map(_pointer_of, args[:known] + outs)):
            fallback(args, outs)

    def launch_copies(args: Any, outs: Any) -> None:
        pairs = [
            _address_of_copy(value) if is_scattered else (_pointer_of(value), None)
            for value, is_scattered in zip(args[:known], scattered, strict=True)
        ]
        ended = run(*[address for address, _ in pairs], *map(_pointer_of, outs))
        (fallback if ended else then or _nothing)(args, outs)

    return launch if then is None and not any(scattered) else launch_copies


def _nothing(args: Any, outs: Any) -> None:
    """What follows steps that write all results."""
