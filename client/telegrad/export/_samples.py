"""A module recorded at several sizes of its dynamic dimensions, and the program that they have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

from telegrad._dispatch.programs import Operand
from telegrad._tensor.tensor import Tensor
from telegrad.fx._sizes.fitting import Fit, Point
from telegrad_protocol.errors import ProgramError
from telegrad_protocol.exported.sizes import Formula, Size, symbol
from telegrad_protocol.meta import Meta

from ._recording import Recording, line_of, told
from ._session import RecordedStep

LARGE: Final = 1 << 16
"""A dimension without a bound is recorded at about this size, too: a table or a check may bound it."""
_STEPS: Final = (96, 48, 12, 6, 4, 2, 1)
"""By how much a size is moved: a multiple of small divisors, so that floors of divisions show their slope."""


class Symbol:
    """A size that may differ: what it is in the example, and from where to where it goes.

    ``is_named`` tells that the program has named it, so that what it cannot be is an error; ``kind`` is that of a hint.
    ``takes_none`` tells that the program does not exclude 0. The size of a dimension is ``factor`` times the symbol's:
    that of a hint may have to be a multiple.
    """

    def __init__(self, name: str, base: int, min: int, max: int | None, kind: str = "") -> None:
        self.name, self.base, self.min, self.max, self.kind = name, base, min, max, kind
        self.takes_none = min < 1
        self.factor = 1

    @property
    def is_named(self) -> bool:
        """Whether the program has given it a name."""
        return not self.kind

    def count_by(self, factor: int) -> None:
        """Have the dimension be a multiple of ``factor``, of which base and range are told from here on."""
        self.factor, self.base, self.min = factor, self.base // factor, -(-self.min // factor)
        self.max = None if self.max is None else self.max // factor

    def multiple(self) -> Formula:
        """Return the size of the dimension of a hint."""
        return symbol(self.name) if self.factor == 1 else Formula(((self.factor, self.name),))

    def takes(self, size: int) -> bool:
        """Whether a size is in the range."""
        return max(self.min, 1) <= size and (self.max is None or size <= self.max)


class Flat(NamedTuple):
    """A recording as what must be the same at all sizes, and the integers, with where each of them stands."""

    same: list[Any]
    integers: list[int]
    places: list[tuple[int, str]]


class Samples:
    """Recordings by the point at which each was made; ``record`` makes one, given a size for each symbol."""

    def __init__(self, symbols: Sequence[Symbol], record: Callable[[Point], Recording]) -> None:
        self.symbols = symbols
        self._record = record
        self.base: Point = tuple([symbol.base for symbol in symbols])
        self._flat: dict[Point, Flat] = {}
        self.recordings: dict[Point, Recording] = {}
        self.moved: list[Point] = []
        self._sizes: list[Size] | None = None

    def first(self) -> Recording:
        """Return the recording of the example."""
        self._flat_at(self.base)
        return self.recordings[self.base]

    def moved_by_one(self, index: int) -> Point:
        """Return the point where this symbol alone is moved, and record there; a hint's is moved by one if need be."""
        symbol = self.symbols[index]
        sizes = [symbol.base + d for step in _STEPS for d in (step, -step) if symbol.takes(symbol.base + d)]
        if not sizes:
            raise ProgramError(
                f"export: the dimension {symbol.name} can only be {symbol.base} (from {symbol.min} to {symbol.max}); "
                "make it static (Dim.STATIC)"
            )
        near = [] if symbol.is_named else [size for size in sizes[1:] if abs(size - symbol.base) == 1 < size]
        errors: list[ProgramError] = []
        for point in [self.with_size(index, size) for size in (sizes[0], *near)]:
            try:
                self.record_at(point)
            except ProgramError as error:
                errors.append(error)
            else:
                return point
        raise errors[0]

    def with_size(self, index: int, size: int) -> Point:
        """Return the example's point with one symbol's size replaced."""
        return (*self.base[:index], size, *self.base[index + 1 :])

    def record_at(self, point: Point) -> None:
        """Record there; ProgramError where the module fails, or does something else than in the example."""
        flat, base = self._flat_at(point), self._flat_at(self.base)
        for place, (ours, theirs) in enumerate(zip(flat.same, base.same)):
            if ours != theirs:
                self._forget(point, f"the module {self._difference(point, place)}")
        if len(flat.same) != len(base.same) or flat.places != base.places:
            self._forget(point, "the module does more or fewer operations, or on tensors of more or fewer dimensions")

    def is_recorded_at(self, point: Point) -> bool:
        """Record there; whether the module does the operations of the example."""
        try:
            self.record_at(point)
        except ProgramError:
            return False
        return True

    def _forget(self, point: Point, difference: str) -> NoReturn:
        """Raise what is different there, and keep nothing of it: the program is not for that point."""
        del self._flat[point], self.recordings[point]
        raise ProgramError(f"export: {self._changes(point)} {difference}")

    def does_the_same_at(self, point: Point) -> bool:
        """Whether the module does there what all other recordings tell."""
        if point in self._flat:
            return True
        sizes = self.sizes()
        if not self.is_recorded_at(point):
            return False
        values = {symbol.name: size for symbol, size in zip(self.symbols, point, strict=True)}
        told = [size.value(values) if isinstance(size, Formula) else size for size in sizes]
        return self._flat.pop(point).integers == told

    def sizes(self) -> list[Size]:
        """Return all integers of the recordings, those that depend on symbols as formulas."""
        if self._sizes is None:
            self._sizes = self._fitted()
        return self._sizes

    @property
    def points(self) -> list[Point]:
        """Return where the module was recorded."""
        return [*self._flat]

    def fit(self, points: Sequence[Point]) -> bool:
        """Forget all recordings but those at these points; whether there are formulas for all integers of these."""
        self._flat = {point: self._flat_at(point) for point in {*points, *self.moved, self.base}}
        try:
            self.sizes()
        except ProgramError:
            return False
        return True

    def _fitted(self) -> list[Size]:
        names = [symbol.name for symbol in self.symbols]
        base = self._flat_at(self.base)
        fits: list[Size] = []
        for index, integer in enumerate(base.integers):
            values = {point: flat.integers[index] for point, flat in self._flat.items()}
            size = Fit(names, values, self.base, self.moved, partial(self._integer, index)).size()
            if size is None:
                raise ProgramError(self._unfitted(base.places[index], values, integer))
            fits.append(size)
        return fits

    def _integer(self, index: int, point: Point) -> int:
        if not all([symbol.takes(size) for symbol, size in zip(self.symbols, point, strict=True)]):
            raise ProgramError(f"export: {self._changes(point)} sizes are beyond their ranges")
        self.record_at(point)
        return self._flat[point].integers[index]

    def _flat_at(self, point: Point) -> Flat:
        flat = self._flat.get(point)
        if flat is None:
            try:
                recording = self._record(point)
            except Exception as error:
                if point == self.base:
                    raise
                raise ProgramError(
                    f"export: {self._changes(point)} the module fails at {line_of(error)}: {told(error)}"
                ) from error
            self.recordings[point] = recording
            flat = self._flat[point] = flattened(recording)
        return flat

    def _changes(self, point: Point) -> str:
        changed = [
            f"{symbol.name}={size * symbol.factor} in place of {symbol.base * symbol.factor}"
            for symbol, size in zip(self.symbols, point, strict=True)
            if size != symbol.base
        ]
        return f"with {' and '.join(changed)}"

    def _difference(self, point: Point, place: int) -> str:
        step = self._step_of(point, place), self._step_of(self.base, place)
        if step == (None, None):
            return self._difference_of_data(point)
        if None in step or step[0].op is not step[1].op:  # type: ignore[union-attr]
            here, there = [
                "nothing" if one is None else f"{one.op.public} at {one.line or 'an unknown line'}" for one in step
            ]
            return f"takes another path: {here} in place of {there}; a program has one path for all sizes"
        op, line = step[0].op, step[0].line  # type: ignore[union-attr]
        return (
            f"gives {op.public} at {line} other arguments, which are no integers; compute them from tensors, or make "
            "the dimension static"
        )

    def _difference_of_data(self, point: Point) -> str:
        ours, theirs = self.recordings[point].uploads, self.recordings[self.base].uploads
        lines = [made.line for number, made in ours.items() if theirs.get(number) != made]
        if lines:
            return f"makes a tensor of other data at {lines[0]}; compute it from tensors and sizes (arange, full)"
        return "returns another structure, or uses other tensors of its own"

    def _step_of(self, point: Point, place: int) -> RecordedStep | None:
        steps = self.recordings[point].steps
        return steps[place] if place < len(steps) else None

    def _unfitted(self, place: tuple[int, str], values: dict[Point, int], integer: int) -> str:
        step, argument = place
        recorded = self._step_of(self.base, step)
        where = (
            f"a result, {argument}," if recorded is None else f"{argument} of {recorded.op.public} at {recorded.line}"
        )
        names = ", ".join([symbol.name for symbol in self.symbols])
        seen = "; ".join([f"{value} at {', '.join(map(str, point))}" for point, value in [*values.items()][:4]])
        return (
            f"export: {where} depends on {names} in no way that a program can say: {seen}. Sums, products and floor "
            "divisions by constants are understood; make the dimension static otherwise (Dim.STATIC)"
        )


