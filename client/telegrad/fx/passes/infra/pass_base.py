"""``PassBase``: a pass over a graph with checks before and after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from telegrad.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """What a pass has made of a module, and whether it has changed anything."""

    graph_module: GraphModule
    modified: bool


class PassBase(ABC):
    """A pass: a call checks what it requires, runs it, and checks what it ensures."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Return what the pass makes of a module."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027 - a pass may require nothing
        """Raise an error if the pass cannot run on a module."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027 - a pass may ensure nothing
        """Raise an error if the module is not what the pass promises."""
