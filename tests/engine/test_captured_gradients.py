"""Gradients that a pass is to capture, at leaves and within the graph, are PyTorch's, and leaves get none of them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import functional as F
from server.engine.autograd import node_program
from server.engine.autograd.inplace import set_requires_grad
from server.engine.backward import grad
from tests.ops.adapters import EngineAdapter

SIZE = 4


def _gradients(adapter: EngineAdapter, seed: int, takes_middle: bool) -> list[tuple[Any, Any]]:
    """Gradients at leaves and within a graph, of the engine and of PyTorch."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    theirs = [
        torch.from_numpy(numbers.standard_normal((SIZE, SIZE)).astype(np.float32)).requires_grad_() for _ in range(3)
    ]
    ours = [adapter.tensor(one) for one in theirs]
    for leaf in ours:
        set_requires_grad(leaf, True)
    leaves, our_leaves = theirs.copy(), ours.copy()
    for _ in range(20):
        name = rng.choice(("add", "mul", "sub", "tanh", "matmul", "sin"))
        places = [rng.randrange(len(ours)) for _ in range(1 if name in ("tanh", "sin") else 2)]
        ours.append(F.tanh(getattr(F, name)(*[ours[place] for place in places])))
        theirs.append(torch.tanh(getattr(torch, name)(*[theirs[place] for place in places])))
    chosen = [rng.randrange(3, len(ours) - 1) for _ in range(2)] if takes_middle else []
    wanted = [*our_leaves[:2], *[ours[place] for place in chosen]]
    given = grad([F.sum(ours[-1] * ours[-2])], [None], wanted, allow_unused=True, retain_graph=rng.random() < 0.5)
    expected = torch.autograd.grad(
        (theirs[-1] * theirs[-2]).sum(), [*leaves[:2], *[theirs[place] for place in chosen]], allow_unused=True
    )
    assert all([leaf.autograd.grad is None for leaf in our_leaves])
    assert [one is None for one in given] == [one is None for one in expected]
    return [(adapter.numpy(a), b.numpy()) for a, b in zip(given, expected) if a is not None and b is not None]


@pytest.mark.parametrize("takes_middle", [False, True])
@pytest.mark.parametrize("is_python", [False, True], ids=["as compiled", "in Python"])
def test_gradients_are_captured_where_they_are_asked_for(
    is_python: bool, takes_middle: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_python:
        monkeypatch.setattr(node_program, "drain_in_c", None)
    monkeypatch.setattr(node_program, "RECORDED_AFTER", 2)
    adapter = EngineAdapter()
    for part in range(20):
        for ours, theirs in _gradients(adapter, seed + part, takes_middle):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_nodes_of_such_passes_are_written_down_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made, record = [], node_program._record
    assert record is not None

    def noting(*args: Any) -> Any:
        results, program = record(*args)
        made.append(program)
        return results, program

    monkeypatch.setattr(node_program, "_record", noting)
    adapter = EngineAdapter()
    x = adapter.tensor(torch.full((5, 3, 2), 0.5))
    set_requires_grad(x, True)
    for _ in range(node_program.RECORDED_AFTER):
        grad([F.sum(F.sinh(F.cosh(x)))], [None], [x])
    assert made and None not in made
