"""Kernels tuned for the host, against PyTorch in double precision: several blocks, odd sizes, what is not finite.

Where a kernel has a short way for harmless numbers, the inputs also make it take the other one, in some blocks alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

from server.engine.cpu.copies import copy

from .adapters import EngineAdapter, to_torch

SHAPES = [(3, 70_001), (700, 130), (1, 1), (20_011, 7), (65, 2048), (33, 2049), (5, 64)]
"""Rows longer than a block and than one product sums, and more rows than a block holds."""
HALVES = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def run(adapter: EngineAdapter, name: str, *args: Any, **kwargs: Any) -> Any:
    """An operation's results, tensors in and out."""
    result = adapter.function(name)(*[adapter.tensor(a) if isinstance(a, torch.Tensor) else a for a in args], **kwargs)
    if isinstance(result, tuple):
        return [to_torch(adapter.numpy(value)) for value in result]
    return to_torch(adapter.numpy(result))


def agree(result: torch.Tensor, expected: torch.Tensor, rtol: float = 2e-6, atol: float = 1e-6) -> None:
    wide = torch.complex128 if expected.is_complex() else torch.float64
    torch.testing.assert_close(result.to(wide), expected.to(wide), rtol=rtol, atol=atol, equal_nan=True)


def numbers(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))


