"""Graph modules whose code is generated when it is asked for. Here it is generated at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .graph_module import GraphModule


class _LazyGraphModule(GraphModule):
    """A graph module, whose code is up to date."""

    @classmethod
    def from_graphmodule(cls, gm: GraphModule) -> GraphModule:
        """Return the graph module as it is: its code need not be put off."""
        return gm

    @staticmethod
    def force_recompile(gm: GraphModule) -> None:
        """Do nothing, since the code is there."""

    def real_recompile(self) -> None:
        """Do nothing, since the code is there."""


def _make_graph_module(*args: Any, graph_module_cls: type[GraphModule] = GraphModule, **kwargs: Any) -> GraphModule:
    """Return a graph module of these arguments."""
    made: GraphModule = graph_module_cls(*args, **kwargs)
    return made


@contextmanager
def _use_lazy_graph_module(should_use: bool) -> Iterator[None]:
    """Change nothing: code is generated at once."""
    yield


@contextmanager
def _force_skip_lazy_graph_module() -> Iterator[None]:
    """Change nothing: code is generated at once."""
    yield
