"""Where a pattern that names some of its nodes occurs in a graph."""

from __future__ import annotations

import copy

from telegrad.fx._code.pytree_codegen import _PyTreeCodeGen
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node
from telegrad.utils._pytree import tree_flatten

from .matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _split_to_graph_and_name_node_map(gm: GraphModule) -> tuple[GraphModule, dict[str, Node]]:
    """Return a copy that returns all but the names, which are the last of its results, and the nodes by these names."""
    made = copy.deepcopy(gm)
    output = made.graph.output_node()
    codegen = made.graph._codegen
    results = codegen.process_outputs(output.args[0])
    if not isinstance(results, (list, tuple)) or not results or not isinstance(results[-1], dict):
        raise AssertionError(
            "SubgraphMatcherWithNameNodeMap: the pattern has to return a dictionary of its nodes by names as its last "
            "result"
        )
    *returned, names = results
    unknown = [name for name, node in names.items() if not isinstance(node, Node)]
    if unknown:
        raise AssertionError(f"SubgraphMatcherWithNameNodeMap: {unknown[0]!r} names what is no node of the pattern")
    leaves, structure = tree_flatten(tuple(returned))
    output.args = (tuple(leaves if isinstance(codegen, _PyTreeCodeGen) else returned),)
    if isinstance(codegen, _PyTreeCodeGen):
        codegen.pytree_info = codegen.pytree_info._replace(out_spec=structure)
    for node in made.graph.find_nodes(op="call_module", target="_guards_fn"):  # of exported programs
        made.graph.erase_node(node)
    made.recompile()
    return made, dict(names)


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """Finds a pattern whose last result is a dictionary: ``name_node_map`` of a match has the graph's nodes for it."""

    def __init__(
        self, pattern_gm: GraphModule, match_output: bool = False, match_placeholder: bool = False,
        remove_overlapping_matches: bool = True, ignore_literals: bool = False,
    ) -> None:  # fmt: skip
        pattern, self.name_node_map = _split_to_graph_and_name_node_map(pattern_gm)
        self.pattern_gm = pattern
        super().__init__(pattern.graph, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """Return where the pattern occurs, with the nodes of the graph by the names of the pattern."""
        matches = super().match(graph, node_name_match)
        for match in matches:
            match.name_node_map = {name: match.nodes_map[node] for name, node in self.name_node_map.items()}
        return matches