def flattened(recording: Recording) -> Flat:
    """Take a recording apart: one entry for each step, then what else there is, and all integers in order."""
    flat = Flat([], [], [])
    for number, step in enumerate(recording.steps):
        kept: list[Any] = [step.op.name, step.outs, [meta.dtype.name for meta in step.metas]]
        for param, value in zip(step.op.params, step.args, strict=True):
            kept.append(_taken(value, number, f"argument {param.name!r}", flat))
        flat.same.append(kept)
        for meta in step.metas:
            flat.integers.extend(meta.shape)
            flat.places.extend([(number, "the shape of the result")] * meta.ndim)
    after = len(recording.steps)
    flat.same.append([(number, made.data, made.meta) for number, made in recording.uploads.items()])
    flat.same.append([*recording.captured])
    flat.same.append(recording.structure)
    for place, leaf in enumerate(recording.results):
        flat.same.append(_taken(leaf, after, f"number {place}", flat))
    return flat


def _taken(value: Any, step: int, where: str, flat: Flat) -> Any:
    """Return what must be the same of a value, and note the integers in it."""
    if isinstance(value, Tensor):
        flat.integers.extend(value._meta.shape)
        flat.places.extend([(step, where)] * value.ndim)
        return "tensor", value._id, value.dtype.name
    if value.__class__ is Operand or value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        flat.integers.append(value)
        flat.places.append((step, where))
        return int
    if isinstance(value, (tuple, list)):
        return [_taken(item, step, where, flat) for item in value]
    return repr(value)


class Rebuilt:
    """Hands out the sizes of a recording in the order in which ``flattened`` noted the integers."""

    def __init__(self, sizes: Sequence[Size]) -> None:
        self._rest = iter(sizes)

    def of(self, value: Any) -> Any:
        """Return a value with its integers replaced; a tensor becomes its shape."""
        if isinstance(value, Tensor):
            return self.shape(value._meta)
        if value.__class__ is Operand or value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return next(self._rest)
        if isinstance(value, (tuple, list)):
            return tuple([self.of(item) for item in value])
        return value

    def shape(self, meta: Meta) -> tuple[Size, ...]:
        """Return the shape of a meta."""
        return tuple([next(self._rest) for _ in meta.shape])
