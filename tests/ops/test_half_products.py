"""Products of matrices of half precision on the host, beside those of single precision that are rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import compiled
from server.engine import functional as F
from server.engine.device import threads
from server.engine.dispatcher import call
from server.engine.operators import OPERATORS

from .adapters import EngineAdapter

SIZE = 150
"""Matrices of so many rows are worth compiled loops."""


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def cases(dtype: torch.dtype) -> list[tuple[str, tuple[torch.Tensor, ...], Callable[..., Any], Callable[..., Any]]]:
    """Names, operands, and how the engine and PyTorch compute."""
    make = lambda *shape: torch.randn(shape).to(dtype)
    a, b, c, bias = make(SIZE, SIZE), make(SIZE, SIZE), make(SIZE, SIZE), make(SIZE)
    many, others, added = make(3, SIZE, SIZE), make(3, SIZE, SIZE), make(3, SIZE, SIZE)
    linear, scales = torch.nn.functional.linear, {"beta": 0.5, "alpha": 2}
    return [
        ("mm", (a, b), F.mm, torch.mm),
        ("transposes", (a.t(), b[:, ::2]), F.mm, torch.mm),
        ("bmm", (many, others.mT), F.bmm, torch.bmm),
        ("addmm", (c, a, b), lambda *args: F.addmm(*args, **scales), lambda *args: torch.addmm(*args, **scales)),
        ("baddbmm", (added, many, others), F.baddbmm, torch.baddbmm),
        ("linear", (many, b, bias), F.linear, linear),
        ("linear without a bias", (a[:, :20], b[:, :20]), F.linear, linear),
    ]


@pytest.mark.parametrize("with_loops", [True, False], ids=["compiled", "numpy"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_multiplied_in_single_precision(
    adapter: EngineAdapter, monkeypatch: pytest.MonkeyPatch, seed: int, dtype: torch.dtype, with_loops: bool
) -> None:
    if not with_loops:
        monkeypatch.setattr(compiled, "kernels", lambda name="loops": None)
    torch.manual_seed(seed)
    for name, operands, ours, theirs in cases(dtype):
        result = ours(*map(adapter.tensor, operands))
        expected = theirs(*[operand.float() for operand in operands])
        assert result.dtype.name == str(dtype).removeprefix("torch.")
        unit = torch.finfo(dtype).eps
        np.testing.assert_allclose(adapter.numpy(result).astype("f"), expected.numpy(), 0.6 * unit, 2e-3, err_msg=name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_gradients_of_linear_and_targets_are_written(
    adapter: EngineAdapter, seed: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(seed)
    grad, x, weight = [torch.randn(SIZE, SIZE).to(dtype) for _ in range(3)]
    results = F._linear_backward(*map(adapter.tensor, (grad, x, weight)), True)
    wanted = grad.float() @ weight.float(), grad.float().t() @ x.float(), grad.float().sum(0)
    unit = torch.finfo(dtype).eps
    for result, expected in zip(results, wanted, strict=True):
        np.testing.assert_allclose(adapter.numpy(result).astype("f"), expected.numpy(), 0.6 * unit, 2e-3)
    target = adapter.tensor(torch.zeros(SIZE, SIZE, dtype=dtype))
    call(OPERATORS["mm.out"], tuple(map(adapter.tensor, (grad, weight))), {"out": target})
    np.testing.assert_allclose(adapter.numpy(target).astype("f"), wanted[0].numpy(), 0.6 * unit, 2e-3)
    call(OPERATORS["mm.out"], (target, adapter.tensor(weight)), {"out": target})  # which is an operand, too
    again = wanted[0].to(dtype).float() @ weight.float()
    np.testing.assert_allclose(adapter.numpy(target).astype("f"), again.numpy(), 0.05, 3)


def test_pairs_of_bfloat16_are_multiplied_where_the_processor_can(
    adapter: EngineAdapter, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """With rows and columns that fill no tile, on one thread and on three."""
    pairs = compiled.load("tensors.pairs")
    if pairs.multiply is None:
        pytest.skip("the processor has no products of pairs of bfloat16")
    monkeypatch.setattr(pairs, "PAIRS_PAY", True)
    torch.manual_seed(seed)
    for count in (1, 3):
        monkeypatch.setattr(threads, "count", lambda count=count: count)
        for m, n, k in ((130, 70, 130), (1, 1030, 1100), (33, 65, 2056), (300, 40, 128)):
            a, b, bias = (torch.randn(shape).bfloat16() for shape in ((m, k), (k, n), (n,)))
            product = a.float() @ b.float()
            results = [
                (F.mm(*map(adapter.tensor, (a, b))), product),
                (F.mm(*map(adapter.tensor, (a.t().contiguous().t(), b.t().contiguous().t()))), product),
                (F.linear(*map(adapter.tensor, (a, b.t().contiguous(), bias))), product + bias.float()),
            ]
            for found, expected in results:
                np.testing.assert_allclose(adapter.numpy(found).astype("f"), expected.numpy(), 2**-8, k**0.5 * 1e-5)
    a[0, 0], a[1, 1] = torch.nan, torch.inf
    found, expected = adapter.numpy(F.mm(*map(adapter.tensor, (a, b)))), (a.float() @ b.float()).numpy()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
