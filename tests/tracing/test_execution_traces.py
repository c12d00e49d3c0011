"""``ExecutionTraceObserver`` writes the graph of operations that PyTorch's observer writes, as far as it is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch


def _program(t: Any) -> None:
    x = t.ones(3, 4, requires_grad=True)
    with t.profiler.record_function("a range"):
        ((x.t() @ x) * 2).relu().sum(dim=0, keepdim=True)
    t.cat([x, x], 1)


def _written(t: Any, path: Path, way: str) -> dict[str, Any]:
    observer = t.profiler.ExecutionTraceObserver().register_callback(str(path))
    assert observer.is_registered and observer.get_output_file_path() == str(path)
    if way == "alone":
        observer.start()
        _program(t)
        observer.stop()
    else:
        with t.profiler.profile(execution_trace_observer=observer):
            _program(t)
    observer.unregister_callback()
    assert not observer.is_registered
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def _shown(document: dict[str, Any]) -> dict[str, Any]:
    """Operations that both know, by name: what they lie within, and their operands' shapes, strides and types."""
    nodes = {node["id"]: node for node in document["nodes"]}
    wanted = ("aten::mm", "aten::mul", "aten::relu", "a range")
    shown: dict[str, Any] = {}
    for node in document["nodes"]:
        if node["name"] in wanted:
            inputs = node["inputs"]
            tensors = [place for place, kind in enumerate(inputs["types"]) if kind == "Tensor(float)"]
            shown[node["name"]] = (
                nodes[node["ctrl_deps"]]["name"],
                [[inputs[part][place] for place in tensors] for part in ("shapes", "strides", "types")],
                next(one["value"] for one in node["attrs"] if one["name"] == "scope"),
            )
    return shown


@pytest.mark.parametrize("way", ["alone", "with a profile"])
def test_the_graph_is_pytorchs(tg: Any, tmp_path: Path, way: str) -> None:
    ours, theirs = _written(tg, tmp_path / "ours.json", way), _written(torch, tmp_path / "theirs.json", way)
    assert ours.keys() == theirs.keys() and ours["schema"] == theirs["schema"]
    assert {frozenset(node) for node in ours["nodes"]} == {frozenset(node) for node in theirs["nodes"]}
    assert _shown(ours) == _shown(theirs)
    names = [[one["name"] for one in document["nodes"][0]["attrs"]] for document in (ours, theirs)]
    assert names[0] == names[1][: len(names[0])]
    added = next(node for node in ours["nodes"] if node["name"] == "aten::sum")
    assert (added["inputs"]["values"][2:], added["inputs"]["types"][2:]) == ([True, "<None>"], ["Bool", "None"])


def test_nothing_is_written_without_a_file(tg: Any) -> None:
    observer = tg.profiler.ExecutionTraceObserver()
    with tg.profiler.profile(execution_trace_observer=observer) as profile:
        observer.start()
        tg.ones(3).sum().item()
    assert not observer.is_running() and len(profile.events())
