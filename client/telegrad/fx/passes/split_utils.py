"""``split_by_tags``: a module that calls one module for each tag of its nodes."""

from __future__ import annotations

import operator
from typing import Any

from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node, map_arg

from .utils._paths import graph_of, inputs_of

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
        inputs = inputs_of(nodes, inside)
        others = [node for node in gm.graph.nodes if node not in inside]
        outputs = [node for node in inputs_of(others, set(others)) if node.op != "get_attr"]
        graph = graph_of(nodes, inputs, outputs, return_tuple)
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
