"""Programs whose graphs have no writes, and in which tables take operators apart: what ``run_decompositions`` gives."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from telegrad.fx._functional.graphs import FunctionalGraph
from telegrad.fx.experimental.proxy_tensor import make_fx
from telegrad.fx.graph import Graph
from telegrad.fx.node import Node, map_arg
from telegrad.ops import aten

from ..graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument
from .resizing import for_all_sizes

Table = Mapping[Any, Callable[..., Any]]
_MUTATIONS = {"PARAMETER": OutputKind.PARAMETER_MUTATION, "BUFFER": OutputKind.BUFFER_MUTATION}


class Decomposed(NamedTuple):
    """A graph that returns first what it would have written, the placeholders that this belongs to, and a signature."""

    graph: Graph
    written: list[str]
    signature: ExportGraphSignature


def decomposed(
    graph: Graph, signature: ExportGraphSignature, table: Table, symbols: Mapping[str, int]
) -> Decomposed:  # fmt: skip
    """Return a program's graph without writes, in which functions of ``table`` take the place of their operators.

    ``symbols`` are sizes that may differ, with what they are in the values that nodes have.
    """
    written: list[str] = []

    def make(whole: Graph) -> Graph:
        apart = _inlined(whole, table) if table else whole
        functional = FunctionalGraph(apart)
        written[:] = [source.name for source, _ in functional.written]
        made = functional.finish(are_copied_back=False)
        left = {node.target for node in apart.nodes}
        forms = {target: function for target, function in table.items() if target not in left}
        if not any([node.op == "call_function" and node.target in forms for node in made.nodes]):
            return made
        return FunctionalGraph(_inlined(made, forms)).finish(are_copied_back=False)  # what in-place operators became

    made = for_all_sizes(graph, symbols, make) if symbols else make(graph)
    results: Any = made.output_node().args[0]
    mutated = [_mutation(signature, name, value) for name, value in zip(written, results, strict=False)]
    returned = [
        OutputSpec(spec.kind, TensorArgument(result.name), spec.target) if isinstance(result, Node) else spec
        for spec, result in zip(signature.output_specs, results[len(written) :], strict=True)
    ]
    return Decomposed(made, written, ExportGraphSignature(signature.input_specs, [*mutated, *returned]))


def _mutation(signature: ExportGraphSignature, name: str, value: Node) -> OutputSpec:
    spec = next(spec for spec in signature.input_specs if spec.arg.name == name)
    kind = _MUTATIONS.get(spec.kind.name, OutputKind.USER_INPUT_MUTATION)
    return OutputSpec(kind, TensorArgument(value.name), spec.target or name)


def _inlined(graph: Graph, table: Table) -> Graph:
    """Return a copy in which operators of a table are what its functions call."""
    made = Graph()
    copies: dict[Node, Any] = {}
    for node in graph.nodes:
        replacement = table.get(node.target) if node.op == "call_function" else None
        result = NotImplemented if replacement is None else _add_inlined(made, node, replacement, table, copies)
        copies[node] = made.node_copy(node, copies.__getitem__) if result is NotImplemented else result
    return made


def _add_inlined(
    made: Graph, node: Node, function: Callable[..., Any], table: Table, copies: Mapping[Node, Any]
) -> Any:  # fmt: skip
    """Add what a function calls that takes an operator's place, and return the nodes of what it returns.

    Functions that return NotImplemented leave the operator as it is, and so does this.
    """
    given = node.all_input_nodes

    def call(*values: Any) -> Any:
        known = dict(zip(given, values, strict=True))
        return function(*map_arg(node.args, known.__getitem__), **map_arg(node.kwargs, known.__getitem__))

    others = {target: one for target, one in table.items() if target is not node.target}
    inner = make_fx(call, others, tracing_mode="fake")(*[one.meta["val"] for one in given])
    inner.graph.eliminate_dead_code()
    inputs = [one for one in inner.graph.nodes if one.op == "placeholder"]
    places = dict(zip(inputs, [copies[one] for one in given], strict=True))
    if inner.graph.output_node().args[0] is NotImplemented:
        return NotImplemented
    returned = made.graph_copy(inner.graph, places)
    for one in places.values():
        one.meta = {**{name: value for name, value in node.meta.items() if name != "val"}, **one.meta}
    return returned


def with_copies_back(graph: Graph, written: Sequence[str]) -> Graph:
    """Return a copy that writes what it returns first into the placeholders of these names, and returns the rest."""
    if not written:
        return graph
    made = copy.deepcopy(graph)
    output = made.output_node()
    results: Any = output.args[0]
    sources = {node.name: node for node in made.nodes if node.op == "placeholder"}
    with made.inserting_before(output):
        for name, value in zip(written, results, strict=False):
            made.call_function(aten.copy_.default, (sources[name], value))
    output.args = (results[len(written) :],)
    return made
