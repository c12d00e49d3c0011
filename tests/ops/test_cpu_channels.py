"""Batch and group normalization of large tensors on the host, in every float type, against double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

from .adapters import EngineAdapter
from .test_cpu_threads import FLOATS, adapter, agree, call, numbers, seen

__all__ = ["adapter", "seen"]
SHAPES = [(9, 36, 31, 33), (5, 24, 1000), (40, 12, 100)]


@pytest.mark.parametrize("parameters", ["alike", "float32", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_normalizations_and_their_gradients_agree(
    adapter: EngineAdapter, rng: np.random.Generator, seen: set[str], dtype: torch.dtype, parameters: str
) -> None:
    kind = dtype if parameters == "alike" or dtype is torch.float64 else torch.float32
    for shape in SHAPES:
        channels, groups = shape[1], 4
        x, grad = numbers(rng, *shape, dtype=dtype) * 2 + 1, numbers(rng, *shape, dtype=dtype)
        given = [None, None] if parameters == "none" else [numbers(rng, channels, dtype=kind) for _ in range(2)]
        wide = [None if t is None else t.double().requires_grad_() for t in (x, *given)]
        leaves = [t for t in wide if t is not None]
        tolerance = FLOATS[dtype] * 8
        by_batch = TF.batch_norm(wide[0], None, None, *wide[1:], training=True)
        result, mean, _, rstd = call(adapter, "_batch_norm", x, *given, 1e-5)
        agree([result], by_batch.detach(), tolerance * 4)
        found = call(adapter, "_batch_norm_gradients", grad, x, mean, rstd, given[0])
        close(found[: len(leaves)], torch.autograd.grad(by_batch, leaves, grad.double()), tolerance)
        by_group = TF.group_norm(wide[0], groups, *wide[1:])
        agree(call(adapter, "group_norm", x, groups, *given, 1e-5), by_group.detach(), tolerance * 4)
        result, mean, rstd = call(adapter, "_group_norm", x, groups, *given, 1e-5)
        agree([result], by_group.detach(), tolerance * 4)
        found = call(adapter, "_group_norm_gradients", grad, x, mean, rstd, given[0], groups)
        close(found[: len(leaves)], torch.autograd.grad(by_group, leaves, grad.double()), tolerance)
    assert "True" in seen or dtype is torch.float64


def close(found: list[torch.Tensor], expected: Any, tolerance: float) -> None:
    """Compare gradients, of which those of parameters are sums over samples and positions."""
    for mine, wanted in zip(found, expected, strict=True):
        terms = 1 if mine.ndim > 1 else 200
        torch.testing.assert_close(mine.double(), wanted, rtol=tolerance * 4, atol=tolerance * terms)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_running_statistics_normalize(adapter: EngineAdapter, rng: np.random.Generator, dtype: torch.dtype) -> None:
    x = numbers(rng, 9, 36, 31, 33, dtype=dtype) + 3
    mean, weight, bias = (numbers(rng, 36, dtype=dtype) for _ in range(3))
    var = numbers(rng, 36, dtype=dtype) ** 2 + 0.1
    expected = TF.batch_norm(*[t.double() for t in (x, mean, var, weight, bias)])
    agree(call(adapter, "batch_norm", x, mean, var, weight, bias, False), expected, FLOATS[dtype] * 20)
