"""Tensors that are joined on a GPU, by one launch or by several, against PyTorch to the bit."""

from __future__ import annotations

import random

import pytest
import torch

from .adapters import EngineAdapter, to_torch

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


def _drawn(generator: torch.Generator, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(0, 2, shape, generator=generator).bool() if dtype is torch.bool else torch.randn(
        shape, generator=generator
    ).mul(50).to(dtype)  # fmt: skip


def _laid_out(draw: random.Random, generator: torch.Generator, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of a shape that lies in memory as it is, permuted, in steps, or behind other elements."""
    kind = draw.choice(["dense", "dense", "permuted", "steps", "behind", "wide", "expanded"])
    if kind == "permuted":
        order = draw.sample(range(len(shape)), len(shape))
        return _drawn(generator, [shape[d] for d in order], dtype).permute(
            [order.index(d) for d in range(len(shape))]
        )  # fmt: skip
    if kind == "steps":
        return _drawn(generator, [*shape[:-1], 2 * shape[-1]], dtype)[..., ::2]
    if kind == "behind":
        numel = torch.Size(shape).numel()
        return _drawn(generator, [numel + 3], dtype)[draw.choice([1, 2, 3]) :][:numel].view(shape)
    if kind == "wide":
        return _drawn(generator, [*shape[:-1], shape[-1] + 5], dtype)[..., : shape[-1]]
    if kind == "expanded":
        return _drawn(generator, [1, *shape[1:]], dtype).expand(shape)
    return _drawn(generator, shape, dtype)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32, torch.float64, torch.complex128], ids=str)
def test_joined_tensors_have_every_bit_of_the_parts(gpu: EngineAdapter, seed: int, dtype: torch.dtype) -> None:
    gpu.activate()
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    for _ in range(120):
        shape = [draw.choice([0, 1, 2, 3, 8, 17, 64]) for _ in range(draw.randint(1, 4))]
        dim = draw.randrange(len(shape))
        lengths = [draw.choice([0, 1, 2, 7, 16, 33]) for _ in range(draw.randint(1, 6))]
        parts = [_laid_out(draw, generator, [*shape[:dim], n, *shape[dim + 1 :]], dtype) for n in lengths]
        found = to_torch(gpu.numpy(gpu.functional.cat([gpu.tensor(one) for one in parts], dim)))
        assert torch.equal(found, torch.cat(parts, dim)), (shape, dim, lengths)
        several = [_laid_out(draw, generator, shape, dtype) for _ in range(draw.randint(1, 5))]
        found = to_torch(gpu.numpy(gpu.functional.stack([gpu.tensor(one) for one in several], dim)))
        assert torch.equal(found, torch.stack(several, dim)), (shape, dim)


def test_large_tensors_are_joined(gpu: EngineAdapter, seed: int) -> None:
    gpu.activate()
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(1 << 11, n, generator=generator) for n in (257, 1024, 3)]
    found = to_torch(gpu.numpy(gpu.functional.cat([gpu.tensor(one) for one in parts], 1)))
    assert torch.equal(found, torch.cat(parts, 1))
