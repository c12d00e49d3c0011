"""Paths between nodes of a graph, and nodes that become a graph of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from telegrad.fx.graph import Graph
from telegrad.fx.node import Node


def _alone(node: Node) -> Iterable[Node]:
    return (node,)


def leads_back(inside: Collection[Node], passed_with: Callable[[Node], Iterable[Node]] = _alone) -> bool:
    """Whether a path leads from these nodes over another one back to them.

    ``passed_with`` tells what is passed as one with a node on the way.
    """
    waiting = [user for node in inside for user in node.users if user not in inside]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in inside:
            return True
        if node not in seen:
            passed = passed_with(node)
            seen.update(passed)
            waiting.extend(user for each in passed for user in each.users)
    return False


def validate_partition(partition: Sequence[Node]) -> bool:
    """Whether no path leads from one of these nodes over another one back to them, so that they can become one."""
    return not leads_back(set(partition))


def inputs_of(nodes: Iterable[Node], inside: Collection[Node]) -> list[Node]:
    """Return what nodes use that is not among ``inside``, in the order of its first use."""
    return list(dict.fromkeys(used for node in nodes for used in node.all_input_nodes if used not in inside))


def graph_of(
    nodes: Iterable[Node], inputs: Iterable[Node], outputs: Iterable[Node], always_tuple: bool
) -> Graph:  # fmt: skip
    """Return nodes in their order as a graph of given inputs and outputs; of one output no tuple, unless asked for."""
    graph, made = Graph(), dict[Node, Node]()
    for node in inputs:
        made[node] = graph.placeholder(node.name, type_expr=node.type)
        made[node].meta = node.meta.copy()
    for node in nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    results = tuple([made[node] for node in outputs])
    graph.output(results[0] if len(results) == 1 and not always_tuple else results)
    return graph
