"""Nodes of a graph that become one: whether they can, and modules that are called in their place."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node
from telegrad.fx.passes.tools_common import stable_topological_sort

from ._paths import graph_of, inputs_of, validate_partition
from .common import lift_subgraph_as_module

__all__ = [
    "erase_nodes", "fuse_as_graphmodule", "fuse_by_partitions", "insert_subgm", "topo_sort", "validate_partition",
]  # fmt: skip


def topo_sort(nodes: Iterable[Node]) -> list[Node]:
    """Return nodes of one graph in its order."""
    listed = list(nodes)
    if not listed:
        return listed
    wanted = set(listed)
    return [node for node in listed[0].graph.nodes if node in wanted]


def fuse_as_graphmodule(
    gm: GraphModule, nodes: list[Node], module_name: str, partition_lookup_table: Any = None, *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:  # fmt: skip
    """Return nodes in order as a module, what it takes, and of which nodes it returns the results."""
    inside = set(nodes)
    inputs = inputs_of(nodes, inside)
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    graph = graph_of(nodes, inputs, outputs, always_return_tuple)
    graph.lint()
    fused, _ = lift_subgraph_as_module(gm, graph, comp_name="", class_name=module_name)
    return fused, tuple(inputs), tuple(outputs)


def insert_subgm(
    gm: GraphModule, sub_gm: GraphModule, orig_inputs: tuple[Node, ...], orig_outputs: tuple[Node, ...]
) -> GraphModule:
    """Call a module behind the nodes whose results it returns, and use its results in place of theirs."""
    name = sub_gm.__class__.__name__
    gm.add_submodule(name, sub_gm)
    with gm.graph.inserting_after(topo_sort(orig_outputs)[-1]):
        called = gm.graph.call_module(name, orig_inputs, None)
    is_tuple = isinstance(sub_gm.graph.output_node().args[0], tuple)
    if not is_tuple and len(orig_outputs) == 1:
        orig_outputs[0].replace_all_uses_with(called, propagate_meta=True)
        return gm
    last = called
    for place, node in enumerate(orig_outputs):
        with gm.graph.inserting_after(last):
            last = gm.graph.call_function(operator.getitem, (called, place))
        node.replace_all_uses_with(last, propagate_meta=True)
    return gm


def erase_nodes(gm: GraphModule, nodes: list[Node]) -> None:
    """Erase nodes that nothing else uses, the last one first."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(
    gm: GraphModule, partitions: list[dict[Node, int | None]], prefix: str = "fused_", always_return_tuple: bool = False
) -> GraphModule:
    """Let a module call a module, named by ``prefix`` and a number, in place of the nodes of each partition.

    Raises AssertionError where a path leads out of a partition and back.
    """
    for number, partition in enumerate(partitions):
        nodes = topo_sort(partition)
        if not validate_partition(nodes):
            raise AssertionError("Invalid partition, found dependency cycles")
        fused, inputs, outputs = fuse_as_graphmodule(
            gm, nodes, f"{prefix}{number}", partition, always_return_tuple=always_return_tuple
        )
        insert_subgm(gm, fused, inputs, outputs)
        erase_nodes(gm, nodes)
    return stable_topological_sort(gm)
