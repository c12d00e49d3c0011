"""Sums, spreads and running values on the host, against double precision: whichever way the numbers lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from .adapters import EngineAdapter
from .test_cpu_kernels import adapter, agree, numbers, rows_far_from_zero, run

__all__ = ["adapter"]


@pytest.mark.parametrize("dim", [None, 0, 1, 2, (0, 1), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 3000, 3), (3000, 2, 40), (2, 3, 70_001)])
def test_sums_over_any_dimensions_agree(adapter: EngineAdapter, rng: Any, dim: Any, shape: Any) -> None:
    x = numbers(rng, *shape)
    args = () if dim is None else (dim,)
    size = float(x.double().abs().sum(*args).max())
    agree(run(adapter, "sum", x, *args), x.double().sum(*args), atol=1e-6 * size)
    agree(run(adapter, "mean", x, *args), x.double().mean(*args))


@pytest.mark.parametrize("shape", [(3, 70_001), (700, 130), (5, 7, 64), (400, 17), (2, 30)])
@pytest.mark.parametrize("make", [numbers, rows_far_from_zero])
@pytest.mark.parametrize("args", [(), (-1,), ((0, 1),)])
def test_spread_of_rows_agrees(adapter: EngineAdapter, rng: Any, shape: Any, make: Any, args: Any) -> None:
    x = make(rng, *shape)
    for name in ("var", "std"):
        agree(run(adapter, name, x, *args), getattr(x.double(), name)(*args), 1e-4, 1e-4)
    agree(run(adapter, "var", x.double(), *args, correction=2), x.double().var(*args or (None,), correction=2), 1e-9)


@pytest.mark.parametrize("shape", [(3, 64), (2, 70_001), (300, 1000), (1, 200_000), (70_000, 65), (5, 63)])
def test_running_sums_are_exact_to_their_size(adapter: EngineAdapter, rng: Any, shape: Any) -> None:
    x = torch.from_numpy(rng.random(shape).astype(np.float32))
    expected = x.double().cumsum(1)
    agree(run(adapter, "cumsum", x, 1), expected, rtol=1e-6)
    agree(run(adapter, "cumsum", x.double(), 1), expected, rtol=1e-13)


@pytest.mark.parametrize("shape", [(2000, 16), (300, 77), (40, 2047), (9, 3000)])
def test_extremes_of_rows_are_pytorchs(adapter: EngineAdapter, rng: Any, shape: Any) -> None:
    """NaN of either sign is the result where there is one, infinities are numbers like others."""
    x = numbers(rng, *shape)
    for row, special in enumerate((np.nan, -np.nan, np.inf, -np.inf)):
        x[row, int(rng.integers(shape[1]))] = special
    x[4], x[5] = -np.inf, np.inf
    for name in ("amax", "amin"):
        result = run(adapter, name, x, -1)
        torch.testing.assert_close(result, getattr(torch, name)(x, -1), rtol=0, atol=0, equal_nan=True)


REDUCTIONS: dict[str, tuple[Any, ...]] = {
    "sum": (), "mean": (), "nansum": (), "nanmean": (), "logsumexp": (), "norm": (3.0,), "var": (), "std": (),
    "softmax": (), "log_softmax": (),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize(("shape", "dim"), [((90_000, 4), 0), ((3, 30_000, 4), 1), ((4, 30_000), 0), ((5000, 20), 1)])
def test_reductions_are_exact_whichever_dimension_goes(
    adapter: EngineAdapter, rng: Any, shape: Any, dim: int, offset: float, name: str
) -> None:
    x = torch.from_numpy(rng.random(shape).astype(np.float32)) + offset
    args = (*REDUCTIONS[name], dim)
    found, expected = run(adapter, name, x, *args), getattr(torch.Tensor, name)(x.double(), *args)
    agree(found, expected, rtol=1e-6, atol=4e-6 if name == "log_softmax" else 0)


@pytest.mark.parametrize("name", ["sum", "mean", "nansum", "norm"])
def test_sums_of_all_are_exact_however_they_lie(adapter: EngineAdapter, rng: Any, name: str) -> None:
    x = torch.from_numpy(rng.random((100_000, 5), np.float32))
    for view in (x[:, ::2], x[:, 1:4].T, x[::3], x.reshape(-1)[::2]):
        agree(run(adapter, name, view), getattr(torch.Tensor, name)(view.double()), rtol=2e-7, atol=0)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("layout", ["rows", "images", "images, channels last"])
def test_batch_statistics_are_exact(adapter: EngineAdapter, rng: Any, layout: str, offset: float) -> None:
    shape = (40_000, 8) if layout == "rows" else (64, 8, 30, 30)
    x = torch.from_numpy(rng.random(shape).astype(np.float32)) + offset
    if layout == "images, channels last":
        x = x.contiguous(memory_format=torch.channels_last)
    mean, var, rstd = run(adapter, "_batch_norm", x, None, None, 1e-5)[1:]
    dims = [d for d in range(len(shape)) if d != 1]
    agree(mean, x.double().mean(dims), rtol=2e-7, atol=0)
    agree(var, x.double().var(dims, correction=0), rtol=1e-6, atol=0)
    agree(rstd, (x.double().var(dims, correction=0) + 1e-5).rsqrt(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(70_001, 2), (70_001,), (20_000, 70), (10_000, 300)])
def test_running_values_are_rounded_once(adapter: EngineAdapter, rng: Any, shape: Any, dtype: torch.dtype) -> None:
    x = torch.from_numpy(rng.random(shape) + 1j * rng.random(shape))
    x = (x if dtype.is_complex else x.real).to(dtype)
    wide = x.to(torch.complex128 if dtype.is_complex else torch.float64)
    rtol = 3e-7 if len(shape) == 1 else 1e-7  # single rows are added in groups
    agree(run(adapter, "cumsum", x, 0), wide.cumsum(0), rtol=rtol)
    near_one = (1 + (x - 0.5) / 1000).to(dtype)
    agree(run(adapter, "cumprod", near_one, 0), near_one.to(wide.dtype).cumprod(0), rtol=1e-7)
    if not dtype.is_complex:
        agree(run(adapter, "logcumsumexp", x, 0), wide.logcumsumexp(0), rtol=1e-7)
        rows = near_one[:, None] if len(shape) == 1 else near_one
        states = [np.zeros(rows.shape[1:])]
        for decay, each in zip(rows.double().numpy(), (rows * 0.1).double().numpy(), strict=True):
            states.append(decay * states[-1] + each)
        expected = torch.from_numpy(np.stack(states[1:]))
        agree(run(adapter, "_linear_recurrence", rows, rows * 0.1, 0), expected, rtol=1e-7)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("shape", [(9, 300), (3, 50_000)])
def test_what_is_not_finite_changes_no_running_sum_before_it(
    adapter: EngineAdapter, rng: Any, shape: Any, value: float
) -> None:
    x = torch.from_numpy(rng.random(shape, np.float32))
    x[shape[0] // 2, shape[1] * 2 // 3] = value
    agree(run(adapter, "cumsum", x, 1), x.double().cumsum(1), rtol=3e-7)
