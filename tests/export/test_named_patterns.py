"""Patterns that name their nodes, traced or exported, are found in graphs with the nodes by these names."""

from __future__ import annotations

from typing import Any

import pytest

from telegrad.fx import symbolic_trace
from telegrad.fx.passes.utils.matcher_with_name_node_map_utils import SubgraphMatcherWithNameNodeMap


def _modules(tg: Any) -> tuple[Any, Any]:
    class Pattern(tg.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            inner = tg.relu(x)
            return inner + y, {"inner": inner, "given": x}

    class Whole(tg.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return (tg.relu(x * 2) + y).sum()

    return Pattern(), Whole()


@pytest.mark.parametrize("is_exported", [False, True])
def test_matches_have_the_nodes_by_the_names_of_the_pattern(tg: Any, is_exported: bool) -> None:
    given = (tg.ones(2), tg.ones(2))
    pattern, whole = [
        tg.export.export(module, given).module(check_guards=False) if is_exported else symbolic_trace(module)
        for module in _modules(tg)
    ]
    matcher = SubgraphMatcherWithNameNodeMap(pattern)
    (match,) = matcher.match(whole.graph)
    assert {name: node.name for name, node in match.name_node_map.items()} == {"inner": "relu", "given": "mul"}
    assert [node.name for node in match.returning_nodes] == ["add"]
    assert tg.equal(matcher.pattern_gm(*given)[0], tg.full((2,), 2.0))
    assert len(pattern(*given)) == 2


def test_patterns_without_names_are_refused(tg: Any) -> None:
    with pytest.raises(AssertionError, match="dictionary of its nodes"):
        SubgraphMatcherWithNameNodeMap(symbolic_trace(_modules(tg)[1]))
