"""``torch._functorch.partitioners``: divide the graph of a function and its gradients into one for each pass.

The inputs of such a graph are ``primals_1`` and on, and ``tangents_1`` and on, which are gradients of results.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node, map_arg, writes_to_arguments

_TANGENTS = "tangents_"


def default_partition(
    joint_module: GraphModule, _joint_inputs: Any, *, num_fwd_outputs: int, **options: Any
) -> tuple[GraphModule, GraphModule]:  # fmt: skip
    """Return two modules: the first one returns the results and what the second one needs of its values.

    The second one takes these and the tangents, and returns gradients. What depends on no tangent, and on which no
    result depends, is computed by the second one.
    """
    *nodes, output = joint_module.graph.nodes
    returned = list(output.args[0])
    results, gradients = returned[:num_fwd_outputs], returned[num_fwd_outputs:]
    inputs = [node for node in nodes if node.op == "placeholder"]
    primals = [node for node in inputs if not node.name.startswith(_TANGENTS)]
    forward = _needed_for([*results, *_written(nodes)], nodes)
    forward.update([node for node in nodes if node.target is operator.getitem and node.args[0] in forward])
    late = _needed_for(gradients, nodes)
    backward = [node for node in nodes if node in late and node not in forward and node not in primals]
    taken = {one for node in backward for one in node.all_input_nodes} | _nodes_of(gradients)
    saved = [node for node in nodes if node in taken and (node in forward or node in primals)]
    tangents = [node for node in inputs if node not in primals]
    kept = _needed_for([*results, *_written(nodes), *saved], nodes)
    chosen = [node for node in nodes if node in kept and node not in primals]
    rest = [node for node in backward if node not in tangents and node not in saved]
    return (
        GraphModule(joint_module, _graph(primals, chosen, [*results, *saved])),
        GraphModule(joint_module, _graph([*saved, *tangents], rest, gradients)),
    )


min_cut_rematerialization_partition = default_partition
"""Saves what the backward graph takes: nothing is computed anew, which is what ``torch.utils.checkpoint`` is for."""


def _written(nodes: Iterable[Node]) -> list[Node]:
    """Return what modifies a value before there are tangents: effects belong to the forward pass."""
    late: set[Node] = set()
    for node in nodes:
        if node.name.startswith(_TANGENTS) or not late.isdisjoint(node.all_input_nodes):
            late.add(node)
    return [node for node in nodes if node not in late and writes_to_arguments(node.target)]


def _needed_for(wanted: Iterable[Any], nodes: Sequence[Node]) -> set[Node]:
    """Return the nodes that some depend on, and these."""
    needed = _nodes_of(wanted)
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return needed


def _nodes_of(values: Iterable[Any]) -> set[Node]:
    return {value for value in values if isinstance(value, Node)}


def _graph(inputs: Sequence[Node], nodes: Iterable[Node], returned: Sequence[Any]) -> Graph:
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(map_arg(tuple(returned), copies.__getitem__))
    return graph
