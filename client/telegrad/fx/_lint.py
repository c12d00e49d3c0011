"""Whether a graph is well formed: nodes are defined before they are used, and targets are there."""

from __future__ import annotations

from typing import Any

from telegrad.nn.modules.module import Module
from telegrad_protocol.errors import ArgumentError

from .node import Node


def lint(graph: Any) -> None:
    """Raise RuntimeError or ValueError for the first node that is not well formed."""
    seen: set[Node] = set()
    names: set[str] = set()
    for node in graph.nodes:
        if node.graph is not graph:
            raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
        for argument in node._input_nodes:
            _check_argument(graph, argument, node, seen)
        seen.add(node)
        if node.name in names:
            raise RuntimeError(f"Node redefined name {node.name}!")
        names.add(node.name)
    if graph.owning_module is not None:
        for node in graph.nodes:
            _check_target(graph.owning_module, node)


def _check_argument(graph: Any, argument: Node, node: Node, seen: set[Node]) -> None:
    where = f" of Node '{node}' "
    if argument.graph is not graph:
        raise RuntimeError(
            f"Argument '{argument}'{where}does not belong to this Graph, but was used as an argument! If you are "
            "copying nodes from another graph, make sure to use ``arg_transform`` on node_copy() to remap values\n"
            f"{graph}"
        )
    if argument not in seen:
        raise RuntimeError(
            f"Argument '{argument}'{where}was used before it has been defined! Please check that Nodes in the graph "
            f"are topologically ordered\n{graph}"
        )


def _check_target(module: Any, node: Node) -> None:
    is_right = callable(node.target) if node.op == "call_function" else isinstance(node.target, str)
    if not is_right:
        wanted = "Callable" if node.op == "call_function" else "str"
        raise ArgumentError(
            f"Node {node} target {node.target} has type {type(node.target).__name__} but a {wanted} is expected"
        )
    if node.op not in ("get_attr", "call_module"):
        return
    names = str(node.target).split(".")
    for place, name in enumerate(names):
        module = getattr(module, name, None)
        above = ".".join(names[:place])
        if module is None:
            raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {name} of {above}")
        if node.op == "call_module" and not isinstance(module, Module):
            raise RuntimeError(f"Node {node} target {node.target} {name} of {above} does not reference an nn.Module")
