"""``split_const_subgraphs``: what a graph computes of attributes alone is computed once, and is an attribute then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.fx import Graph, GraphModule, symbolic_trace
from telegrad.fx.node import Node, writes_to_arguments
from telegrad.nn.modules.module import Module
from telegrad.nn.parameter import Parameter

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]

_FOLDED: Final = "_FX_CONST_FOLDED_ATTRS"


class FoldedGraphModule(GraphModule):
    """A module whose first call computes what depends on attributes alone, by ``const_subgraph_module``."""

    def __init__(
        self, root: Any, graph: Graph, const_subgraph: Graph | None = None, names: Sequence[str] = (),
        device_for_folded_attrs: Any = "cpu",
    ) -> None:  # fmt: skip
        super().__init__(root, graph)
        self.const_subgraph_module = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.fx_const_folded_attrs_name = names[0] if names else None
        self.device_for_folded_attrs = device_for_folded_attrs
        self.has_folding_been_run = False
        self.__dict__["_folded_names"] = tuple(names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self) -> None:
        """Compute what depends on attributes alone, and have it as attributes; an AssertionError the second time."""
        if self.const_subgraph_module is None:
            return
        if self.has_folding_been_run:
            raise AssertionError("Folding has already been run")
        self.has_folding_been_run = True
        with no_grad():
            values = self.const_subgraph_module()
        for name, value in zip(self.__dict__["_folded_names"], values, strict=True):
            setattr(self, name, _as_attribute(value))


def _as_attribute(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    is_real = value.dtype.is_floating_point or value.dtype.is_complex
    return Parameter(value.detach(), requires_grad=is_real and value.requires_grad)


def get_unique_attr_name_in_module(mod_traced: Module, name: str) -> str:
    """Return a name that a module has no attribute of: this one, or with a number."""
    made, number = name, 0
    while hasattr(mod_traced, made):
        number += 1
        made = f"{name}_{number}"
    return made


def split_const_subgraphs(
    module: Module, skip_folding_node_fn: Callable[[Node], bool] | None = None, device_for_folded_attrs: Any = "cpu"
) -> FoldedGraphModule:  # fmt: skip
    """Return a module that computes what depends on its attributes alone once, when it is first called.

    A node that ``skip_folding_node_fn`` holds for is computed in each call, and so is what writes to its arguments.
    """
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    nodes = list(traced.graph.nodes)
    constant = _constant(nodes, skip_folding_node_fn or (lambda node: False))
    computed = [node for node in nodes if node in constant and node.op != "get_attr"]
    folded = [node for node in computed if any(user not in constant for user in node.users)]
    if not folded:
        return FoldedGraphModule(traced, traced.graph, device_for_folded_attrs=device_for_folded_attrs)
    names = _names(traced, len(folded))
    rest = _rest(nodes, constant, dict(zip(folded, names, strict=True)))
    constants = _constants([node for node in nodes if node in constant], folded)
    for name in names:
        setattr(traced, name, None)
    made = FoldedGraphModule(traced, rest, constants, names, device_for_folded_attrs)
    return made


def _constant(nodes: Sequence[Node], skips: Callable[[Node], bool]) -> set[Node]:
    constant: set[Node] = set()
    for node in nodes:
        if node.op in ("placeholder", "output") or skips(node) or writes_to_arguments(node.target):
            continue
        if node.op == "get_attr" or (node.all_input_nodes and constant.issuperset(node.all_input_nodes)):
            constant.add(node)
    return constant


def _names(traced: GraphModule, count: int) -> list[str]:
    first = get_unique_attr_name_in_module(traced, _FOLDED)
    return [first, *[f"{first}_{number}" for number in range(1, count)]]


def _rest(nodes: Sequence[Node], constant: set[Node], names: dict[Node, str]) -> Graph:
    """Return the graph of what depends on inputs, with attributes for what is computed before."""
    graph, copies = Graph(), dict[Node, Node]()
    for node in nodes:
        if node in names:
            copies[node] = graph.get_attr(names[node])
        elif node not in constant or (node.op == "get_attr" and any(user not in constant for user in node.users)):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return graph


def _constants(nodes: Sequence[Node], folded: Sequence[Node]) -> Graph:
    graph, copies = Graph(), dict[Node, Node]()
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple([copies[node] for node in folded]))
    graph.eliminate_dead_code()
    return graph
