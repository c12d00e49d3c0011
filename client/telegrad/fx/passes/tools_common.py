"""What several passes need: which nodes call something, what it is called, and the order of a graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from telegrad._tensor.tensor import Tensor
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node, _get_qualified_name
from telegrad.nn.modules.module import Module

__all__ = ["get_node_target", "is_node_output_tensor", "legalize_graph", "stable_topological_sort"]

CALLABLE_NODE_OPS: Final = {"call_module", "call_function", "call_method"}
Names: TypeAlias = list[str]
NodeList: TypeAlias = list[Node]
NodeSet: TypeAlias = set[Node]
Tensors: TypeAlias = tuple[Tensor, ...] | list[Tensor]


def get_node_target(submodules: Mapping[str, Module], node: Node) -> str:
    """Return the name of the class, the function or the method that a node calls."""
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(f"Expect op types of {', '.join(CALLABLE_NODE_OPS)}, but found {node.op}")
    if node.op == "call_module":
        kind = type(submodules[str(node.target)])
        package, _, rest = kind.__module__.partition(".")
        return f"{'torch' if package == 'telegrad' else package}.{rest}.{kind.__qualname__}".replace("..", ".")
    target: Any = node.target
    return str(target) if node.op == "call_method" else _get_qualified_name(target)


def is_node_output_tensor(node: Node) -> bool:
    """Whether ``ShapeProp`` has noted that a node's result is a tensor."""
    kind = node.meta.get("type")
    return kind is not None and issubclass(kind, Tensor)


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Put each node of a module's graph behind what it uses; all that may stay in its place does."""
    pending, waiting = list(reversed(list(gm.graph.nodes))), dict[Node, list[Node]]()
    ordered: dict[Node, None] = {}
    while pending:
        node = pending.pop()
        missing = [used for used in node.all_input_nodes if used not in ordered]
        if missing:
            waiting.setdefault(missing[-1], []).append(node)
        else:
            ordered[node] = None
            pending.extend(reversed(waiting.pop(node, ())))
    return _rebuilt(gm, list(ordered))


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Put the nodes of a module's graph into some order in which each comes after what it uses, breadth first."""
    missing = {node: len(node.all_input_nodes) for node in gm.graph.nodes}
    ready = deque(node for node, count in missing.items() if not count)
    ordered: list[Node] = []
    while ready:
        ordered.append(node := ready.popleft())
        for user in node.users:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return _rebuilt(gm, ordered)


def _rebuilt(gm: GraphModule, ordered: list[Node]) -> GraphModule:
    """Give a module a graph of its nodes in this order; RuntimeError where some are missing, as in a circle."""
    known = set(ordered)
    left_out = [node for node in gm.graph.nodes if node not in known]
    if left_out:
        raise RuntimeError(f"Input graph has cycles, unable to add {left_out}")
    graph, made = Graph(), dict[Node, Node]()
    for node in ordered:
        made[node] = graph.node_copy(node, made.__getitem__)
    graph._codegen = gm.graph._codegen
    gm.graph = graph
    return gm
