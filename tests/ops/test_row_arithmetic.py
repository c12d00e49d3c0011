"""Arithmetic of large tensors and those that are broadcast to them on the host, beside PyTorch's in double."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from server.engine import compiled
from server.engine.cpu.tensors.row_arithmetic import rows_of

from .adapters import EngineAdapter
from .test_cpu_threads import adapter, call, seen

__all__ = ["adapter", "seen"]
SHAPES = [
    ((200, 300), (300,)), ((200, 300), (200, 1)), ((8, 8, 30, 40), (8, 1, 1)), ((8, 8, 30, 40), (8, 1, 1, 40)),
    ((8, 8, 30, 40), (1, 8, 1, 40)), ((8, 8, 30, 40), (1, 8, 30, 1)), ((8, 8, 30, 40), (8, 1, 30, 1)), ((200, 300), ()),
    ((70_000, 3), (3,)), ((17, 19, 64), (1, 19, 64)), ((1, 200, 300), (200, 1)), ((900, 1000), (1000,)),
]  # fmt: skip


@pytest.mark.parametrize("with_loops", [True, False], ids=["compiled", "numpy"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_arithmetic_with_what_is_broadcast_agrees(
    adapter: EngineAdapter, seed: int, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, with_loops: bool
) -> None:
    if not with_loops:
        monkeypatch.setattr(compiled, "kernels", lambda name="loops": None)
    torch.manual_seed(seed)
    for large, small in SHAPES:
        x, y = (torch.rand(shape).add(0.5).to(dtype) for shape in (large, small))
        x.view(-1)[:3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
        for name, options in (("add", {}), ("add", {"alpha": -0.5}), ("sub", {"alpha": 2}), ("mul", {}), ("div", {})):
            for first, second in ((x, y), (y, x)):
                expected = getattr(torch, name)(first.double(), second.double(), **options).to(dtype)
                (found,) = call(adapter, name, first, second, **options)
                close(found, expected, (name, large, small))
            expected = getattr(torch, name)(x.double(), y.double(), **options).to(dtype)
            (found,) = call(adapter, f"{name}_", x.clone(), y, **options)
            close(found, expected, (f"{name}_", large, small))


def close(found: torch.Tensor, expected: torch.Tensor, what: Any) -> None:
    unit = torch.finfo(found.dtype).eps
    assert found.dtype is expected.dtype
    torch.testing.assert_close(
        found, expected, rtol=2 * unit, atol=4 * unit, equal_nan=True, msg=lambda text: f"{what}: {text}"
    )


def test_rows_and_what_goes_with_them_are_counted() -> None:
    assert rows_of((4, 32), (32,)) == (4, 32, 1, 32, 4)
    assert rows_of((4, 32), (4, 1)) == (4, 32, 4, 1, 1)
    assert rows_of((2, 3, 4, 32), (3, 1, 1)) == (6, 128, 3, 1, 1)
    assert rows_of((2, 3, 4, 32), (2, 1, 1, 32)) == (24, 32, 2, 32, 12)
    assert rows_of((2, 3, 4, 32), (1, 3, 1, 32)) == (24, 32, 3, 32, 4)
    for large, small in (((2, 3, 4, 32), (2, 1, 4, 1)), ((2, 32), ()), ((1, 32), (32,)), ((40, 8), (8,))):
        assert rows_of(large, small) is None
