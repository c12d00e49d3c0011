"""Elements at positions that data gives, in large tensors on the host: moved exactly, added in order, checked first."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from server.engine import compiled
from telegrad_protocol.errors import IndexOutOfRangeError

from .adapters import EngineAdapter, to_torch
from .test_cpu_threads import adapter, call, seen

__all__ = ["adapter", "seen"]
DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool, torch.complex64,
    torch.complex128,
]  # fmt: skip
SHAPES = [
    ((200, 300), (200, 300)), ((200, 300), (200, 123)), ((200, 300), (123, 300)), ((20, 30, 40), (20, 30, 40)),
    ((20, 7, 400), (20, 11, 400)), ((50_000,), (40_000,)), ((200, 300), (150, 290)), ((300, 5000), (300, 5000)),
]  # fmt: skip


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.rand(shape) > 0.5
    return torch.randn(shape, dtype=dtype) if dtype.is_complex else torch.randint(-9, 9, shape).to(dtype)


@pytest.mark.parametrize("with_loops", [True, False], ids=["compiled", "numpy"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_are_gathered_scattered_and_added(
    adapter: EngineAdapter, seed: int, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, with_loops: bool
) -> None:
    if not with_loops:
        monkeypatch.setattr(compiled, "kernels", lambda name="loops": None)
    torch.manual_seed(seed)
    for shape, places in SHAPES:
        x, source = numbers(shape, dtype), numbers(places, dtype)
        for dim in range(len(shape)):
            if any(here > there for d, (here, there) in enumerate(zip(places, shape, strict=True)) if d != dim):
                continue
            index = torch.randint(0, shape[dim], places)
            assert torch.equal(call(adapter, "gather", x, dim, index)[0], x.gather(dim, index))
            if places[dim] <= shape[dim]:
                once = torch.rand(places).argsort(dim)
                assert torch.equal(call(adapter, "scatter", x, dim, once, source)[0], x.scatter(dim, once, source))
            if dtype is not torch.bool:
                added = call(adapter, "scatter_add", x, dim, index, source)[0]
                close(added, x, partial(with_added, dim, index, source))


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype is not torch.bool], ids=str)
def test_rows_are_added_in_order(adapter: EngineAdapter, seed: int, dtype: torch.dtype) -> None:
    torch.manual_seed(seed)
    x, source = numbers((200, 300), dtype), numbers((500, 300), dtype)
    index = torch.randint(0, 200, (500,))
    added = call(adapter, "index_add", x, 0, index, source)[0]
    close(added, x, lambda wide: wide.index_add(0, index, source.to(wide.dtype)))
    added = call(adapter, "index_add", x.t().contiguous(), 1, index, source.t().contiguous())[0]
    close(added.t(), x, lambda wide: wide.index_add(0, index, source.to(wide.dtype)))
    if dtype.is_floating_point:
        gradient = call(adapter, "embedding_dense_backward", source, index, 200, 3, False)[0]
        wanted = torch.zeros(200, 300, dtype=torch.float64).index_add(0, index, source.double())
        wanted[3] = 0
        close(gradient, wanted.to(dtype), lambda wide: wanted)


def with_added(dim: int, index: torch.Tensor, source: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
    return wide.scatter_add(dim, index, source.to(wide.dtype))


def close(found: torch.Tensor, x: torch.Tensor, exact: Any) -> None:
    wide = x.to(torch.complex128 if x.dtype.is_complex else torch.float64)
    expected = exact(wide).to(x.dtype)
    tolerance = torch.finfo(x.dtype).eps * 16 if x.dtype.is_floating_point or x.dtype.is_complex else 0
    assert found.dtype is x.dtype
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_positions_beyond_a_dimension_are_refused(adapter: EngineAdapter, seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(200, 300)
    for place in (300, -1):
        index = torch.randint(0, 300, (200, 300))
        index[-1, -1] = place
        for name, args in (("gather", (x, 1, index)), ("scatter", (x, 1, index, x)), ("scatter_add", (x, 1, index, x))):
            with pytest.raises(IndexOutOfRangeError, match="out of range"):
                call(adapter, name, *args)


@pytest.mark.parametrize("name", ["scatter_", "scatter_add_"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nothing_is_changed_in_place_where_a_position_is_refused(
    adapter: EngineAdapter, seed: int, dtype: torch.dtype, name: str
) -> None:
    torch.manual_seed(seed)
    for shape in ((300, 700), (7, 80, 400)):
        x = torch.randn(shape).to(dtype)
        for dim in range(len(shape)):
            index = torch.randint(0, shape[dim], shape)
            mine, theirs = adapter.tensor(x.clone()), x.clone()
            given = [adapter.tensor(index), adapter.tensor(x)]
            if name == "scatter_add_":
                adapter.function(name)(mine, dim, *given)
                close(to_torch(adapter.numpy(mine)), theirs, partial(with_added, dim, index, x))
            index[(-1,) * len(shape)] = shape[dim]
            mine = adapter.tensor(x.clone())
            with pytest.raises(IndexOutOfRangeError, match="out of range"):
                adapter.function(name)(mine, dim, adapter.tensor(index), given[1])
            assert torch.equal(to_torch(adapter.numpy(mine)), x)


def test_a_long_vector_is_gathered_by_threads(adapter: EngineAdapter, seed: int, seen: set[str]) -> None:
    torch.manual_seed(seed)
    x, index = torch.randn(1000), torch.randint(0, 1000, (300_001,))
    assert torch.equal(call(adapter, "gather", x, 0, index)[0], x[index])
    assert "True" in seen
    index[-1] = 1000
    with pytest.raises(IndexOutOfRangeError, match="index 1000 is out of range"):
        call(adapter, "gather", x, 0, index)