def trouble(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    """Numbers of which a few rows are huge, tiny, masked or not finite."""
    x = numbers(rng, *shape)
    for start, value in enumerate((300.0, -300.0, -torch.inf, torch.inf, torch.nan)):
        x[start * 3 : start * 3 + 1] += value
    x[16:20, ::2] = -torch.inf
    return x


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("make", [numbers, trouble])
def test_softmax_and_its_logarithm_agree(adapter: EngineAdapter, rng: Any, shape: Any, make: Any) -> None:
    x = make(rng, *shape)
    agree(run(adapter, "softmax", x, -1), x.double().softmax(-1))
    agree(run(adapter, "log_softmax", x, -1), x.double().log_softmax(-1), atol=4e-6)


@pytest.mark.parametrize("shift", [0.0, 11.0, 80.0, -20.0])
def test_logarithms_of_probabilities_stay_exact_for_large_scores(
    adapter: EngineAdapter, rng: Any, shift: float
) -> None:
    x = numbers(rng, 300, 40)
    x[:, 7] += 9.0
    x += shift
    agree(run(adapter, "log_softmax", x, -1), x.double().log_softmax(-1), atol=3e-6)
    target = torch.full((300,), 7)
    agree(run(adapter, "cross_entropy", x, target), TF.cross_entropy(x.double(), target), atol=2e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("offset", [0.0, 50.0, -300.0])
@pytest.mark.parametrize("shape", [(400, 10), (60, 1025), (3, 12, 11, 7)])
def test_the_loss_of_a_sure_answer_keeps_its_digits(
    adapter: EngineAdapter, rng: Any, shape: Any, offset: float, smoothing: float
) -> None:
    x, target = numbers(rng, *shape) + offset, torch.from_numpy(rng.integers(0, shape[1], (shape[0], *shape[2:])))
    x = x.scatter_add(1, target.unsqueeze(1), torch.full(shape, 12.0))
    options: dict[str, Any] = {"reduction": "none", "label_smoothing": smoothing}
    expected = TF.cross_entropy(x.double(), target, **options)
    agree(run(adapter, "cross_entropy", x, target, **options), expected, rtol=1e-6, atol=3e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_backward_of_softmax_agrees(adapter: EngineAdapter, rng: Any, shape: Any) -> None:
    grad, x = numbers(rng, *shape), numbers(rng, *shape)
    for name, forward in (("_softmax_backward_data", torch.softmax), ("_log_softmax_backward_data", torch.log_softmax)):
        source = x.double().requires_grad_()
        result = forward(source, -1)
        (expected,) = torch.autograd.grad(result, source, grad.double())
        actual = run(adapter, name, grad, result.detach().float(), -1, adapter.tensor(grad).dtype)
        agree(actual, expected, rtol=1e-5, atol=1e-5 if name.startswith("_soft") else 5e-4)


def rows_far_from_zero(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    x = numbers(rng, *shape)
    x[::3] += 1000.0
    x[1:2] = 5.0
    return x


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("make", [numbers, rows_far_from_zero])
@pytest.mark.parametrize("is_affine", [False, True])
def test_layer_norm_and_its_gradients_agree(
    adapter: EngineAdapter, rng: Any, shape: Any, make: Any, is_affine: bool
) -> None:
    x, grad = make(rng, *shape), numbers(rng, *shape)
    weight, bias = (numbers(rng, shape[1]), numbers(rng, shape[1])) if is_affine else (None, None)
    wide = [None if t is None else t.double().requires_grad_() for t in (x, weight, bias)]
    expected = TF.layer_norm(wide[0], (shape[1],), wide[1], wide[2])
    result, mean, rstd = run(adapter, "_layer_norm", x, (shape[1],), weight, bias, 1e-5)
    agree(result, expected.detach(), rtol=1e-4, atol=1e-4)
    agree(mean.reshape(-1), x.double().mean(-1), atol=1e-6)
    wanted = [w for w in wide[:2] if w is not None]
    gradients = torch.autograd.grad(expected, wanted, grad.double())
    scale = float(gradients[0].abs().max() + rstd.max())
    agree(run(adapter, "_layer_norm_backward", grad, x, mean, rstd, weight), gradients[0], 1e-4, 1e-5 * scale)
    if is_affine:
        tolerance = 1e-4 * float(gradients[1].abs().max()) + 1e-9
        result = run(adapter, "_layer_norm_weight_backward", grad, x, mean, rstd, (shape[1],))
        agree(result, gradients[1], 1e-4, tolerance)
        together = run(adapter, "_layer_norm_gradients", grad, x, mean, rstd, weight, (shape[1],))
        agree(together[0], gradients[0], 1e-4, 1e-5 * scale)
        agree(together[1], gradients[1], 1e-4, tolerance)
        agree(together[2], grad.double().sum(0), atol=1e-6 * shape[0])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_affine", [False, True])
def test_rms_norm_and_its_gradients_agree(adapter: EngineAdapter, rng: Any, shape: Any, is_affine: bool) -> None:
    x, grad, weight = numbers(rng, *shape), numbers(rng, *shape), numbers(rng, shape[1])
    wide = x.double().requires_grad_(), weight.double().requires_grad_()
    weight = weight if is_affine else None
    expected = TF.rms_norm(wide[0], shape[1:], wide[1] if is_affine else wide[1] * 0 + 1, 1e-5)
    gradients = torch.autograd.grad(expected, wide, grad.double())
    result, rstd = run(adapter, "_rms_norm", x, shape[1:], weight, 1e-5)
    agree(result, expected.detach(), 1e-5, 1e-6)
    by_input, by_weight = run(adapter, "_rms_norm_gradients", grad, x, rstd, weight, shape[1:])
    agree(by_input, gradients[0], 1e-4, 1e-5 * float(gradients[0].abs().max() + rstd.max()))
    if is_affine:
        agree(by_weight, gradients[1], 1e-4, 1e-5 * shape[0] ** 0.5)


def test_rows_that_hold_nan_spoil_no_other_rows(adapter: EngineAdapter, rng: Any) -> None:
    x = numbers(rng, 300, 200)
    x[7, 3], x[150, 5] = torch.nan, torch.inf
    result = run(adapter, "_layer_norm", x, (200,), None, None, 1e-5)[0]
    agree(result, TF.layer_norm(x.double(), (200,)), 1e-4, 1e-5)


def orders(ndim: int) -> list[tuple[int, ...]]:
    import itertools

    return list(itertools.permutations(range(ndim)))


@pytest.mark.parametrize("shape", [(1024, 1030), (64, 64, 128), (8, 3, 65, 64), (2048, 33), (1, 5000)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int8, bool])
def test_copies_in_another_order_hold_the_same(rng: Any, shape: Any, dtype: Any) -> None:
    x = rng.integers(0, 2, shape).astype(dtype)
    for order in orders(len(shape)):
        source = x.transpose(order)
        target = np.empty_like(source, order="C")
        copy(source, target)
        assert np.array_equal(target, source)
        copy(source[::-1], target)
        assert np.array_equal(target, source[::-1])


EDGES = [0.0, -0.0, 1e-45, -1e-40, 1e-8, -1e-8, 0.5, -0.5, -1.0, 1.0, -2.0, 3.0, 20.0, -20.0, 90.0, -90.0, 1e30, -1e30]
NOT_FINITE = [torch.inf, -torch.inf, torch.nan]
FUNCTIONS: dict[str, tuple[str, tuple[Any, ...], Callable[[torch.Tensor], torch.Tensor]]] = {
    "relu": ("relu", (), torch.relu),
    "sigmoid": ("sigmoid", (), torch.sigmoid),
    "silu": ("silu", (), TF.silu),
    "gelu": ("gelu", (), TF.gelu),
    "leaky_relu": ("leaky_relu", (0.2,), lambda x: TF.leaky_relu(x, 0.2)),
    "leaky_relu 0": ("leaky_relu", (0.0,), lambda x: TF.leaky_relu(x, 0.0)),
    "elu": ("elu", (1.5,), lambda x: TF.elu(x, 1.5)),
    "selu": ("selu", (), torch.selu),
    "celu": ("celu", (0.7,), lambda x: TF.celu(x, 0.7)),
    "softplus": ("softplus", (), TF.softplus),
    "softplus steep": ("softplus", (3.0, 5.0), lambda x: TF.softplus(x, 3.0, 5.0)),
    "hardsigmoid": ("hardsigmoid", (), TF.hardsigmoid),
    "hardswish": ("hardswish", (), TF.hardswish),
    "mish": ("mish", (), TF.mish),
    "log1p": ("log1p", (), torch.log1p),
    "rsqrt": ("rsqrt", (), torch.rsqrt),
    "clamp": ("clamp", (-0.7, 2), lambda x: x.clamp(-0.7, 2)),
    "hardtanh": ("hardtanh", (-0.5, 0.5), lambda x: TF.hardtanh(x, -0.5, 0.5)),
} | {f"pow {p}": ("pow", (p,), lambda x, p=p: x.pow(p)) for p in (-3, -2, -1, 0, 1, 4, 5, -0.5, 2.5, 1.25)}
SLOWLY_VANISHING = {"gelu"}
"""1.3e-7 of the operand, where PyTorch's own is 0 in single precision."""


def operands(rng: np.random.Generator, count: int, edges: list[float]) -> torch.Tensor:
    x = numbers(rng, count) * torch.from_numpy(10.0 ** rng.integers(-3, 2, count)).float()
    x[: len(edges)] = torch.tensor(edges)
    return x


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("edges", [EDGES, EDGES + NOT_FINITE], ids=["finite", "not finite"])
@pytest.mark.parametrize("count", [40, 100_003])
def test_element_wise_functions_agree_everywhere(
    adapter: EngineAdapter, rng: Any, name: str, edges: list[float], count: int
) -> None:
    public, args, theirs = FUNCTIONS[name]
    x = operands(rng, count, edges)
    result, expected = run(adapter, public, x, *args), theirs(x.double())
    expected = torch.where(expected.abs() > torch.finfo(torch.float32).max, expected.sign() * torch.inf, expected)
    slack = 2e-7 * x.abs().nan_to_num(0, 0, 0).double() if name in SLOWLY_VANISHING else 0
    off = (result.double() - expected).abs() > 1e-37 + slack + 4e-6 * expected.abs()
    assert not off.any(), f"{x[off][:5]} gave {result[off][:5]}, expected {expected[off][:5]}"
    assert torch.equal(result.isnan(), expected.isnan())


@pytest.mark.parametrize("shape", [(70_001, 2), (3000, 48), (5000, 63), (300, 127), (40, 5, 64)])
@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extremes_of_short_rows_agree(adapter: EngineAdapter, rng: Any, shape: Any, name: str) -> None:
    x = numbers(rng, *shape)
    x.view(-1)[::997] = torch.nan
    x.view(-1)[::89] = -torch.inf
    agree(run(adapter, name, x, -1), getattr(x, name)(-1), 0, 0)
    agree(run(adapter, name, x.double(), -1, True), getattr(x, name)(-1, True), 0, 0)


@pytest.mark.parametrize("delta", [0.3, 1.0, 5.0])
def test_errors_beyond_a_bound_count_linearly(adapter: EngineAdapter, rng: Any, delta: float) -> None:
    x, y = operands(rng, 90_001, EDGES[:-2] + NOT_FINITE), numbers(rng, 90_001)
    expected = TF.huber_loss(x.double(), y.double(), reduction="none", delta=delta)
    agree(run(adapter, "_huber_error", x, y, delta), expected, 1e-6, 1e-6)


def test_gradients_of_relu_are_selected_not_multiplied(adapter: EngineAdapter, rng: Any) -> None:
    grad, x = numbers(rng, 50_001), numbers(rng, 50_001)
    grad[:4] = torch.tensor([torch.inf, torch.nan, torch.inf, 1.0])
    x[:4] = torch.tensor([-1.0, -1.0, 1.0, torch.nan])
    expected = torch.ops.aten.threshold_backward(grad, x, 0)
    for kind in (torch.float32, torch.float64):
        agree(run(adapter, "_relu_backward", grad.to(kind), x.to(kind)), expected.to(kind), 0, 0)


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_gradients_of_activations_agree(adapter: EngineAdapter, rng: Any, name: str) -> None:
    grad, x = numbers(rng, 70_001), operands(rng, 70_001, EDGES)
    source = x.double().requires_grad_()
    (expected,) = torch.autograd.grad(getattr(TF, name)(source), source, grad.double())
    kwargs = {"approximate": "none"} if name == "gelu" else {}
    agree(run(adapter, f"_{name}_backward", grad, x, **kwargs), expected, rtol=4e-6, atol=1e-6)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "row-major": lambda x: x,
    "column-major": lambda x: x.transpose(0, 2),
    "channels last": lambda x: x.permute(2, 0, 1),
    "with gaps": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["relu", "gelu", "softplus", "log1p", "sigmoid", "elu"])
def test_layouts_change_no_value(adapter: EngineAdapter, rng: Any, layout: str, name: str) -> None:
    x = LAYOUTS[layout](numbers(rng, 40, 64, 50))
    agree(run(adapter, name, x, *FUNCTIONS[name][1]), FUNCTIONS[name][2](x.double()))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_large_half_precision_tensors_agree_in_every_layout(
    adapter: EngineAdapter, rng: Any, dtype: torch.dtype, layout: str
) -> None:
    bases = [numbers(rng, 40, 64, 50).to(dtype) for _ in range(2)]
    bases[0].view(-1)[:3] = torch.tensor(NOT_FINITE).to(dtype)
    x, y = map(LAYOUTS[layout], bases)
    for name, theirs in (("add", torch.add), ("mul", torch.mul), ("lt", torch.lt), ("maximum", torch.maximum)):
        expected = theirs(x, y)
        assert torch.equal(run(adapter, name, x, y).nan_to_num(0.25), expected.nan_to_num(0.25)), name
    for name, args in (("exp", ()), ("gelu", ()), ("clamp", (-0.5, 0.25)), ("mul", (1.5,))):
        expected = (TF.gelu if name == "gelu" else getattr(torch, name))(x.double(), *args)
        agree(run(adapter, name, x, *args), expected.to(dtype), rtol=HALVES[dtype], atol=1e-3)


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_is_updated_in_place_piece_by_piece(adapter: EngineAdapter, rng: Any, dtype: Any) -> None:
    x, y = numbers(rng, 90_001).to(dtype), numbers(rng, 90_001).to(dtype)
    mine = adapter.tensor(x)
    adapter.function("mul_")(mine, adapter.tensor(y))
    adapter.function("add_")(mine, mine)
    assert torch.equal(to_torch(adapter.numpy(mine)), x.mul(y).mul_(2))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(3, 70_001), (700, 130), (20_011, 7)])
def test_row_kernels_take_half_precision(adapter: EngineAdapter, rng: Any, dtype: Any, shape: Any) -> None:
    x, grad, weight = (numbers(rng, *s).to(dtype) for s in (shape, shape, shape[1:]))
    tolerance = HALVES[dtype]
    agree(run(adapter, "softmax", x, -1), x.double().softmax(-1), tolerance, 1e-4)
    agree(run(adapter, "sum", x, 1), x.double().sum(1), tolerance, tolerance)
    expected = TF.layer_norm(x.double(), shape[1:], weight.double())
    result, mean, rstd = run(adapter, "_layer_norm", x, shape[1:], weight, None, 1e-5)
    agree(result, expected, tolerance, tolerance)
    assert mean.dtype is torch.float32
    source = x.double().requires_grad_()
    (expected,) = torch.autograd.grad(TF.layer_norm(source, shape[1:], weight.double()), source, grad.double())
    agree(run(adapter, "_layer_norm_backward", grad, x, mean, rstd, weight), expected, tolerance, 4 * tolerance)


def test_every_float16_becomes_its_float32(adapter: EngineAdapter) -> None:
    bits = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)
    finite = bits[bits.view(torch.float16).isfinite()]
    for values in (bits, finite):
        x = values.view(torch.float16)
        result = adapter.function("_to_copy")(adapter.tensor(x), dtype=adapter.convert(torch.float32))
        assert torch.equal(to_torch(adapter.numpy(result)).nan_to_num(1.5), x.float().nan_to_num(1.5))


