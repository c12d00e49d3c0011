"""Which values of a forward pass are saved so that the fewest bytes are: a minimal cut of the graph of both passes.

What is cheap to compute, element by element, may be computed anew in the backward pass from what is saved. Each value
that may be saved is an edge whose capacity is its bytes; what cannot be computed anew leads to the source, and what the
backward pass takes leads to the sink. L. Ford, D. Fulkerson, Maximal flow through a network (1956).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from telegrad.fx.node import Node, writes_to_arguments

_CHEAP: Final = (
    "abs acos acosh add addcdiv addcmul alias asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or ceil "
    "clamp clamp_max clamp_min clone cos cosh detach div eq erf erfc exp exp2 expand expm1 fill floor full_like "
    "gelu ge getitem gt hardsigmoid hardswish hardtanh isnan le leaky_relu lerp log log10 log1p log2 logical_and "
    "logical_not logical_or lt masked_fill maximum minimum mul ne neg ones_like permute pow reciprocal relu "
    "remainder reshape round rsqrt rsub sgn sigmoid sign silu sin sinh slice softplus split sqrt square squeeze "
    "sub t tan tanh threshold _to_copy transpose trunc unsqueeze view view_as where zeros_like _unsafe_view"
)
"""Operators that are computed anew: they work element by element, or only look at memory in another way."""
_CHEAP_NAMES: Final = frozenset(_CHEAP.split())
_NEVER: Final = float("inf")
_SOURCE, _SINK = "source", "sink"


def saved_values(
    nodes: Sequence[Node], forward: set[Node], inputs: set[Node], needed: set[Node], returned: set[Node]
) -> set[Node]:  # fmt: skip
    """Return what is saved of a forward pass, ``needed`` of which the backward pass takes.

    Whatever of ``needed`` is not saved can be computed from what is. What is ``returned`` has its memory anyway. Of
    several smallest sets that is taken from which least is computed anew. Where no set of tensors is enough, and where
    something is modified in place, everything that is needed is saved.
    """
    if any([writes_to_arguments(node.target) for node in nodes]):
        return needed
    network = _Network()
    for node in nodes:
        if node not in forward and node not in inputs:
            continue
        network.add((node, "in"), (node, "out"), 0.0 if node in returned else _bytes_of(node))
        if node in inputs or not _is_cheap(node):
            network.add(_SOURCE, (node, "in"), _NEVER)
        for user in node.users:
            if user in forward:
                network.add((node, "out"), (user, "in"), _NEVER)
    for node in needed:
        network.add((node, "out"), _SINK, _NEVER)
    if not network.fill():
        return needed
    leading = network.leading_to_sink()
    return {node for node in {*forward, *inputs} if (node, "in") not in leading and (node, "out") in leading}


def _is_cheap(node: Node) -> bool:
    library, _, rest = str(node.target).partition(".")
    name = rest.split(".")[0] if library == "aten" else getattr(node.target, "__name__", "")
    return node.op == "call_function" and name in _CHEAP_NAMES


def _bytes_of(node: Node) -> float:
    """Return the bytes of a value; what is no tensor is not saved."""
    value: Any = node.meta.get("val")
    if not hasattr(value, "element_size"):
        return _NEVER
    return float(max(1, value.numel()) * value.element_size())


class _Network:
    """Edges with capacities, through which as much flows as can."""

    def __init__(self) -> None:
        self._capacities: defaultdict[Any, dict[Any, float]] = defaultdict(dict)

    def add(self, begin: Any, end: Any, capacity: float) -> None:
        """Let so much flow from one place to another."""
        self._capacities[begin][end] = capacity
        self._capacities[end].setdefault(begin, 0.0)

    def fill(self) -> bool:
        """Let as much flow from the source to the sink as can; False where there is no end to it."""
        while _SINK in (before := self._search()):
            path = [_SINK]
            while path[-1] != _SOURCE:
                path.append(before[path[-1]])
            edges = [(begin, end) for end, begin in pairwise(path)]
            flow = min([self._capacities[begin][end] for begin, end in edges])
            if flow == _NEVER:
                return False
            for begin, end in edges:
                self._capacities[begin][end] -= flow
                self._capacities[end][begin] += flow
        return True

    def _search(self) -> dict[Any, Any]:
        """Return from where each place is reached first by edges that are not full."""
        before: dict[Any, Any] = {_SOURCE: None}
        waiting: deque[Any] = deque([_SOURCE])
        while waiting:
            begin = waiting.popleft()
            for end, capacity in self._capacities[begin].items():
                if capacity > 0 and end not in before:
                    before[end] = begin
                    waiting.append(end)
        return before

    def leading_to_sink(self) -> set[Any]:
        """Return the places from which the sink is reached by edges that are not full."""
        leading: set[Any] = {_SINK}
        waiting: deque[Any] = deque([_SINK])
        while waiting:
            end = waiting.popleft()
            for begin in self._capacities[end]:  # each edge has one back
                if begin not in leading and self._capacities[begin].get(end, 0.0) > 0:
                    leading.add(begin)
                    waiting.append(begin)
        return leading
