"""Graphs for all sizes: a function is traced at several, and numbers that differ become formulas of the sizes.

Dimensions of the same size in the example are one symbol, those of 0 and 1 none. A symbol at whose other sizes the
function does something else, or something that no formula says, is a number of the graph. What ``item()`` reads, and
how many elements ``nonzero`` finds, is a symbol too, whose range the graph asserts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from telegrad._dispatch.fake_tensors import FakeTensorMode
from telegrad._tensor.tensor import Tensor
from telegrad.fx._sizes.fitting import Fit, Point
from telegrad.fx.graph_module import GraphModule
from telegrad_protocol.errors import OperatorError, ProgramError, TelegradError
from telegrad_protocol.exported.sizes import Formula, symbol
from telegrad_protocol.meta import Meta

from .symbolic_graphs import Flat, Place, Power, Range, are_alike, flattened, is_at, rebuilt
from .symbolic_shapes import GuardOnDataDependentSymNode
from .unknowns import HALF, LENGTH, Unknowns

_STEPS: Final = (96, 48, 12, 6, 4, 2, 1, -1)
"""By how much a size is moved: multiples of small divisors first, so that floors of divisions show their slope."""
_NEAR: Final = (1, 3)
"""How far from the example formulas have to hold, too."""
_EXPONENTS: Final = (-1.0, 1.0, -0.5, 0.5)
"""Floats that differ are sizes to one of these powers: derivatives of means, and what scales attention."""
_FAR: Final = 1e-9
"""How far a float to some power may be from an integer, of which it then is the root."""
_STARTS: Final = (3, 2, 1, 0, 9, 33)
"""What numbers that elements decide are taken to be, until the function takes them."""
_FARTHEST: Final = 1 << 16
"""A number that elements decide, and for which the function does the same as far as this, has no bound."""
Trace = Callable[[list[Any], Unknowns], GraphModule]
"""Traces a function on leaves of its arguments, with what is taken for numbers that elements decide."""


class SymbolicTracing:
    """Traces of one function, whose arguments have these leaves in the example. ``symbols`` are sizes that may differ.

    After ``traced``, ``symbols`` are those that the graph has, and ``ranges`` those of numbers that elements decide.
    """

    def __init__(self, trace: Trace, leaves: Sequence[Any], symbols: Sequence[list[Place]]) -> None:
        self._trace, self._leaves = trace, leaves
        self._symbols = [*symbols]
        self.ranges: dict[int, Range] = {}
        self._flat: dict[Any, Flat | Exception] = {}
        self._unknowns = Unknowns()

    def traced(self) -> GraphModule:
        """Return the graph for all sizes. Raises what the function raises on the example.

        Raises GuardOnDataDependentSymNode where the function decides by elements.
        """
        module = self._example()
        base = flattened(module)
        unknown = [[Place(-1, number)] for number in range(len(self._unknowns.kinds))]
        wanted = self._symbols
        self._symbols = [*unknown, *self._symbols]
        if not self._symbols:
            return module
        sizes = self._settled(base)
        for number, place in enumerate(unknown):
            if place not in self._symbols:
                raise _decides(f"number {number} that the function reads, or the length of a result")
        self.ranges = {number: self._range(number, base, sizes) for number in range(len(unknown))}
        fixed = [(places, self._size(places)) for places in wanted if places not in self._symbols]
        return rebuilt(module, sizes, self._symbols, self.ranges, fixed)

    @property
    def symbols(self) -> list[list[Place]]:
        """The sizes that may differ, by their places."""
        return [places for places in self._symbols if places[0].unknown is None]

    def _example(self) -> GraphModule:
        """Trace the example: numbers that elements decide are taken to be some for which the function works."""
        errors: list[Exception] = []
        for start in _STARTS:
            self._unknowns = Unknowns(start=start)
            try:
                return self._trace(self._at([self._size(places) for places in self._symbols])[0], self._unknowns)
            except Exception as error:
                errors.append(error)
                if not self._unknowns.kinds or isinstance(error, GuardOnDataDependentSymNode):
                    raise
        raise errors[0]

    def _settled(self, base: Flat) -> list[Any]:
        """Return each number of the graph as a size; symbols of which there is none that says how are dropped."""
        while True:
            self._symbols, moved = self._moving(base)
            sizes, refused = self._fitted(base, moved)
            if not refused:
                return sizes
            self._symbols = [places for index, places in enumerate(self._symbols) if index not in refused]

    def _range(self, number: int, base: Flat, sizes: Sequence[Any]) -> Range:
        """Return the range of a number that elements decide in which the function does what the graph does."""
        index, at = self._symbols.index([Place(-1, number)]), self._base()
        names = [f"s{place}" for place in range(len(self._symbols))]
        floats = self._floats()

        def holds(value: int) -> bool:
            point = (*at[:index], value, *at[index + 1 :])
            flat = self._flat_at(point)
            if isinstance(flat, Exception):  # what operations raise, they raise in the graph, too; not so torch._check
                return isinstance(flat, TelegradError) and not isinstance(flat, OperatorError)
            if not are_alike(flat, base):
                if value > 1:
                    raise _decides("a number that the function reads, or the length of a result")
                return False
            known = dict(zip(names, point, strict=True))
            return all([is_at(size, known, floats, made) for size, made in zip(sizes, flat.numbers, strict=True)])

        kind = self._unknowns.kinds[number]
        if kind == "float" and not all(map(holds, (-_FARTHEST, -2, -1, 0, 1, _FARTHEST))):
            raise _decides("a number in floating point that the function reads")
        if kind == "float":
            return Range(None, None)
        least = _last(holds, at[index], (1, 0) if kind == LENGTH else (1, 0, -1, -_FARTHEST))
        most = _last(holds, at[index], (at[index] + 1, at[index] + 2, at[index] + 3, 2 * at[index] + 16, _FARTHEST))
        if least == most:
            raise _decides("a number that the function reads")
        return Range(None if least == -_FARTHEST else least, None if most == _FARTHEST else most)

    def _floats(self) -> set[str]:
        """Return the names of the symbols that are numbers in floating point which the function reads."""
        kinds = self._unknowns.kinds
        return {
            f"s{index}" for index, places in enumerate(self._symbols)
            if places[0].unknown is not None and kinds[places[0].unknown] == "float"
        }  # fmt: skip

    def _size(self, places: Sequence[Place]) -> int:
        place = places[0]
        if place.unknown is not None:
            return self._unknowns.values[place.unknown]
        leaf = self._leaves[place.leaf]
        return int(leaf) if place.dim is None else leaf.shape[place.dim]

    def _base(self) -> Point:
        return tuple([self._size(places) for places in self._symbols])

    def _at(self, point: Sequence[int]) -> tuple[list[Any], Unknowns]:
        """Return the leaves where the symbols have these sizes, and the numbers that elements decide."""
        sizes = {place: size for places, size in zip(self._symbols, point, strict=True) for place in places}
        leaves = [self._leaf(number, leaf, sizes) for number, leaf in enumerate(self._leaves)]
        return leaves, Unknowns([sizes.get(Place(-1, n), value) for n, value in enumerate(self._unknowns.values)])

    @staticmethod
    def _leaf(number: int, leaf: Any, sizes: Mapping[Place, int]) -> Any:
        if not isinstance(leaf, Tensor):
            return sizes.get(Place(number, None), leaf)
        meta = leaf._meta
        shape = [sizes.get(Place(number, dim), size) for dim, size in enumerate(meta.shape)]
        strides = meta.strides if tuple(shape) == meta.shape else _strides(shape, meta.strides)
        made = Meta.of(shape, meta.dtype, meta.device, strides)
        return FakeTensorMode().of_meta(made, leaf.requires_grad)

    def _flat_at(self, point: Point) -> Flat | Exception:
        """Return the graph at these sizes; where the function cannot be traced there, what it raises."""
        key = tuple([(size, *places) for size, places in zip(point, self._symbols, strict=True)])
        if key not in self._flat:
            try:
                self._flat[key] = flattened(self._trace(*self._at(point)))
            except Exception as error:  # whatever the function raises for such sizes
                self._flat[key] = error.with_traceback(None)
        return self._flat[key]

    def _moving(self, base: Flat) -> tuple[list[list[Place]], list[Point]]:
        """Return the symbols at another size of which the function does the same, and that point of each."""
        at = self._base()
        kept: list[tuple[list[Place], int]] = []
        for index, size in enumerate(at):
            least = 0 if self._symbols[index][0].unknown is not None else 2
            points = [(*at[:index], size + step, *at[index + 1 :]) for step in _STEPS if size + step >= least]
            alike = next((point for point in points if are_alike(self._flat_at(point), base)), None)
            if self._symbols[index][0].unknown is None and self._differs_near(index, at, base):
                continue
            kept += [] if alike is None else [(self._symbols[index], alike[index])]
        symbols = [places for places, _ in kept]
        base_of = tuple([self._size(places) for places in symbols])
        return symbols, [(*base_of[:i], size, *base_of[i + 1 :]) for i, (_, size) in enumerate(kept)]

    def _differs_near(self, index: int, at: Point, base: Flat) -> bool:
        """Whether the function does something else at sizes of a symbol next to that of the example."""
        flats = [self._flat_at((*at[:index], at[index] + step, *at[index + 1 :])) for step in _NEAR]
        return any([isinstance(flat, Flat) and not are_alike(flat, base) for flat in flats])

    def _near(self, at: Point) -> Iterator[Point]:
        """Yield points next to the example, of each symbol and of all: they tell floors of divisions from products."""
        for step in _NEAR:
            yield tuple([size + step for size in at])
            for index, size in enumerate(at):
                yield (*at[:index], size + step, *at[index + 1 :])

    def _fitted(self, base: Flat, moved: Sequence[Point]) -> tuple[list[Any], set[int]]:
        """Return each number as a size, and the symbols on which one depends in no way that a formula says."""
        at, names = self._base(), [f"s{index}" for index in range(len(self._symbols))]
        points = [*moved, *[point for point in self._near(at) if are_alike(self._flat_at(point), base)]]
        flats = {at: base, **{point: self._flat_at(point) for point in points}}
        floats = self._floats()
        sizes: list[Any] = []
        for index, number in enumerate(base.numbers):
            values = {point: flat.numbers[index] for point, flat in flats.items() if isinstance(flat, Flat)}

            def value_at(point: Point, index: int = index) -> Any:
                flat = self._flat_at(point)
                if isinstance(flat, Exception) or not are_alike(flat, base):
                    raise ProgramError("make_fx: the function does something else at these sizes")
                return flat.numbers[index]

            is_same = len({*map(repr, values.values())}) == 1
            size = number if is_same else _read(names, values, floats) or _fit(names, values, at, moved, value_at)
            if isinstance(size, Power) and floats.intersection(size.size.names()):
                size = None
            if size is None:
                return [], {
                    place for place, point in enumerate(moved) if repr(values.get(point, number)) != repr(number)
                }
            sizes.append(size)
        return sizes, set()


def _read(names: Sequence[str], values: Mapping[Point, Any], floats: set[str]) -> Formula | None:
    """Return the symbol of the number in floating point that these values are."""
    return next(
        (
            symbol(name) for index, name in enumerate(names)
            if name in floats and all([value == point[index] + HALF for point, value in values.items()])
        ),
        None,
    )  # fmt: skip


def _last(holds: Callable[[int], bool], works: int, towards: Sequence[int]) -> int:
    """Return the last value on the way through these for which something holds, given one for which it does."""
    for value in towards:
        if (value - works) * (towards[-1] - works) <= 0:
            continue
        if not holds(value):
            while abs(value - works) > 1:
                middle = (works + value) // 2
                works, value = (middle, value) if holds(middle) else (works, middle)
            return works
        works = value
    return works


def _decides(what: str) -> GuardOnDataDependentSymNode:
    return GuardOnDataDependentSymNode(
        f"make_fx: the function decides by {what}, or computes something of it that no formula says; use torch.cond, "
        "torch.where or torch._check, or compute with tensors"
    )


def _fit(
    names: Sequence[str], values: Mapping[Point, Any], at: Point, moved: Sequence[Point],
    value_at: Callable[[Point], Any],
) -> Any:  # fmt: skip
    """Return how a number depends on the symbols: a formula, or for floats a power of one; None if it is not found."""
    exponents = _EXPONENTS if isinstance(values[at], float) else (1,)
    for exponent in exponents:

        def integer(number: Any, exponent: float = exponent) -> int:
            if isinstance(number, int):
                return number
            base: float = number ** (1 / exponent) if 0 < number < math.inf else 0.5
            if abs(base - round(base)) > _FAR * abs(base):
                raise ProgramError("make_fx: a float is no power of a size")
            return round(base)

        try:
            wanted = {point: integer(value) for point, value in values.items()}
            size = Fit(names, wanted, at, moved, lambda point: integer(value_at(point))).size()
        except ProgramError:
            continue
        if isinstance(size, Formula):
            return Power(size, exponent) if isinstance(values[at], float) else size
    return None


def symbols_of(leaves: Sequence[Any]) -> list[list[Place]]:
    """Return the places of each size of an example that may differ: where it is the same, it is one symbol."""
    by_size: dict[Any, list[Place]] = {}
    for number, leaf in enumerate(leaves):
        if type(leaf) is int and leaf > 1:
            by_size[number, leaf] = [Place(number, None)]
        if isinstance(leaf, Tensor) and _is_dense(leaf):
            for dim, size in enumerate(leaf.shape):
                if size > 1:
                    by_size.setdefault(size, []).append(Place(number, dim))
    return list(by_size.values())


def _is_dense(tensor: Tensor) -> bool:
    """Whether a tensor's elements lie in memory without gaps, so that it is known how larger ones would."""
    return _strides(tensor.shape, tensor._meta.strides) == tuple(tensor._meta.strides)


def _strides(shape: Sequence[int], like: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor whose dimensions lie in memory in the order that these strides have."""
    strides, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda dim: (like[dim], -dim)):
        strides[dim], step = step, step * max(shape[dim], 1)
    return tuple(strides)