def _half_ways(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Numbers exactly between two of float16, and their neighbours in float32."""
    lower = rng.integers(0, 0x7BFF, 20_000).astype(np.uint16)
    middle = (lower.view(np.float16).astype(np.float32) + (lower + 1).view(np.float16).astype(np.float32)) / 2
    return np.concatenate([middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(np.inf))])


@pytest.mark.parametrize("edges", [[], NOT_FINITE, [65519.0, 65520.0, -65536.0, 1e38]])
def test_float32_is_rounded_to_the_nearest_float16(adapter: EngineAdapter, rng: Any, edges: list[float]) -> None:
    spread = rng.standard_normal(40_000) * 10.0 ** rng.uniform(-10, 3.5, 40_000)
    made = np.concatenate([edges, EDGES[:-4], _half_ways(rng), spread]).astype(np.float32)
    x = torch.from_numpy(made * rng.choice([-1, 1], made.size).astype(np.float32))
    result = adapter.function("_to_copy")(adapter.tensor(x), dtype=adapter.convert(torch.float16))
    expected = x.half()
    is_number = ~expected.isnan()
    bits = to_torch(adapter.numpy(result)).view(torch.int16)
    assert torch.equal(bits[is_number], expected.view(torch.int16)[is_number])
    assert to_torch(adapter.numpy(result))[~is_number].isnan().all()
