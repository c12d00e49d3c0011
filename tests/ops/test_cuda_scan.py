"""Cumulative operations on a GPU against float64 references: lengths, layouts and values that are easy to get wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from telegrad_protocol.meta import Meta

from .adapters import TORCH_TO_OURS, EngineAdapter, to_torch
from .test_cuda_reduce import COMPLEX, FLOATS, INTEGERS, call, close, drawn, seed, views, wide

__all__ = ["seed"]

pytestmark = pytest.mark.gpu

LAYOUTS: list[tuple[tuple[int, ...], int]] = [
    ((), 0), ((1,), 0), ((0, 3), 0), ((3, 0), 0), ((7,), 0), ((300_007,), 0), ((33, 65), 0), ((33, 65), 1),
    ((5, 4100), 1), ((4100, 5), 0), ((2, 20_000), 1), ((20_000, 3), 0), ((1000, 10), 1), ((6, 50, 9), 1), ((3, 128), 1),
    ((600, 100), 0), ((70_001, 2), 0),
]  # fmt: skip
FEW = [LAYOUTS[n] for n in (5, 7, 9, 13)]


def cases(*dtypes: torch.dtype) -> list[Any]:
    """All layouts in the types that matter most, a few in all others."""
    return [
        pytest.param(shape, dim, dtype, id=f"{shape}-{dim}-{str(dtype).removeprefix('torch.')}")
        for dtype in dtypes
        for shape, dim in (LAYOUTS if dtype in (torch.float32, torch.bfloat16) else FEW)
    ]


@pytest.fixture(scope="module")
def gpu(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


@pytest.mark.parametrize(("shape", "dim", "dtype"), cases(*FLOATS, *INTEGERS, *COMPLEX))
def test_sums(gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    for x in views(shape, dtype):
        ref = wide(x)
        close(call(gpu, "cumsum", x, dim)[0], ref.cumsum(dim), ref.abs().double().cumsum(dim))


@pytest.mark.parametrize(("shape", "dim", "dtype"), cases(*FLOATS, *COMPLEX))
def test_products(gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    for x in views(shape, dtype):
        signs = (torch.rand(shape) < 0.5).to(dtype) * 2 - 1
        near_one = (signs * (1 + x.abs() / (64 * max(shape[dim] if shape else 1, 1)))).to(dtype)
        expected = wide(near_one).cumprod(dim)
        is_single = dtype in (torch.float32, torch.complex64)  # carried in a wider type
        factors = 1 if is_single else torch.ones_like(expected.abs()).cumsum(dim)
        close(call(gpu, "cumprod", near_one, dim)[0], expected, expected.abs() * factors)


@pytest.mark.parametrize(("shape", "dim", "dtype"), cases(*FLOATS))
def test_logarithms_of_sums(
    gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: int, dtype: torch.dtype
) -> None:
    for x in views(shape, dtype):
        apart = (x * 40 if dtype is not torch.float16 else x).clone()
        if x.numel() > 50:
            apart = apart.masked_fill(torch.rand(x.shape) < 0.05, -torch.inf)
        expected = wide(apart).logcumsumexp(dim)
        found = call(gpu, "logcumsumexp", apart, dim)[0]
        close(found, expected, expected.abs().nan_to_num(posinf=0) + 1)


def test_sums_of_exponentials_of_what_is_no_number(gpu: EngineAdapter) -> None:
    inf, nan = torch.inf, torch.nan
    for line in ([-inf, -inf, 1, inf, nan, 2], [inf, -inf, inf], [nan, -inf, 0], [-inf], [3e38, 3e38, -3e38]):
        x = torch.tensor(line * 40)
        torch.testing.assert_close(call(gpu, "logcumsumexp", x, 0)[0], x.logcumsumexp(0), equal_nan=True)


@pytest.mark.parametrize(("shape", "dim", "dtype"), cases(*FLOATS, *INTEGERS))
def test_extrema(gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    for x in views(shape, dtype):
        if dtype.is_floating_point and x.numel() > 50:
            x = torch.where(torch.rand(x.shape) < 1e-3, torch.tensor(float("nan"), dtype=dtype), x)
        for name in ("cummax", "cummin"):
            values, indices = call(gpu, name, x, dim)
            expected, places = getattr(torch, name)(x, dim)
            torch.testing.assert_close(values, expected, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(indices, places)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((700,), 0), ((5, 33), 1), ((2000, 3), 0), ((3, 9000), 1)], ids=str)
def test_recurrences(gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    decay, x = drawn(shape, dtype).tanh(), drawn(shape, dtype)
    expected, size = torch.empty(shape, dtype=torch.float64), torch.empty(shape, dtype=torch.float64)
    before = above = torch.zeros(()).double()
    for i in range(shape[dim]):
        d, v = decay.select(dim, i).double(), x.select(dim, i).double()
        before, above = d * before + v, d.abs() * above + v.abs()
        expected.select(dim, i).copy_(before)
        size.select(dim, i).copy_(above)
    gpu.activate()
    found = to_torch(gpu.numpy(gpu.functional._linear_recurrence(gpu.tensor(decay), gpu.tensor(x), dim)))
    close(found, expected, size)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_infinities_and_nan(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[1, inf, 2, -inf, 1], [0.0, -0.0, nan, 1, inf], [-inf, -inf, 3, inf, inf]]).to(dtype)
    for rows in (x, x.repeat_interleave(2000, 1)):
        close(call(gpu, "cumsum", rows, 1)[0], rows.double().cumsum(1), 0)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((3_000_001,), 0), ((40_000, 70), 0)], ids=str)
def test_results_are_the_same_every_time(
    gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: int, dtype: torch.dtype
) -> None:
    gpu.activate()
    value = gpu.tensor(drawn(shape, dtype))
    for name in ("cumsum", "cumprod"):
        first = gpu.numpy(gpu.function(name)(value, dim)).tobytes()
        assert all(gpu.numpy(gpu.function(name)(value, dim)).tobytes() == first for _ in range(5))


def test_more_elements_than_32_bits_count(gpu: EngineAdapter) -> None:
    gpu.activate()
    backend = gpu.backends[gpu.device]
    length = (1 << 31) + 12_345
    value = backend.empty(Meta.of((length,), TORCH_TO_OURS[torch.uint8], gpu.device))
    value.array[...] = 1
    found = gpu.functional.cumsum(value, 0)
    for place in (0, 1 << 20, length // 2, length - 1):
        assert int(gpu.numpy(gpu.functional.narrow(found, 0, place, 1))[0]) == place + 1
