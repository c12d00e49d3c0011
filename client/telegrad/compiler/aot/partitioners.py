"""``torch._functorch.partitioners``: divide the graph of a function and its gradients into one for each pass.

The inputs of such a graph are ``primals_1`` and on, and ``tangents_1`` and on, which are gradients of results.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node, map_arg, writes_to_arguments

from .min_cuts import saved_values

_TANGENTS = "tangents_"


class _Joint:
    """The graph of both passes: its inputs, what belongs to the forward pass, and what only the backward one needs."""

    def __init__(self, module: GraphModule, count: int) -> None:
        *self.nodes, output = module.graph.nodes
        returned = list(output.args[0])
        self.results, self.gradients = returned[:count], returned[count:]
        inputs = [node for node in self.nodes if node.op == "placeholder"]
        self.primals = [node for node in inputs if not node.name.startswith(_TANGENTS)]
        self.tangents = [node for node in inputs if node not in self.primals]
        self.kept: list[Any] = [*self.results, *_written(self.nodes)]
        self.forward = _needed_for(self.kept, self.nodes)
        parts = [node for node in self.nodes if node.target is operator.getitem and node.args[0] in self.forward]
        self.forward.update(parts)
        self.forward.difference_update(self.primals)
        late = _needed_for(self.gradients, self.nodes)
        outside = {*self.forward, *inputs}
        self.backward = [node for node in self.nodes if node in late and node not in outside]

    def taken(self) -> set[Node]:
        """Return the values of the forward pass, and its inputs, that the backward one takes."""
        taken = {one for node in self.backward for one in node.all_input_nodes} | _nodes_of(self.gradients)
        return taken & {*self.forward, *self.primals}

    def divided(self, module: GraphModule, chosen: set[Node]) -> tuple[GraphModule, GraphModule]:
        """Return the modules of both passes, the second one of which computes anew what it needs and is not saved."""
        saved = [node for node in self.nodes if node in chosen]
        kept = _needed_for([*self.kept, *saved], self.nodes)
        before = [node for node in self.nodes if node in kept and node not in self.primals]
        given = {*saved, *self.tangents}
        wanted = _needed_for([*self.gradients, *self.backward], self.nodes, given)
        after = [node for node in self.nodes if node in wanted and node not in given]
        return (
            GraphModule(module, _graph(self.primals, before, [*self.results, *saved])),
            GraphModule(module, _graph([*saved, *self.tangents], after, self.gradients)),
        )


def default_partition(
    joint_module: GraphModule, _joint_inputs: Any, *, num_fwd_outputs: int, **options: Any
) -> tuple[GraphModule, GraphModule]:  # fmt: skip
    """Return two modules: the first one returns the results and what the second one needs of its values.

    The second one takes these and the tangents, and returns gradients. What depends on no tangent, and on which no
    result depends, is computed by the second one.
    """
    joint = _Joint(joint_module, num_fwd_outputs)
    return joint.divided(joint_module, joint.taken())


def min_cut_rematerialization_partition(
    joint_module: GraphModule, _joint_inputs: Any, compiler: str = "inductor", *, num_fwd_outputs: int, **options: Any
) -> tuple[GraphModule, GraphModule]:  # fmt: skip
    """Return two modules as ``default_partition`` does, the first one of which returns as few bytes as can be.

    The second one computes anew what is cheap, from what is saved.
    """
    joint = _Joint(joint_module, num_fwd_outputs)
    returned = _nodes_of(joint.results)
    saved = saved_values(joint.nodes, joint.forward, {*joint.primals}, joint.taken(), returned)
    return joint.divided(joint_module, saved)


def _written(nodes: Iterable[Node]) -> list[Node]:
    """Return what modifies a value before there are tangents: effects belong to the forward pass."""
    late: set[Node] = set()
    for node in nodes:
        if node.name.startswith(_TANGENTS) or not late.isdisjoint(node.all_input_nodes):
            late.add(node)
    return [node for node in nodes if node not in late and writes_to_arguments(node.target)]


def _needed_for(wanted: Iterable[Any], nodes: Sequence[Node], given: Collection[Node] = ()) -> set[Node]:
    """Return the nodes that some depend on, and these; what ``given`` ones depend on is not needed."""
    needed = _nodes_of(wanted)
    for node in reversed(nodes):
        if node in needed and node not in given:
            needed.update(node.all_input_nodes)
    return needed


def _nodes_of(values: Iterable[Any]) -> set[Node]:
    return {value for value in values if isinstance(value, Node)}


def _graph(inputs: Sequence[Node], nodes: Iterable[Node], returned: Sequence[Any]) -> Graph:
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = node.meta.copy()
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(map_arg(tuple(returned), copies.__getitem__))
    return graph
