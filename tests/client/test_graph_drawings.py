"""Drawings of graphs by pydot: its absence is told as PyTorch tells it, and each use is an arrow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.fx.passes.graph_drawer as theirs

from telegrad.fx.passes import graph_drawer as ours


class _Drawing:
    def __init__(self, name: str, **options: Any) -> None:
        self.name, self.nodes, self.edges = name, list[Any](), list[Any]()

    def add_node(self, node: Any) -> None:
        self.nodes.append(node)

    def add_edge(self, edge: Any) -> None:
        self.edges.append(edge)


def _recorded(*names: str, **options: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    return names, options


def test_a_graph_is_not_drawn_without_pydot(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "pydot", None)
    monkeypatch.setattr(theirs, "HAS_PYDOT", False)
    texts = []
    for drawer, t in ((ours, tg), (theirs, torch)):
        with pytest.raises(RuntimeError) as caught:
            drawer.FxGraphDrawer(t.fx.symbolic_trace(lambda x: x + 1), "graph")
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_each_node_is_a_box_and_each_use_an_arrow(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "pydot", SimpleNamespace(Dot=_Drawing, Node=_recorded, Edge=_recorded))
    graph = tg.fx.symbolic_trace(lambda x: tg.relu(x) + x)
    drawing = ours.FxGraphDrawer(graph, "graph").get_dot_graph()
    assert [names for names, _ in drawing.nodes] == [("x",), ("relu",), ("add",), ("output",)]
    assert sorted(names for names, _ in drawing.edges) == [
        ("add", "output"), ("relu", "add"), ("x", "add"), ("x", "relu"),
    ]  # fmt: skip
    labels = [options["label"] for _, options in drawing.nodes]
    assert labels[0] == "{name=%x|op_code=placeholder|target=x|num_users=2}"
    assert "args=(relu, x)" in labels[2] and "target=operator.add" in labels[2]
