"""Traced graphs as what is the same at all sizes and numbers that differ, and as graphs that compute these numbers."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from telegrad._tensor.tensor import Tensor
from telegrad.fx._sizes.nodes import SizeNodes
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node
from telegrad.ops import aten
from telegrad_protocol.exported.sizes import Formula

from .unknowns import HALF, KEY, LENGTH, Known, require_range

_FAR: Final = 1e-9
"""How far a power of a size may be from the float that it is."""
_MOST_LISTED: Final = 1024
"""Constants of so many elements are compared."""


class Place(NamedTuple):
    """Where a symbol is: a leaf of the arguments, and its dimension; None where the leaf is the number.

    A number that elements decide is in no leaf, which is -1; ``dim`` is which of these numbers it is.
    """

    leaf: int
    dim: int | None

    @property
    def unknown(self) -> int | None:
        """Which of the numbers that elements decide it is; None where it is none."""
        return self.dim if self.leaf < 0 else None


class Power(NamedTuple):
    """A float that is a size to some power."""

    size: Formula
    exponent: float


class Flat(NamedTuple):
    """A traced graph as what must be the same at all sizes, and its integers and floats."""

    same: list[Any]
    numbers: list[Any]


class Range(NamedTuple):
    """From where to where a number goes that elements decide; None is no bound."""

    least: int | None
    most: int | None


def are_alike(flat: Flat | Exception, base: Flat) -> bool:
    return isinstance(flat, Flat) and flat.same == base.same


def flattened(module: GraphModule) -> Flat:
    """Return a traced graph in parts that can be compared."""
    flat = Flat([], [])
    numbers: dict[Node, int] = {}
    for node in module.graph.nodes:
        numbers[node] = len(numbers)
        flat.same.append((node.op, node.target, node.meta.get(KEY), _constant(module, node)))
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


def is_at(size: Any, sizes: Mapping[str, int], floats: set[str], wanted: Any) -> bool:
    """Whether a size is a number where the symbols have these sizes; ``floats`` are those to which a half is added."""
    if isinstance(size, Power):
        return bool(abs(size.size.value(sizes) ** size.exponent - wanted) <= _FAR * abs(wanted))
    if not isinstance(size, Formula):
        return repr(size) == repr(wanted)
    return bool(size.value(sizes) + (HALF if floats.intersection(size.names()) else 0) == wanted)


class _Rebuilding:
    """Makes a graph with the nodes of sizes in the place of numbers; ``ranges`` are asserted where it runs."""

    def __init__(
        self, sizes: Sequence[Any], symbols: Sequence[Sequence[Place]], ranges: Mapping[int, Range]
    ) -> None:  # fmt: skip
        self.graph = Graph()
        self._copies: dict[Node, Node] = {}
        self._inputs: list[Node] = []
        self._unknown: dict[int, Node] = {}
        self._rest, self._symbols, self._ranges = iter(sizes), symbols, ranges
        self._nodes = SizeNodes(self.graph.call_function, self._symbol_node)

    def add(self, node: Node) -> None:
        """Add a node of the graph that was traced."""
        args, kwargs = self._changed(node.args), self._changed(node.kwargs)
        self._copies[node] = made = self.graph.create_node(node.op, node.target, args, kwargs, node.name)
        made.meta = dict(node.meta)
        if node.op == "placeholder":
            self._inputs.append(made)
        if KEY in node.meta:
            self._add_unknown(node.meta[KEY], made)

    def _add_unknown(self, known: Known, made: Node) -> None:
        if known.kind == LENGTH:
            made = self.graph.call_function(aten.sym_size.int, (made, known.dim))
        self._unknown[known.number] = made
        least, most = self._ranges.get(known.number, (None, None))
        least = None if known.kind == LENGTH and least == 0 else least
        if (least, most) != (None, None):
            self.graph.call_function(require_range, (made, least, most))

    def require(self, fixed: Sequence[tuple[Sequence[Place], int]]) -> None:
        """Have the graph refuse other sizes of these places."""
        for places, size in fixed:
            for place in places:
                self.graph.call_function(require_range, (self._at(place), size, size))

    def _at(self, place: Place) -> Any:
        source = self._inputs[place.leaf]
        return source if place.dim is None else self.graph.call_function(aten.sym_size.int, (source, place.dim))

    def _symbol_node(self, name: str) -> Any:
        place = self._symbols[int(name[1:])][0]
        if place.unknown is not None:
            return self._unknown[place.unknown]
        return self._at(place)

    def _changed(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._changed(item) for name, item in value.items()}
        if isinstance(value, (tuple, list)):
            return (tuple if isinstance(value, tuple) else list)([self._changed(item) for item in value])
        if type(value) in (int, float):
            size = next(self._rest)
            if isinstance(size, Power):
                return self.graph.call_function(operator.pow, (self._nodes.node(size.size), size.exponent))
            return self._nodes.node(size) if isinstance(size, Formula) else size
        return self._copies[value] if isinstance(value, Node) else value


def rebuilt(
    module: GraphModule, sizes: Sequence[Any], symbols: Sequence[Sequence[Place]], ranges: Mapping[int, Range],
    fixed: Sequence[tuple[Sequence[Place], int]],
) -> GraphModule:  # fmt: skip
    """Return a graph with the nodes of sizes in the place of numbers; ``fixed`` are sizes that cannot differ."""
    rebuilding = _Rebuilding(sizes, symbols, ranges)
    is_begun = False
    for node in module.graph.nodes:
        if node.op != "placeholder" and not is_begun:
            is_begun = True
            rebuilding.require(fixed)
        rebuilding.add(node)
    rebuilding.graph.set_codegen(module.graph._codegen)
    return GraphModule(module, rebuilding.graph, type(module).__name__)
