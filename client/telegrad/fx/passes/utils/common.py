"""Graphs as modules of their own, and whether two graphs compute the same."""

from __future__ import annotations

from typing import Any

from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.nn.modules.module import Module

from .matcher_utils import SubgraphMatcher

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(Module):
    """A module of named parts, which does nothing."""

    def __init__(self, d: dict[str, Module]) -> None:
        super().__init__()
        for name, part in d.items():
            self.add_module(name, part)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """Return a graph as a module with what it uses of ``gm``, and the new path of each part by its former one."""
    used: list[Any] = [node.target for node in subgraph.nodes if node.op in ("call_module", "get_attr")]
    return GraphModule(gm, subgraph, class_name), {path: f"{comp_name}.{path}" for path in used}


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Whether two graphs have the same nodes, joined in the same way."""
    matcher = SubgraphMatcher(left, match_output=True, match_placeholder=True)
    return len(matcher.match(right)) > 0
