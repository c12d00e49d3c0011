"""``replace_pattern``: put one piece of graph in place of another wherever that is found."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from telegrad.nn.modules.module import Module

from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule
from .node import Node
from .passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

Filter = Callable[[InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """Where a pattern was found: ``nodes_map`` has the graph's node for each of the pattern's."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A match, with the nodes that came in its place."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replace a pattern in a module's graph by what another function or module does, and return where it was found.

    Matches do not overlap; parameters of the pattern stand for any argument.
    """
    return [Match(done.anchor, done.nodes_map) for done in replace_pattern_with_filters(gm, pattern, replacement)]


def replace_pattern_with_filters(
    gm: GraphModule, pattern: Any, replacement: Any = None, match_filters: Sequence[Filter] | None = None,
    ignore_literals: bool = False, replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:  # fmt: skip
    """Replace the matches that all filters accept; ``replacement_callback`` makes the graph for each of them."""
    graph, wanted = gm.graph, _graph_of(pattern)
    matcher = SubgraphMatcher(wanted, ignore_literals=ignore_literals)
    matches = [
        match for match in matcher.match(graph, node_name_match)
        if all(accepts(match, graph, wanted) for accepts in match_filters or ())
    ]  # fmt: skip
    if replacement is None and replacement_callback is None:
        raise AssertionError("Must provide either a replacement GraphModule or a replacement callback")
    common = None if replacement is None else _graph_of(replacement)
    became: dict[Node, Node] = {}
    replaced = []
    for match in matches:
        new: Any = common if replacement_callback is None else replacement_callback(match, graph, wanted)
        replaced.append(_replace(graph, wanted, new, match, became))
    gm.recompile()
    if isinstance(replacement, Module):
        _bring_attributes(gm, replacement)
    return replaced


def _graph_of(described: Any) -> Graph:
    if isinstance(described, GraphModule):
        return described.graph
    return described if isinstance(described, Graph) else symbolic_trace(described).graph


def _replace(
    graph: Graph, pattern: Graph, replacement: Graph, match: InternalMatch, became: dict[Node, Node]
) -> ReplacedPatterns:
    """Replace one match; ``became`` has what earlier replacements have put in the place of nodes."""
    inputs = [node for node in replacement.nodes if node.op == "placeholder"]
    if len(inputs) != len(match.placeholder_nodes):
        raise AssertionError(f"Placeholder count mismatch: {len(match.placeholder_nodes)} vs {len(inputs)}")
    _renew(match, became)
    copies: dict[Any, Any] = dict(zip(inputs, match.placeholder_nodes, strict=True))
    with graph.inserting_before(_insertion_point(graph, match)):
        returned = graph.graph_copy(replacement, copies)
    returned = (returned,) if isinstance(returned, Node) else returned
    added = [node for node in copies.values() if all(node is not given for given in match.placeholder_nodes)]
    if len(match.returning_nodes) != len(returned):
        raise AssertionError(f"Returning nodes count mismatch: {len(match.returning_nodes)} vs {len(returned)}")
    for old, new in zip(match.returning_nodes, returned, strict=True):
        old.replace_all_uses_with(new)
        became[old] = new
    for node in reversed(pattern.nodes):
        if node.op not in ("placeholder", "output"):
            graph.erase_node(match.nodes_map[node])
    return ReplacedPatterns(match.anchors[0], match.nodes_map, added)


def _renew(match: InternalMatch, became: dict[Node, Node]) -> None:
    """Let a match name what has come in the place of its inputs."""
    for place, node in enumerate(match.placeholder_nodes):
        if isinstance(node, Node) and node in became:
            new = match.placeholder_nodes[place] = became[node]
            for key, value in match.nodes_map.items():
                if value is node:
                    match.nodes_map[key] = new


def _insertion_point(graph: Graph, match: InternalMatch) -> Node:
    """Return the first node that uses what a match returns, else the one after the last that it returns."""
    users = {user for node in match.returning_nodes for user in node.users}
    if users:
        return min(users)
    return max(match.returning_nodes).next


def _bring_attributes(gm: GraphModule, replacement: Module) -> None:
    """Copy what the graph names and only the replacement has into the module."""
    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr") or _attribute(gm, node.target) is not None:
            continue
        value = _attribute(replacement, node.target)
        if value is None:
            raise RuntimeError(
                f'Attempted to create a "{node.op}" node during subgraph rewriting with target {node.target}, but the '
                "referenced attribute does not exist in the replacement GraphModule"
            )
        value = copy.deepcopy(value)
        if isinstance(value, Module):
            gm.add_submodule(node.target, value)
        else:
            setattr(gm, node.target, value)
    gm.graph.lint()


def _attribute(module: Module, path: str) -> Any:
    above, _, name = path.rpartition(".")
    try:
        return getattr(module.get_submodule(above), name, None)
    except AttributeError:
        return None
