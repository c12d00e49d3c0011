"""Drawings of graphs by the package pydot: a box for each node, with what it calls, and an arrow for each use."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node
from telegrad_protocol.errors import NotSupportedError

try:
    pydot: Any = import_module("pydot")
except ModuleNotFoundError:
    pydot = None

__all__ = ["FxGraphDrawer"]
_COLOURS: Final = {
    "placeholder": "AliceBlue", "call_module": "LemonChiffon1", "get_param": "Yellow2", "get_attr": "LightGrey",
    "output": "PowderBlue",
}  # fmt: skip
"""Colours of boxes by what nodes are; functions and methods are of the last."""


class DrawingError(NotSupportedError, RuntimeError):
    """A graph cannot be drawn: the package that draws is not there."""


class FxGraphDrawer:
    """The drawing of a graph module, and of graph modules within it: ``get_dot_graph().write_svg(path)``."""

    def __init__(
        self, graph_module: GraphModule, name: str, ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False, skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False, dot_graph_shape: str | None = None, normalize_args: bool = False,
    ) -> None:  # fmt: skip
        if pydot is None:
            raise DrawingError(
                "FXGraphDrawer requires the pydot package to be installed. Please install pydot through your favorite "
                "Python package manager."
            )
        self._shape = dot_graph_shape or "record"
        self._ignores = ignore_getattr or ignore_parameters_and_buffers
        self._graphs = {name: self._drawn(graph_module, name)}
        for path, child in graph_module.named_children():
            if isinstance(child, GraphModule):
                self._graphs[f"{name}_{path}"] = self._drawn(child, f"{name}_{path}")

    def get_dot_graph(self, submod_name: str | None = None) -> Any:
        """Return the drawing of the module, or of one within it."""
        return next(iter(self._graphs.values())) if submod_name is None else self.get_submod_dot_graph(submod_name)

    def get_main_dot_graph(self) -> Any:
        """Return the drawing of the module."""
        return self.get_dot_graph()

    def get_submod_dot_graph(self, submod_name: str) -> Any:
        """Return the drawing of a module within it, by the names of both."""
        return self._graphs[submod_name]

    def get_all_dot_graphs(self) -> dict[str, Any]:
        """Return all drawings by name."""
        return self._graphs

    def _drawn(self, module: GraphModule, name: str) -> Any:
        drawing = pydot.Dot(name, rankdir="TB")
        shown = [node for node in module.graph.nodes if not (self._ignores and node.op == "get_attr")]
        for node in shown:
            colour = _COLOURS.get(node.op, "LightSalmon1")
            drawing.add_node(
                pydot.Node(node.name, label=_label(node), shape=self._shape, style="filled,rounded", fillcolor=colour)
            )
        for node in shown:
            for user in node.users:
                drawing.add_edge(pydot.Edge(node.name, user.name))
        return drawing


def _label(node: Node) -> str:
    """Return what a box says, in the language of records: a row each for name, kind, target, arguments and shape."""
    rows = [f"name=%{node.name}", f"op_code={node.op}", f"target={node._pretty_print_target(node.target)}"]
    if node.op not in ("placeholder", "output", "get_attr"):
        rows += [f"args={node.args}", f"kwargs={dict(node.kwargs)}"]
    rows.append(f"num_users={len(node.users)}")
    told = node.meta.get("tensor_meta")
    if told is not None and hasattr(told, "shape"):
        rows += [f"dtype={told.dtype}", f"shape={tuple(told.shape)}"]
    return "{" + "|".join(_escaped(row) for row in rows) + "}"


def _escaped(text: str) -> str:
    for letter in '\\{}|<>"':
        text = text.replace(letter, f"\\{letter}")
    return text
