"""Large element-wise operations and sums by compiled loops: every type, special numbers, and any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

from server.engine.device import threads

from .adapters import EngineAdapter
from .test_cpu_threads import adapter, alone, call, seen

__all__ = ["adapter", "seen"]
HALVES = [torch.float16, torch.bfloat16]
LENGTH = 150_007
SPECIAL = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-7, -6e-5, 1e-40, -88.0, 88.9, -103.0, 11.1, 60000.0]

UNARY: dict[str, Any] = {
    "exp": torch.exp, "sigmoid": torch.sigmoid, "relu": torch.relu, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
    "neg": torch.neg, "silu": TF.silu, "gelu": TF.gelu, "tanh": torch.tanh, "abs": torch.abs, "sign": torch.sign,
    "floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "erf": torch.erf, "square": torch.square,
    "hardswish": TF.hardswish, "relu6": TF.relu6, "hardtanh": TF.hardtanh, "leaky_relu": TF.leaky_relu,
}  # fmt: skip
BINARY: dict[str, Any] = {
    "add": torch.add, "sub": torch.sub, "rsub": torch.rsub, "mul": torch.mul, "div": torch.div,
    "maximum": torch.maximum, "minimum": torch.minimum,
}  # fmt: skip


def samples(rng: Any, dtype: torch.dtype, *, special: bool = True) -> torch.Tensor:
    """Numbers of all sizes, and those that need care, at the begin and at the end."""
    x = rng.standard_normal(LENGTH) * 10 ** rng.uniform(-3, 1.5, LENGTH)
    if special:
        x[: len(SPECIAL)] = x[-len(SPECIAL) :] = SPECIAL
    return torch.from_numpy(x).to(dtype)


def errors(result: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Distances from exact results, in units of the spacing of the results' type; numbers that differ in kind fail."""
    rounded = exact.to(result.dtype)
    assert torch.equal(result.isnan(), rounded.isnan())
    result, rounded, exact = (t[~rounded.isnan()] for t in (result, rounded, exact))
    spacing = (torch.nextafter(rounded.abs(), torch.tensor(torch.inf, dtype=result.dtype)) - rounded.abs()).double()
    distance = (result.double() - exact).abs() / spacing
    return distance.where(rounded.isfinite(), (result != rounded).double() * 1e9)


