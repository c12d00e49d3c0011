"""``FakeTensorProp``: runs a graph on fake tensors and notes each result in the nodes' metadata."""

from __future__ import annotations

from typing import Any

from telegrad._dispatch.fake_tensors import FakeTensor, FakeTensorMode
from telegrad._tensor.tensor import Tensor
from telegrad.fx.interpreter import Interpreter
from telegrad.fx.node import Node, map_aggregate

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """Runs a module's graph without computing elements, and gives each node its result as ``meta["val"]``."""

    def __init__(self, module: Any, mode: FakeTensorMode | None = None) -> None:
        super().__init__(module)
        self._mode = mode or FakeTensorMode()

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        tensors: list[FakeTensor] = []

        def noted(leaf: Any) -> Any:
            if isinstance(leaf, FakeTensor):
                tensors.append(leaf)
            return leaf

        map_aggregate(result, noted)
        if tensors:
            n.meta["val"] = result
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on inputs like these and return its result."""
        return self.propagate_dont_convert_inputs(
            *[self._mode.from_tensor(arg) if isinstance(arg, Tensor) else arg for arg in args]
        )

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """Run the graph on these inputs, whose tensors are fake, and return its result."""
        with self._mode:
            return self.run(*args)
