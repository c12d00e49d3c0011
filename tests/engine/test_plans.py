"""What is worked out for a call is kept, but not without end: signatures come from clients."""

from __future__ import annotations

import pytest
import torch

from server.engine import plan
from server.engine.operators import OPERATORS
from telegrad_protocol.errors import ArgumentTypeError
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


def test_a_rate_that_changes_with_each_step_makes_no_new_plans() -> None:
    adapter = EngineAdapter()
    operator = OPERATORS["_fused_sgd_"]
    operator.plans.clear()
    settings = {
        "weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0, "nesterov": False, "maximize": False,
        "is_first_step": False,
    }  # fmt: skip
    param, grad = adapter.tensor(torch.zeros(3)), adapter.tensor(torch.ones(3))
    for rate in (0.5, 0.25, 0.125):
        adapter.functional._fused_sgd_([param], [grad], [], lr=rate, **settings)
    assert adapter.numpy(param).tolist() == [-0.875] * 3
    assert len(operator.plans) == 1
    adapter.functional._fused_sgd_([param], [grad], [], lr=0.5, **{**settings, "weight_decay": 0.5})
    assert adapter.numpy(param).tolist() == [-0.875 - 0.5 * (1 - 0.4375)] * 3


def test_arguments_of_classes_that_were_seen_before_are_checked_all_the_same() -> None:
    adapter = EngineAdapter()
    vector = adapter.tensor(torch.arange(6.0))
    for _ in range(2):
        assert adapter.functional.reshape(vector, (2, 3)).shape == (2, 3)
        with pytest.raises(ArgumentTypeError, match="shape"):
            adapter.functional.reshape(vector, (2, 3.0))
        with pytest.raises(ArgumentTypeError, match="dim0"):
            adapter.functional.transpose(vector, "0", 0)


def test_scalars_that_are_equal_and_not_the_same_have_plans_of_their_own() -> None:
    adapter = EngineAdapter()
    ints = adapter.tensor(torch.tensor([1, 2]))
    for scalar, expected in ((1, "int64"), (1.0, "float32"), (True, "int64"), (1, "int64")):
        assert adapter.dtype(adapter.functional.mul(ints, scalar)).name == expected
    for scalar, expected in ((0.0, "inf"), (-0.0, "-inf"), (0.0, "inf")):
        ones = adapter.tensor(torch.ones(1))
        assert str(adapter.numpy(adapter.functional.div(ones, scalar)).item()) == expected
