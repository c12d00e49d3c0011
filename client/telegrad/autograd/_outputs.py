"""The outputs of functions of the client's program, of which the server deals with all of a function at once."""

from __future__ import annotations

from telegrad._tensor.autograd_graph import ClientNode, ClientOutput, GradientEdge


class Outputs:
    """The outputs of functions, of which none is dealt with before gradients have reached all of the same function."""

    def __init__(self, nodes: set[GradientEdge]) -> None:
        self._missing: dict[ClientNode, int] = {}
        self._waiting: dict[ClientNode, list[GradientEdge]] = {}
        for node in nodes:
            if isinstance(node, ClientOutput):
                self._missing[node.function] = self._missing.get(node.function, 0) + 1

    def complete(self, node: GradientEdge) -> list[GradientEdge]:
        """Note that all gradients of a node have arrived, and return the nodes that can be dealt with because of it."""
        if not isinstance(node, ClientOutput):
            return [node]
        function = node.function
        self._missing[function] -= 1
        waiting = self._waiting.setdefault(function, [])
        waiting.append(node)
        return [] if self._missing[function] else self._waiting.pop(function)
