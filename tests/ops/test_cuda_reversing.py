"""Copies on GPUs that read backwards, or from somewhere else on, in every layout."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.gpus import GPUS

from .adapters import EngineAdapter
from .harness import Comparison

pytestmark = pytest.mark.gpu
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex128]


@pytest.fixture(params=GPUS)
def engine(request: pytest.FixtureRequest) -> EngineAdapter:
    return EngineAdapter(request.param)


def _sources(dtype: torch.dtype) -> list[torch.Tensor]:
    """Row-major, permuted, strided and shifted tensors, and such of one element or none."""
    whole = torch.randn(6, 37, 40).mul_(50).to(dtype)
    return [whole, whole.transpose(0, 2), whole[1::2, 3:, ::3], whole[:, :1, 5:], whole[:0], whole[0, 0, :1]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_flips_rotations_and_rolls_are_pytorchs(engine: EngineAdapter, dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    compared = Comparison(engine)
    for source in _sources(dtype):
        mine, dims = engine.tensor(source), range(source.ndim)
        calls: list[tuple[str, tuple[Any, ...]]] = [
            ("flip", (chosen,)) for count in range(source.ndim + 1) for chosen in itertools.combinations(dims, count)
        ]
        calls += [("rot90", (k, pair)) for k in range(-1, 4) for pair in itertools.permutations(dims, 2)]
        calls += [("roll", (shift,)) for shift in (0, 1, -7, 1000)]
        calls += [("roll", (shift, dim)) for shift in (2, -1) for dim in dims]
        calls += [("roll", ((shift, -2), pair)) for shift in (1, -50) for pair in itertools.permutations(dims, 2)]
        for name, arguments in calls:
            found = engine.function(name)(mine, *arguments)
            compared.compare(found, getattr(torch, name)(source, *arguments))


def test_a_roll_along_one_dimension_twice_adds_up(engine: EngineAdapter) -> None:
    source = torch.randn(3, 5)
    found = engine.function("roll")(engine.tensor(source), (1, 2), (1, -1))
    Comparison(engine).compare(found, torch.roll(source, (1, 2), (1, -1)))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_is_pytorchs(engine: EngineAdapter, mode: str, seed: int) -> None:
    torch.manual_seed(seed)
    for shape, pads in (((2, 3, 50), (7, 3)), ((2, 3, 9, 8), (4, 3, 0, 2)), ((1, 2, 4, 5, 6), (1, 2, 3, 0, 2, 1))):
        source = torch.randn(shape)
        found = engine.function("pad")(engine.tensor(source), pads, mode)
        Comparison(engine).compare(found, torch.nn.functional.pad(source, pads, mode))
