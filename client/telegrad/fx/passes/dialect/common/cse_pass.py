"""``CSEPass``: what a graph computes twice from the same is computed once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from telegrad._library.compiled import torch_ops
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node, map_aggregate, writes_to_arguments
from telegrad.fx.passes.infra.pass_base import PassBase, PassResult
from telegrad.utils._pytree import tree_flatten

_DRAWING: Final = (
    "_fused_dropout _standard_gamma bernoulli binomial dropout multinomial native_dropout normal poisson rand "
    "rand_like randint randint_like randn randn_like randperm rrelu"
)
_WRITING: Final = "add_ div_ lerp_ mul_ pow_ relu_ sigmoid_ sub_ tanh_"


def get_CSE_banned_ops() -> set[Any]:
    """Return the operators that are computed as often as a graph says: those that draw numbers, or write."""
    aten = torch_ops.ops.aten
    return {getattr(aten, name) for name in (*_DRAWING.split(), *_WRITING.split()) if hasattr(aten, name)}


class CSEPass(PassBase):
    """Returns a module with each value computed once, and whether another one was computed twice.

    ``banned_ops`` are computed as often as the graph says: ``get_CSE_banned_ops()``, or none, so that equal draws of
    random numbers become one draw, as in PyTorch.
    """

    def __init__(self, banned_ops: Any = None) -> None:
        self.banned_ops: Any = set() if banned_ops is None else banned_ops

    def call(self, graph_module: GraphModule) -> PassResult:
        made, copies = Graph(), dict[Node, Node]()
        known: dict[Hashable, Node] = {}
        is_modified = False
        for node in graph_module.graph.nodes:
            key = self._key(node, copies)
            if key is not None and key in known:
                copies[node], is_modified = known[key], True
                continue
            copies[node] = made.node_copy(node, copies.__getitem__)
            if key is not None:
                known[key] = copies[node]
        return PassResult(GraphModule(graph_module, made), is_modified)

    def _key(self, node: Node, copies: dict[Node, Node]) -> Hashable | None:
        """Return what is equal for nodes that compute the same; None for one that is computed as it stands."""
        if node.op != "call_function" or writes_to_arguments(node.target) or self._is_banned(node):
            return None

        def noted(value: Any) -> Any:
            return (copies[value],) if isinstance(value, Node) else (type(value), repr(value))

        leaves, structure = tree_flatten(map_aggregate((node.args, dict(sorted(node.kwargs.items()))), noted))
        return node.target, tuple(leaves), str(structure)

    def _is_banned(self, node: Node) -> bool:
        packet = getattr(node.target, "overloadpacket", node.target)
        return packet in self.banned_ops
