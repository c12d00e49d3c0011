"""Group normalization as the GPU runs it, with the kernels that any backend has; and on a GPU with its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.gpus import ALL_DEVICES

from .adapters import EngineAdapter
from .harness import Comparison

SHAPES = [((3, 6, 5, 7), 2), ((2, 8, 16), 4), ((4, 24), 3), ((2, 64, 8, 8), 32), ((2, 4, 33, 33), 1)]
DTYPES = [torch.float64, torch.float32]


@pytest.fixture(params=ALL_DEVICES)
def engine(request: pytest.FixtureRequest) -> EngineAdapter:
    return EngineAdapter(request.param)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "groups"), SHAPES, ids=str)
def test_values_gradients_and_second_gradients(
    engine: EngineAdapter, shape: tuple[int, ...], groups: int, dtype: torch.dtype, affine: bool
) -> None:
    x = (torch.randn(shape, dtype=dtype) * 2 + 3).requires_grad_()
    parameters = [torch.randn(shape[1], dtype=dtype).requires_grad_() for _ in range(2)] if affine else [None, None]

    def ours(x: Any, weight: Any, bias: Any) -> Any:
        return engine.functional._group_norm(x, groups, weight, bias, 1e-5)[0]

    def theirs(x: torch.Tensor, weight: Any, bias: Any) -> torch.Tensor:
        return functional.group_norm(x, groups, weight, bias)

    Comparison(engine, slack=5).run(theirs, ours, [x, *parameters], {}, second=dtype is torch.float64)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_halves_are_computed_in_float32(dtype: torch.dtype, cuda_device: str) -> None:
    engine = EngineAdapter(cuda_device)
    x = torch.randn(2, 8, 9, 9).to(dtype)
    found = engine.functional.group_norm(engine.tensor(x), 4)
    Comparison(engine).compare(found, functional.group_norm(x.float(), 4).to(dtype))