def agrees(result: torch.Tensor, reference: torch.Tensor, exact: torch.Tensor) -> None:
    """The result is about as close to the exact one as PyTorch's."""
    if result.dtype in HALVES:
        assert errors(result, exact).max() <= max(0.51, errors(reference, exact).max().item())
    else:
        assert errors(result, exact).max() <= max(8, errors(reference, exact).max().item())


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_functions_are_as_exact_as_pytorchs(adapter: EngineAdapter, rng: Any, dtype: torch.dtype) -> None:
    for name, function in UNARY.items():
        x = samples(rng, dtype)
        if name in ("silu", "gelu"):  # of large negative numbers these are differences of nearly equal numbers
            x = x.clamp(-1, 1e4)
        agrees(call(adapter, name, x)[0], function(x), function(x.double()))


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_arithmetic_is_as_exact_as_pytorchs(adapter: EngineAdapter, rng: Any, dtype: torch.dtype) -> None:
    x, y = samples(rng, dtype), samples(rng, dtype).roll(3)
    for name, function in BINARY.items():
        agrees(call(adapter, name, x, y)[0], function(x, y), function(x.double(), y.double()))
    for name in ("add", "sub", "rsub", "mul", "div"):
        for number in (3, 0.7, -2.5e-3):
            function = BINARY[name]
            agrees(call(adapter, name, x, number)[0], function(x, number), function(x.double(), number))
    for number in (torch.inf, torch.nan, 1e39):
        torch.testing.assert_close(call(adapter, "mul", x, number)[0], x * number, equal_nan=True)
    scaled = call(adapter, "add", x, y, alpha=0.3)[0].double()  # whose number PyTorch rounds to the type first
    wanted = x.double().add(y.double(), alpha=0.3).to(dtype).double()
    torch.testing.assert_close(scaled, wanted, rtol=2 * torch.finfo(dtype).eps, atol=1e-4, equal_nan=True)
    torch.testing.assert_close(call(adapter, "sub", x, 2, alpha=3)[0], x.sub(2, alpha=3), equal_nan=True)
    torch.testing.assert_close(call(adapter, "sub", 2, x)[0], torch.sub(2, x), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_bounds_powers_and_sums_of_products_agree(adapter: EngineAdapter, rng: Any, dtype: torch.dtype) -> None:
    x, (y, z) = samples(rng, dtype), (samples(rng, dtype, special=False).roll(n) for n in (1, 2))
    for bounds in ((None, 1.5), (-1, None), (-0.5, 2), (2, -1), (-torch.inf, torch.inf)):
        torch.testing.assert_close(
            call(adapter, "clamp", x, *bounds)[0], x.clamp(*bounds), rtol=0, atol=0, equal_nan=True
        )
    agrees(call(adapter, "pow", x, 2)[0], x.pow(2), x.double().pow(2))
    rtol, x = 2 * torch.finfo(dtype).eps, samples(rng, dtype, special=False)
    wide = x.double(), y.double(), z.double()
    wanted = torch.addcmul(*wide, value=0.3)
    scale = wide[0].abs() + 0.3 * (wide[1] * wide[2]).abs() + 1e-4  # below which float16 has fewer digits
    assert ((call(adapter, "addcmul", x, y, z, value=0.3)[0].double() - wanted).abs() / scale).max() < rtol
    for weight in (0.3, 0.8, -2.0):
        wanted = torch.lerp(*wide[:2], weight)
        scale = (wide[0].abs() + wide[1].abs()) * 4 + 1e-4
        assert ((call(adapter, "lerp", x, y, weight)[0].double() - wanted).abs() / scale).max() < rtol


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_what_is_computed_in_place_is_the_same(adapter: EngineAdapter, rng: Any, dtype: torch.dtype) -> None:
    x, y, z = (samples(rng, dtype).roll(n) for n in range(3))
    cases: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("add", (y,), {"alpha": 0.5}), ("mul", (y,), {}), ("mul", (0.5,), {}), ("div", (3,), {}), ("relu", (), {}),
        ("clamp", (-1, 1), {}), ("addcmul", (y, z), {"value": 0.25}), ("lerp", (y, 0.25), {}),
    ]  # fmt: skip
    for name, args, options in cases:
        (expected,) = call(adapter, name, x, *args, **options)
        (found,) = call(adapter, f"{name}_", x.clone(), *args, **options)
        assert torch.equal(found.nan_to_num(2, 3, 4), expected.nan_to_num(2, 3, 4)), name


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("shape", [(300, 1000), (1500, 70), (1, 300_001), (700, 3), (4000, 129)])
def test_columns_and_extremes_agree(adapter: EngineAdapter, rng: Any, dtype: torch.dtype, shape: Any) -> None:
    x = torch.from_numpy(rng.random(shape) - 0.4).to(dtype)
    size = x.double().abs().sum(0).max().item()
    tolerance = {torch.float32: 1e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}[dtype]
    agree = lambda found, exact: torch.testing.assert_close(
        found.double(), exact.to(dtype).double(), rtol=tolerance, atol=2e-6 * size
    )
    agree(call(adapter, "sum", x, 0)[0], x.double().sum(0))
    agree(call(adapter, "mean", x, 0)[0], x.double().mean(0))
    for dim in (0, 1):
        agree(call(adapter, "logsumexp", x, dim)[0], x.double().logsumexp(dim))
    x[0, 0], x[-1, -1], x[0, 1] = torch.inf, -torch.inf, torch.nan
    for args in ((), (0,), (1,)):
        for name in ("amax", "amin"):
            torch.testing.assert_close(
                call(adapter, name, x, *args)[0], getattr(torch, name)(x, *args), rtol=0, atol=0, equal_nan=True
            )
    torch.testing.assert_close(
        call(adapter, "logsumexp", x, 1)[0].double(), x.float().logsumexp(1).to(dtype).double(), equal_nan=True,
        rtol=tolerance, atol=1e-6,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_gradients_agree_in_any_layout(adapter: EngineAdapter, rng: Any, dtype: torch.dtype) -> None:
    grad, x = (samples(rng, dtype, special=False)[:150_000].reshape(300, 500) for _ in range(2))
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    functions = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu, "gelu": TF.gelu, "silu": TF.silu}
    for lies in (lambda t: t, lambda t: t.t().contiguous().t()):
        for name, function in functions.items():
            wide = x.double().requires_grad_()
            result = function(wide)
            (expected,) = torch.autograd.grad(result, wide, grad.double())
            given = x if name in ("gelu", "silu") else result.detach().to(dtype)
            if name == "tanh" or name == "sigmoid":  # of results as they were rounded
                y = given.double()
                expected = grad.double() * ((1 - y * y) if name == "tanh" else y * (1 - y))
            (found,) = call(adapter, f"_{name}_backward", lies(grad), lies(given))
            torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_results_are_the_same_on_any_number_of_threads(
    adapter: EngineAdapter, rng: Any, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    x, y = (torch.cat([samples(rng, dtype)] * 3) for _ in range(2))

    def work() -> list[torch.Tensor]:
        results = [*call(adapter, "exp", x), *call(adapter, "sigmoid", x), *call(adapter, "add", x, y, alpha=0.3)]
        return [*results, *call(adapter, "sum", x.nan_to_num(0, 1, 1)), *call(adapter, "mean", y.nan_to_num(0, 1, 1))]

    for first, second in zip(work(), alone(monkeypatch, work), strict=True):
        assert torch.equal(first.nan_to_num(), second.nan_to_num())


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("shape", [(300, 1000), (7, 70_001), (1, 2_100_001), (200_000, 3), (3, 2048 * 40), (60_000,)])
def test_sums_are_rounded_once(adapter: EngineAdapter, rng: Any, dtype: torch.dtype, shape: Any) -> None:
    x = torch.from_numpy(rng.random(shape)).to(dtype)
    assert threads.count() == 3
    tolerance = {torch.float32: 3e-7, torch.float16: 2**-10, torch.bfloat16: 2**-7}[dtype]
    for args in ((), (-1,)):
        for name in ("sum", "mean"):
            exact = getattr(torch, name)(x.double(), *args)
            rounded = exact.to(dtype)
            (found,) = call(adapter, name, x, *args)
            torch.testing.assert_close(found.double(), rounded.double(), rtol=tolerance, atol=0)
    x.view(-1)[np.prod(shape) // 2] = torch.nan
    assert call(adapter, "sum", x)[0].isnan()
    x.view(-1)[np.prod(shape) // 2] = torch.inf
    assert call(adapter, "sum", x)[0] == torch.inf
