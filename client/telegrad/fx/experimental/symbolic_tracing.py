"""Graphs for all sizes: a function is traced at several, and numbers that differ become formulas of the sizes.

Dimensions of the same size in the example are one symbol, those of 0 and 1 none. A symbol at whose other sizes the
function does something else, or something that no formula says, is a number of the graph.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from telegrad._dispatch.fake_tensors import FakeTensorMode
from telegrad._tensor.tensor import Tensor
from telegrad.fx._sizes.fitting import Fit, Point
from telegrad.fx._sizes.nodes import SizeNodes
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node
from telegrad.ops import aten
from telegrad_protocol.errors import ProgramError
from telegrad_protocol.exported.sizes import Formula
from telegrad_protocol.meta import Meta

_STEPS: Final = (96, 48, 12, 6, 4, 2, 1, -1)
"""By how much a size is moved: multiples of small divisors first, so that floors of divisions show their slope."""
_EXPONENTS: Final = (-1.0, 1.0, -0.5, 0.5)
"""Floats that differ are sizes to one of these powers: derivatives of means, and what scales attention."""
_FAR: Final = 1e-9
"""How far a float to some power may be from an integer, of which it then is the root."""
_MOST_LISTED: Final = 1024
"""Constants of so many elements are compared."""

Trace = Callable[[list[Any]], GraphModule]
"""Traces a function on leaves of its arguments."""


class Place(NamedTuple):
    """Where a symbol is: a leaf of the arguments, and its dimension; None where the leaf is the number."""

    leaf: int
    dim: int | None


class Power(NamedTuple):
    """A float that is a size to some power."""

    size: Formula
    exponent: float


class Flat(NamedTuple):
    """A traced graph as what must be the same at all sizes, and its integers and floats."""

    same: list[Any]
    numbers: list[Any]


class SymbolicTracing:
    """Traces of one function, whose arguments have these leaves in the example."""

    def __init__(self, trace: Trace, leaves: Sequence[Any]) -> None:
        self._trace, self._leaves = trace, leaves
        self._symbols: list[list[Place]] = _symbols(leaves)
        self._flat: dict[Any, Flat | None] = {}

    def traced(self) -> GraphModule:
        """Return the graph for all sizes. Raises what the function raises on the example."""
        module = self._trace(self._at([self._size(places) for places in self._symbols]))
        base = flattened(module)
        self._symbols, moved = self._moving(base)
        sizes, refused = self._fitted(base, moved)
        while refused:
            self._symbols = [places for index, places in enumerate(self._symbols) if index not in refused]
            self._symbols, moved = self._moving(base)
            sizes, refused = self._fitted(base, moved)
        return _rebuilt(module, sizes, self._symbols)

    def _size(self, places: Sequence[Place]) -> int:
        leaf, dim = self._leaves[places[0].leaf], places[0].dim
        return int(leaf) if dim is None else leaf.shape[dim]

    def _base(self) -> Point:
        return tuple([self._size(places) for places in self._symbols])

    def _at(self, point: Sequence[int]) -> list[Any]:
        """Return the leaves where the symbols have these sizes."""
        sizes = {place: size for places, size in zip(self._symbols, point, strict=True) for place in places}
        return [self._leaf(number, leaf, sizes) for number, leaf in enumerate(self._leaves)]

    @staticmethod
    def _leaf(number: int, leaf: Any, sizes: Mapping[Place, int]) -> Any:
        if not isinstance(leaf, Tensor):
            return sizes.get(Place(number, None), leaf)
        meta = leaf._meta
        shape = [sizes.get(Place(number, dim), size) for dim, size in enumerate(meta.shape)]
        strides = meta.strides if tuple(shape) == meta.shape else _strides(shape, meta.strides)
        made = Meta.of(shape, meta.dtype, meta.device, strides)
        return FakeTensorMode().of_meta(made, leaf.requires_grad)

    def _flat_at(self, point: Point) -> Flat | None:
        """Return the graph at these sizes; None where the function cannot be traced there."""
        key = tuple([(size, *places) for size, places in zip(point, self._symbols, strict=True)])
        if key not in self._flat:
            try:
                self._flat[key] = flattened(self._trace(self._at(point)))
            except Exception:  # whatever the function raises for such sizes
                self._flat[key] = None
        return self._flat[key]

    def _moving(self, base: Flat) -> tuple[list[list[Place]], list[Point]]:
        """Return the symbols at another size of which the function does the same, and that point of each."""
        at = self._base()
        kept: list[tuple[list[Place], int]] = []
        for index, size in enumerate(at):
            points = [(*at[:index], size + step, *at[index + 1 :]) for step in _STEPS if size + step > 1]
            alike = next((point for point in points if _are_alike(self._flat_at(point), base)), None)
            kept += [] if alike is None else [(self._symbols[index], alike[index])]
        symbols = [places for places, _ in kept]
        base_of = tuple([self._size(places) for places in symbols])
        return symbols, [(*base_of[:i], size, *base_of[i + 1 :]) for i, (_, size) in enumerate(kept)]

    def _fitted(self, base: Flat, moved: Sequence[Point]) -> tuple[list[Any], set[int]]:
        """Return each number as a size, and the symbols on which one depends in no way that a formula says."""
        at, names = self._base(), [f"s{index}" for index in range(len(self._symbols))]
        flats = {at: base, **{point: self._flat_at(point) for point in moved}}
        sizes: list[Any] = []
        for index, number in enumerate(base.numbers):
            values = {point: flat.numbers[index] for point, flat in flats.items() if flat is not None}

            def value_at(point: Point, index: int = index) -> Any:
                flat = self._flat_at(point)
                if flat is None or not _are_alike(flat, base):
                    raise ProgramError("make_fx: the function does something else at these sizes")
                return flat.numbers[index]

            size = number if len({*map(repr, values.values())}) == 1 else _fit(names, values, at, moved, value_at)
            if size is None:
                return [], {
                    place for place, point in enumerate(moved) if repr(values.get(point, number)) != repr(number)
                }
            sizes.append(size)
        return sizes, set()


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


def _symbols(leaves: Sequence[Any]) -> list[list[Place]]:
    """Return the places of each symbol."""
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


def _are_alike(flat: Flat | None, base: Flat) -> bool:
    return flat is not None and flat.same == base.same


def flattened(module: GraphModule) -> Flat:
    """Return a traced graph in parts that can be compared."""
    flat = Flat([], [])
    numbers: dict[Node, int] = {}
    for node in module.graph.nodes:
        numbers[node] = len(numbers)
        flat.same.append((node.op, node.target, _constant(module, node)))
        for part in _parts((node.args, node.kwargs)):
            is_number = type(part) in (int, float)
            flat.numbers.extend([part] * is_number)
            flat.same.append(type(part) if is_number else numbers[part] if isinstance(part, Node) else part)
    return flat


def _constant(module: GraphModule, node: Node) -> Any:
    """Return what tells the constant of a node from others."""
    if node.op != "get_attr":
        return None
    value = getattr(module, str(node.target))
    if isinstance(value, GraphModule):
        inner = flattened(value)
        return inner.same, inner.numbers
    is_listed = isinstance(value, Tensor) and value.numel() <= _MOST_LISTED and not value.requires_grad
    return (value.dtype, value.tolist()) if is_listed else id(value)


def _parts(value: Any) -> Iterator[Any]:
    """Yield what trees of arguments consist of, with marks for their structure."""
    if isinstance(value, (tuple, list)):
        yield type(value), len(value)
        for item in value:
            yield from _parts(item)
    elif isinstance(value, Mapping):
        yield tuple(value)
        for item in value.values():
            yield from _parts(item)
    else:
        yield value


def _rebuilt(module: GraphModule, sizes: Sequence[Any], symbols: Sequence[Sequence[Place]]) -> GraphModule:
    """Return a graph with the nodes of sizes in the place of numbers."""
    made = Graph()
    copies: dict[Node, Node] = {}
    inputs: list[Node] = []
    rest = iter(sizes)

    def symbol_node(name: str) -> Any:
        leaf, dim = symbols[int(name[1:])][0]
        return inputs[leaf] if dim is None else made.call_function(aten.sym_size.int, (inputs[leaf], dim))

    nodes = SizeNodes(made.call_function, symbol_node)

    def changed(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: changed(item) for name, item in value.items()}
        if isinstance(value, (tuple, list)):
            return (tuple if isinstance(value, tuple) else list)([changed(item) for item in value])
        if type(value) in (int, float):
            size = next(rest)
            if isinstance(size, Power):
                return made.call_function(operator.pow, (nodes.node(size.size), size.exponent))
            return nodes.node(size) if isinstance(size, Formula) else size
        return copies[value] if isinstance(value, Node) else value

    for node in module.graph.nodes:
        args, kwargs = changed(node.args), changed(node.kwargs)
        copies[node] = made.create_node(node.op, node.target, args, kwargs, node.name)
        copies[node].meta = dict(node.meta)
        inputs += [copies[node]] * (node.op == "placeholder")
    made.set_codegen(module.graph._codegen)
    return GraphModule(module, made, type(module).__name__)
