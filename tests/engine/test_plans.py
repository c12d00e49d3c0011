"""What is worked out for a call is kept, but not without end: signatures come from clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from server.engine.operators import OPERATORS
from server.engine.replay import remembered
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentTypeError
from tests.ops.adapters import EngineAdapter


@pytest.mark.parametrize("name", ["neg", "outer"], ids=["kernel", "composite"])
def test_kept_plans_are_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = EngineAdapter()
    operator = OPERATORS[name]
    assert (operator.composite is not None) == (name == "outer")
    monkeypatch.setattr(remembered, "CAPACITY", 8)
    operator.clear_caches()
    most = 0
    for size in range(1, 30):
        vector = adapter.tensor(torch.randn(size))
        adapter.function(name)(*[vector] * len(operator.op.params))
        most = max(most, *operator.cache_sizes().values())
    assert 1 < most <= 8


@pytest.mark.parametrize("name", ["neg", "outer"], ids=["kernel", "composite"])
def test_of_a_call_that_is_new_no_more_is_kept_than_its_plan(name: str) -> None:
    adapter = EngineAdapter()
    operator = OPERATORS[name]
    operator.clear_caches()
    sizes = []
    for length in (2, 3, 4, 4, 4):
        vector = adapter.tensor(torch.randn(length))
        adapter.function(name)(*[vector] * len(operator.op.params))
        sizes.append(operator.cache_sizes())
    table = "plans" if operator.composite is None else "checked"
    assert [size[table] for size in sizes] == [1, 2, 3, 3, 3]
    assert [size["runs"] for size in sizes] == [0, 0, 0, 1, 1]


def test_what_derivatives_need_of_a_call_is_the_same_for_all_shapes() -> None:
    adapter = EngineAdapter()
    operator = OPERATORS["mul"]
    operator.clear_caches()
    for length in range(1, 6):
        vector = adapter.tensor(torch.ones(length), requires_grad=True)
        adapter.functional.mul(vector, 2.0)
        adapter.functional.mul(vector, vector)
    assert len(operator.gradient_forms) == 2


def test_a_rate_that_changes_with_each_step_makes_no_new_plans() -> None:
    adapter = EngineAdapter()
    operator = OPERATORS["_fused_sgd_"]
    operator.clear_caches()
    settings = {
        "weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0, "nesterov": False, "maximize": False,
        "is_first_step": False,
    }  # fmt: skip
    param, grad = adapter.tensor(torch.zeros(3)), adapter.tensor(torch.ones(3))
    for rate in (0.5, 0.25, 0.125):
        adapter.functional._fused_sgd_([param], [grad], [], lr=rate, **settings)
    assert adapter.numpy(param).tolist() == [-0.875] * 3
    assert operator.cache_sizes()["plans"] == 1
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


def test_what_decides_how_a_call_runs_is_looked_at_each_time() -> None:
    adapter = EngineAdapter()
    F, ctx = adapter.functional, adapter.context
    values = [adapter.tensor(torch.ones(2, 3)) for _ in range(3)]
    leaf, ints = adapter.tensor(torch.ones(2, 3), requires_grad=True), adapter.tensor(torch.ones(2, 3).int())
    for _ in range(3):
        for place in range(3):
            wanted = [*values[:place], leaf, *values[place + 1 :]]
            assert F.addcmul(*values).autograd is None
            edges = F.addcmul(*wanted).autograd.grad_fn.edges
            assert [edge is not None for edge in edges[:3]] == [each is leaf for each in wanted]
            ctx.grad_enabled = False
            assert F.addcmul(*wanted).autograd is None
            ctx.grad_enabled = True
            assert F.neg(leaf).autograd.grad_fn and not F.neg(values[0]).autograd
        for default in (dtypes.float64, dtypes.float32):
            dtypes.set_default_dtype(default)
            assert {adapter.dtype(each) for each in (F.div(ints, ints), F.sqrt(ints))} == {default}
        assert adapter.dtype(F.add(ints, values[0])) is adapter.dtype(F.add(values[0], ints)) is dtypes.float32
        assert adapter.dtype(F.add(ints, ints)) is dtypes.int32
        for zero in (0.0, -0.0):
            assert (np.signbit(adapter.numpy(F.hardtanh(values[0], zero, zero))) == np.signbit(zero)).all()
        for number in (complex(0.0, 1.0), complex(-0.0, 1.0)):
            assert str(adapter.numpy(F.mul(values[0], number)).flat[0].real) == str(number.real)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)  # bfloat16 has prepared kernels
def test_an_in_place_call_that_meets_its_own_memory_is_computed_elsewhere(dtype: torch.dtype) -> None:
    adapter = EngineAdapter()
    F = adapter.functional
    expected = torch.arange(1 << 20) % 3  # more than is computed at once
    values = adapter.tensor(expected.to(dtype))
    for _ in range(2):
        version = values.storage.version
        F.add_(F.slice(values, 0, 1, None, 1), F.slice(values, 0, 0, -1, 1))
        F.add_(values, values)
        F.add_(values, adapter.tensor(torch.ones(1 << 20, dtype=dtype)))
        expected = 2 * torch.cat([expected[:1], expected[1:] + expected[:-1]]) + 1
        assert (adapter.numpy(values) == expected.numpy()).all()
        assert values.storage.version == version + 3
