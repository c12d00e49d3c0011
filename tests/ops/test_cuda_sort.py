"""Sorting and selection on a GPU against stable sorts on the host: all types, all kernels, NaN, zeros, ties."""

from __future__ import annotations

import pytest
import torch

from .adapters import EngineAdapter, to_torch
from .test_cuda_reduce import FLOATS, INTEGERS, call, drawn, seed, views

__all__ = ["seed"]

pytestmark = pytest.mark.gpu

SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((), 0), ((1,), 0), ((0, 3), 0), ((3, 0), 0), ((5,), 0), ((300, 10), 1), ((300, 10), 0), ((7, 128), 1),
    ((7, 129), 1), ((4, 3, 900), 1), ((4, 3, 900), 2), ((3, 4096), 1), ((3, 4097), 1), ((100_003,), 0),
    ((2, 20_000), 1), ((9000, 3), 0),
]  # fmt: skip
FEW = [SHAPES[n] for n in (5, 8, 11, 13, 15)]
KINDS = [
    pytest.param(shape, dim, dtype, id=f"{shape}-{dim}-{str(dtype).removeprefix('torch.')}")
    for dtype in (*FLOATS, *INTEGERS)
    for shape, dim in (SHAPES if dtype in (torch.float32, torch.bfloat16) else FEW)
]


def _has_elements(shape: tuple[int, ...], dim: int) -> bool:
    """Whether lines along a dimension have an element of any rank."""
    return not shape or shape[dim] > 0


@pytest.fixture(scope="module")
def gpu(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


def with_edges(x: torch.Tensor) -> torch.Tensor:
    """Some NaN of both signs, infinities, zeros of both signs, and ties."""
    if not x.dtype.is_floating_point or x.numel() < 5:
        return x
    chosen = torch.randint(0, 40, x.shape)
    for number, value in enumerate((float("nan"), -float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0)):
        x = torch.where(chosen == number, torch.tensor(value, dtype=x.dtype), x)
    return x


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True, check_stride=False)
    if found.dtype.is_floating_point:
        number = ~expected.isnan()
        assert torch.equal(found.signbit() & number, expected.signbit() & number)


def layouts(shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """Views as reductions get them, the first with edges."""
    found = views(shape, dtype)[:4]
    return [with_edges(found[0]), *found]


@pytest.mark.parametrize(("shape", "dim", "dtype"), KINDS)
def test_sorts(gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    for x in layouts(shape, dtype):
        for descending in (False, True):
            values, places = torch.sort(x, dim=dim, descending=descending, stable=True)
            found, indices = call(gpu, "sort", x, dim, descending)
            assert torch.equal(indices, places)
            same(found, values)
            assert torch.equal(call(gpu, "argsort", x, dim, descending)[0], places)


@pytest.mark.parametrize(("shape", "dim", "dtype"), KINDS)
def test_best(gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    length = shape[dim] if shape else 1
    for x in layouts(shape, dtype):
        for k in {0, min(1, length), min(7, length), min(600, length), length // 2, length}:
            for largest in (False, True):
                values, places = torch.sort(x, dim=dim, descending=largest, stable=True)
                found, indices = call(gpu, "topk", x, k, dim, largest)
                first = (lambda t, k=k: t.narrow(dim, 0, k)) if shape else (lambda t: t)
                if shape or k:
                    assert torch.equal(indices, first(places))
                    same(found, first(values))


@pytest.mark.parametrize(("shape", "dim", "dtype"), [kind for kind in KINDS if _has_elements(*kind.values[:2])])
def test_elements_of_a_rank(
    gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: int, dtype: torch.dtype
) -> None:
    length = shape[dim] if shape else 1
    for x in layouts(shape, dtype):
        values, places = torch.sort(x, dim=dim, stable=True)
        for k in {1, length // 3 + 1, length}:
            found, indices = call(gpu, "kthvalue", x, k, dim)
            same(found, values.select(dim, k - 1) if shape else values)
            assert torch.equal(indices, places.select(dim, k - 1) if shape else places)
        found, indices = call(gpu, "median", x, dim)
        numbers = length - x.isnan().sum(dim, keepdim=True)
        at = torch.where(numbers < length, numbers, torch.tensor((length - 1) // 2))
        same(found, values.gather(dim, at).squeeze(dim) if shape else values)
        assert torch.equal(indices, places.gather(dim, at).squeeze(dim) if shape else places)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.uint8, torch.int64), ids=str)
def test_one_long_line(gpu: EngineAdapter, seed: int, dtype: torch.dtype) -> None:
    x = drawn((3_000_001,), dtype)
    values, places = torch.sort(x, dim=0, descending=True, stable=True)
    found, indices = call(gpu, "sort", x, 0, True)
    assert torch.equal(indices, places)
    same(found, values)
    for k in (1, 50, 1000, 5000):
        found, indices = call(gpu, "topk", x, k)
        assert torch.equal(indices, places[:k])
        same(found, values[:k])


def test_lines_of_equal_elements(gpu: EngineAdapter) -> None:
    for shape in ((3, 100), (3, 3000), (2, 50_000)):
        x = torch.zeros(shape, dtype=torch.bfloat16)
        place = torch.arange(shape[1]).expand(shape)
        assert torch.equal(call(gpu, "sort", x, 1)[1], place)
        assert torch.equal(call(gpu, "topk", x, 20, 1)[1], place[:, :20])
        assert torch.equal(call(gpu, "kthvalue", x, 77, 1)[1], place[:, 76])


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.int64, torch.uint8), ids=str)
@pytest.mark.parametrize("right", (False, True))
def test_places_in_sorted_lines(gpu: EngineAdapter, seed: int, dtype: torch.dtype, right: bool) -> None:
    gpu.activate()
    lines, sought = drawn((5, 300), dtype).sort(1).values, drawn((5, 41), dtype)
    for many, few in ((lines, sought), (lines[0], sought), (lines[:, ::2], sought[:, 1::3]), (lines[2], sought.t())):
        found = gpu.functional.searchsorted(gpu.tensor(many), gpu.tensor(few), right=right)
        expected = torch.searchsorted(many.contiguous(), few.contiguous(), right=right)
        assert torch.equal(to_torch(gpu.numpy(found)), expected)
    found = gpu.functional.bucketize(gpu.tensor(sought), gpu.tensor(lines[1]), out_int32=True, right=right)
    assert torch.equal(to_torch(gpu.numpy(found)), torch.bucketize(sought, lines[1], out_int32=True, right=right))
