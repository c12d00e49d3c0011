"""Graphs of programs at other sizes, so that what is made of them at several becomes one graph for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from telegrad._dispatch.fake_tensors import FakeTensorMode
from telegrad._tensor.tensor import Tensor
from telegrad.fx.experimental.symbolic_graphs import Place
from telegrad.fx.experimental.symbolic_tracing import SymbolicTracing
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node, map_arg
from telegrad.nn.modules.module import Module
from telegrad.ops import aten
from telegrad_protocol.errors import ProgramError
from telegrad_protocol.exported.sizes import Formula, is_symbol, size_at
from telegrad_protocol.meta import Meta

from .._modes import enter_no_grad, exit_no_grad

Make = Callable[[Graph], Graph]
"""Makes another graph of a graph with sizes that are numbers, and with the same placeholders."""


def for_all_sizes(graph: Graph, symbols: Mapping[str, int], make: Make) -> Graph:
    """Return what ``make`` makes of a graph at the sizes that symbols have, as one graph for all sizes.

    Raises ProgramError where it makes something else at other sizes.
    """

    def trace(sizes: list[int], unknowns: Any) -> GraphModule:
        made = make(_resized(graph, dict(zip(symbols, sizes, strict=True))))
        first = next(iter(made.nodes))
        with made.inserting_before(first):
            for number in range(len(symbols)):  # names of symbols are texts of a file
                made.placeholder(f"size_{number}")
        return GraphModule(Module(), made)

    places = [[Place(number, None)] for number in range(len(symbols))]
    tracing = SymbolicTracing(trace, [*symbols.values()], places)
    made: Graph = tracing.traced().graph
    missing = [name for name, place in zip(symbols, places, strict=True) if place not in tracing.symbols]
    if missing:
        raise ProgramError(
            f"run_decompositions: the graph is another one for other sizes of {missing[0]}; leave out of the table "
            "what decides by sizes"
        )
    _read_sizes(made, graph, [*symbols])
    return made


def _resized(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return a copy of a graph at these sizes, which are numbers in it."""
    made, mode = Graph(), FakeTensorMode()
    copies: dict[Node, Any] = {}

    def value(node: Node) -> Any:
        copied = copies[node]
        return copied.meta["val"] if isinstance(copied, Node) else copied

    for node in graph.nodes:
        if node.op == "call_function" and node.target not in (enter_no_grad, exit_no_grad):
            with mode:
                result = node.target(*map_arg(node.args, value), **map_arg(node.kwargs, value))
            if isinstance(result, int):
                copies[node] = result
                continue
        else:
            result = _at(node.meta.get("val"), node.meta.get("sizes"), sizes, mode)
        copies[node] = copied = made.node_copy(node, copies.__getitem__)
        if node.op != "placeholder":
            copied.meta.pop("sizes", None)
        if result is not None:
            copied.meta["val"] = result
    return made


def _at(value: Any, shape: Sequence[Any] | None, sizes: Mapping[str, int], mode: FakeTensorMode) -> Any:
    if not isinstance(value, Tensor) or shape is None:
        return value
    meta = Meta.of(tuple([size_at(size, dict(sizes)) for size in shape]), value.dtype, value.device)
    return mode.of_meta(meta, False)


def _read_sizes(made: Graph, graph: Graph, names: Sequence[str]) -> None:
    """Replace the placeholders of sizes by what tensors that the graph is given have as sizes."""
    given = [node for node in made.nodes if node.op == "placeholder"]
    stand_ins, inputs = given[: len(names)], {node.name: node for node in given[len(names) :]}
    first = next(node for node in made.nodes if node.op != "placeholder")
    for name, stand_in in zip(names, stand_ins, strict=True):
        source, dim = next(
            (node, dim) for node in graph.nodes if node.op == "placeholder"
            for dim, size in enumerate(node.meta.get("sizes", ()))
            if isinstance(size, Formula) and is_symbol(size) and name in size.names()
        )  # fmt: skip
        if stand_in.users:
            with made.inserting_before(first):
                stand_in.replace_all_uses_with(made.call_function(aten.sym_size.int, (inputs[source.name], dim)))
        made.erase_node(stand_in)
