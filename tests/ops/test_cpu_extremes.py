"""Extremes of large tensors, and where they are, on several threads: PyTorch's, with NaN and ties, too."""

from __future__ import annotations

import pytest
import torch

from server.engine.operators import OPERATORS

from .adapters import EngineAdapter, to_torch
from .test_cpu_threads import adapter, call, seen

__all__ = ["adapter", "seen"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32]


def drawn(dtype: torch.dtype, shape: tuple[int, ...], nans: bool) -> torch.Tensor:
    """Few different numbers, so that many are equal to the extreme."""
    x = torch.randint(-50, 50, shape).to(dtype)
    if nans and dtype.is_floating_point:
        x[torch.rand(shape) < 1e-5] = torch.nan
    return x


@pytest.mark.parametrize("nans", [False, True], ids=["numbers", "nan"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_extremes_and_their_places_are_pytorchs(
    adapter: EngineAdapter, seed: int, seen: set[str], dtype: torch.dtype, nans: bool
) -> None:
    torch.manual_seed(seed)
    for shape in ((701, 997), (3, 300_007), (40, 60, 400), (900_001,)):
        x = drawn(dtype, shape, nans)
        for name in ("max", "min"):
            same(call(adapter, name, x)[0], getattr(x, name)())
            same(call(adapter, f"arg{name}", x, None, False)[0], first_place(x.reshape(-1), name, 0))
            same(call(adapter, f"a{name}", x, -1, False)[0], getattr(x, f"a{name}")(-1))
            same(call(adapter, f"arg{name}", x, -1, True)[0], first_place(x, name, -1).unsqueeze(-1))
            both = adapter.functional.run(OPERATORS[f"{name}.dim"], adapter.tensor(x), -1, False)
            values, places = [to_torch(adapter.numpy(value)) for value in both]
            same(places, first_place(x, name, -1))
            same(values, x.gather(-1, places.unsqueeze(-1)).squeeze(-1))
    assert "True" in seen


def first_place(x: torch.Tensor, name: str, dim: int) -> torch.Tensor:
    """Where the first of equal extremes is, which is the first NaN if there is one."""
    extreme = getattr(x, f"a{name}")(dim, keepdim=True)
    is_extreme = (x == extreme) | (x != x)
    return is_extreme.to(torch.uint8).argmax(dim) if x.ndim else is_extreme


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
