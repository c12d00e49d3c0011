"""Our tiled attention on the GPU against float64, in every layout that it claims to take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from .adapters import EngineAdapter, to_torch

pytestmark = pytest.mark.gpu

TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SIZES = [  # batch, query heads, shared heads, rows, columns, width, depth
    (1, 1, 1, 1, 1, 1, 1), (2, 3, 3, 64, 64, 64, 64), (2, 4, 2, 65, 127, 33, 20), (1, 6, 1, 130, 70, 128, 128),
    (3, 2, 2, 7, 300, 72, 100), (1, 2, 2, 257, 257, 31, 31),
]  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> EngineAdapter:
    return EngineAdapter("cuda:0")


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention_and_its_gradients(engine: EngineAdapter, seed: int, sizes: Any, is_causal: bool, dtype: Any) -> None:
    from server.engine import functional as F
    from server.engine.autograd.engine import backward

    torch.manual_seed(seed)
    engine.activate()
    batch, heads, shared, rows, columns, width, depth = sizes
    made = [
        _laid_out(torch.randn(batch, heads, rows, width, dtype=torch.float64).to(dtype), 0),
        _laid_out(torch.randn(batch, shared, columns, width, dtype=torch.float64).to(dtype), 1),
        _laid_out(torch.randn(batch, shared, columns, depth, dtype=torch.float64).to(dtype), 2),
    ]
    grad = torch.randn(batch, heads, rows, depth, dtype=torch.float64).to(dtype)
    wide = [tensor.double().requires_grad_() for tensor in made]
    expected = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=is_causal, enable_gqa=heads != shared)
    expected.backward(grad.double())
    values = [engine.tensor(tensor, True) for tensor in made]
    found = F.scaled_dot_product_attention(*values, is_causal=is_causal, enable_gqa=heads != shared)
    backward([found], [engine.tensor(grad, False)])
    results = [found, *[value.autograd.grad for value in values]]
    for mine, reference in zip(results, [expected, *[w.grad for w in wide]], strict=True):
        result, reference = to_torch(engine.numpy(mine)).double(), reference.detach()
        scale = max(1.0, float(reference.abs().max()))
        torch.testing.assert_close(result, reference, rtol=0, atol=TOLERANCES[dtype] * scale)


def _laid_out(tensor: torch.Tensor, how: int) -> torch.Tensor:
    """Row-major, heads between rows as a projection leaves them, or elements apart."""
    if how == 0:
        return tensor
    if how == 1:
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    return torch.stack((tensor, tensor), -1)[..., 0]


def test_the_same_gradients_come_out_twice(engine: EngineAdapter, rng: np.random.Generator) -> None:
    from server.engine import functional as F
    from server.engine.autograd.engine import backward

    engine.activate()
    made = [torch.from_numpy(rng.standard_normal((2, 3, 200, 40)).astype(np.float32)) for _ in range(3)]
    runs = []
    for _ in range(2):
        values = [engine.tensor(tensor, True) for tensor in made]
        found = F.scaled_dot_product_attention(*values, is_causal=True)
        backward([F.sum(F.mul(found, found))], [None])
        runs.append([engine.numpy(value.autograd.grad) for value in values])
    for one, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(one, other)
