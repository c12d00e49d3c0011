"""What is worked out for a call is kept, but not without end: signatures come from clients."""

from __future__ import annotations

import pytest
import torch

from server.engine import plan
from server.engine.operators import OPERATORS
from tests.ops.adapters import EngineAdapter


@pytest.mark.parametrize("name", ["neg", "outer"], ids=["kernel", "composite"])
def test_kept_plans_are_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = EngineAdapter()
    operator = OPERATORS[name]
    assert (operator.composite is not None) == (name == "outer")
    monkeypatch.setattr(plan, "_CAPACITY", 8)
    operator.plans.clear()
    most = 0
    for size in range(1, 30):
        vector = adapter.tensor(torch.randn(size))
        adapter.function(name)(*[vector] * len(operator.op.params))
        most = max(most, len(operator.plans))
    assert 1 < most <= 8
