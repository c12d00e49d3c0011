"""The graphs of an explained call compute what the function does, part by part, and the call does what it does else."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from telegrad.compiler import dynamo
from telegrad.fx import GraphModule


def _targets(graph: Any) -> list[str]:
    return [getattr(node.target, "__name__", node.target) for node in graph.graph.nodes if node.op.startswith("call")]


def test_graphs_are_pytorchs(tg: Any, rng: np.random.Generator) -> None:
    """Up to which calls are methods, and the order of inputs: each graph gives the results that the next one takes."""
    drawn = rng.standard_normal((4, 3), np.float32)

    def function(lib: Any) -> Any:
        def work(x: Any, scale: Any) -> Any:
            y = lib.sin(x) * scale
            if y.sum() > 100:
                return y
            return lib.cos(y) + 1

        return work

    arguments = [(lib.tensor(drawn), lib.ones(3)) for lib in (tg, torch)]
    mine = dynamo.explain(function(tg))(*arguments[0])
    theirs = torch._dynamo.explain(function(torch))(*arguments[1])
    assert [_targets(graph) for graph in mine.graphs] == [_targets(graph) for graph in theirs.graphs]
    assert (mine.graph_count, mine.graph_break_count) == (theirs.graph_count, theirs.graph_break_count)
    assert all([one.graph_break for one in mine.break_reasons])
    first, second = mine.graphs
    results = first(*arguments[0])
    (wanted,) = [one for one in results if one.ndim == 2]
    np.testing.assert_array_equal(second(wanted)[0].numpy(), function(tg)(*arguments[0]).numpy())
    assert "sin" in first.print_readable(print_output=False)


def test_an_explained_call_is_made_once(tg: Any, rng: np.random.Generator) -> None:
    x, before = tg.tensor(rng.standard_normal(5, np.float32)), []
    start = x.clone()

    def work(x: Any) -> Any:
        before.append(1)
        x.add_(1)
        return x.sum().item(), tg.rand(2)

    tg.manual_seed(3)
    explained = dynamo.explain(work)(x)
    drawn = tg.rand(2)
    tg.manual_seed(3)
    np.testing.assert_array_equal(x.numpy(), (start + 1).numpy())
    assert len(before) == 1 and explained.graph_break_count == 1
    tg.rand(2)
    np.testing.assert_array_equal(drawn.numpy(), tg.rand(2).numpy())
    assert all([isinstance(graph, GraphModule) for graph in explained.graphs])


def test_what_no_graph_can_say_has_names(tg: Any) -> None:
    """What is written into an input gives it a history."""
    x, weight = tg.ones(3), tg.ones(3).requires_grad_()
    explained = dynamo.explain(lambda x: x.sin() + x.add_(weight))(x)
    assert explained.graphs == explained.ops_per_graph == [["sin", "add_", "add"]]


def test_explaining_within_a_compiled_function_has_names(tg: Any) -> None:
    found = []
    tg.compile(lambda x: found.append(dynamo.explain(lambda y: y + 1)(x)) or x)(tg.ones(2))
    assert found[0].graphs == found[0].ops_per_graph
