"""``split_by_tags``: a module that calls one module for each tag of its nodes."""

from __future__ import annotations

import operator
from typing import Any

from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node, map_arg

__all__ = ["getattr_recursive", "setattr_recursive", "split_by_tags"]

_SHARED = ("placeholder", "get_attr", "output")


def getattr_recursive(obj: Any, name: str) -> Any:
    """Return the attribute at a path with dots; None where a part of the path is not there."""
    for part in name.split("."):
        if not hasattr(obj, part):
            return None
        obj = getattr(obj, part)
    return obj


def setattr_recursive(obj: Any, attr: str, value: Any) -> None:
    """Set the attribute at a path with dots."""
    path, _, name = attr.rpartition(".")
    setattr(operator.attrgetter(path)(obj) if path else obj, name, value)


def split_by_tags(
    gm: GraphModule, tags: list[str], return_fqn_mapping: bool = False, return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> Any:  # fmt: skip
    """Return a module that calls one module for each tag, in this order; ``node.tag`` says where a node belongs.

    Attributes of the module are read where they are used. With ``return_fqn_mapping`` the second result has the former
    path of each part by its new one.
    """
    base, made, parts = Graph(), dict[Node, Node](), dict[str, Any]()
    paths: dict[str, str] = {}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            made[node] = base.node_copy(node, made.__getitem__)
    for tag in tags:
        nodes = _tagged(gm, tag)
        inside = set(nodes)
        inputs = dict.fromkeys(used for node in nodes for used in node.all_input_nodes if used not in inside)
        others = [node for node in gm.graph.nodes if node not in inside]
        used_there = dict.fromkeys(used for node in others for used in node.all_input_nodes if used in inside)
        outputs = [node for node in used_there if node.op != "get_attr"]
        graph = _component(nodes, list(inputs), outputs, return_tuple)
        parts[tag] = GraphModuleCls(gm, graph)
        used = [str(node.target) for node in nodes if node.op in ("call_module", "get_attr")]
        paths.update({f"{tag}.{path}": path for path in used})
        called = base.call_module(tag, tuple([made[node] for node in inputs]))
        if len(outputs) == 1 and not return_tuple:
            made[outputs[0]] = called
            continue
        for place, node in enumerate(outputs):
            made[node] = base.call_function(operator.getitem, (called, place))
    base.output(map_arg(gm.graph.output_node().args[0], made.__getitem__))
    split = GraphModuleCls(parts, base)
    return (split, paths) if return_fqn_mapping else split


def _tagged(gm: GraphModule, tag: str) -> list[Node]:
    """Return the nodes of a tag, with the attributes that they read."""
    wanted = {node for node in gm.graph.nodes if node.op not in _SHARED and node.tag == tag}
    return [
        node for node in gm.graph.nodes
        if node in wanted or (node.op == "get_attr" and not wanted.isdisjoint(node.users))
    ]  # fmt: skip


def _component(nodes: list[Node], inputs: list[Node], outputs: list[Node], return_tuple: bool) -> Graph:
    graph, made = Graph(), dict[Node, Node]()
    for node in inputs:
        made[node] = graph.placeholder(node.name, type_expr=node.type)
        made[node].meta = node.meta.copy()
    for node in nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    results = tuple([made[node] for node in outputs])
    graph.output(results[0] if len(results) == 1 and not return_tuple else results)
    return graph
