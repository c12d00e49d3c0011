"""Row kernels of the GPU against float64: softmax, losses over classes, normalization, of all lengths."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from .adapters import TORCH_TO_OURS, EngineAdapter, to_torch
from .harness import flatten
from .norm_bounds import layer_norm_bounds

pytestmark = pytest.mark.gpu

LENGTHS = [1, 2, 7, 10, 32, 33, 100, 256, 1000, 1024, 1025, 4096, 4099, 8192, 16384, 20000, 40001, 70000]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-11, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@pytest.fixture(scope="module")
def engine(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


@pytest.fixture(autouse=True)
def activated(engine: EngineAdapter) -> None:
    engine.activate()


def rows(length: int, dtype: torch.dtype, count: int = 5, spread: float = 3.0) -> torch.Tensor:
    return (torch.randn(count, length, dtype=torch.float64) * spread).to(dtype)


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements, one element behind an aligned address."""
    holder = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    view = holder[1:].view(tensor.shape)
    view.copy_(tensor)
    return view


def compare(engine: EngineAdapter, found: Any, expected: Any, dtype: torch.dtype, slack: float = 1.0) -> None:
    for mine, reference in zip(flatten(found), flatten(expected), strict=True):
        result = to_torch(engine.numpy(mine)).double()
        tolerance = slack * TOLERANCES[dtype]
        scale = max(1.0, float(torch.nan_to_num(reference.abs(), 0, 0, 0).max())) if reference.numel() else 1.0
        torch.testing.assert_close(result, reference, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def differentiated(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> tuple[Any, list[torch.Tensor]]:
    """The result in float64, and the gradients of its inputs for ones of random sign."""
    wide = [x.double().requires_grad_() if x.is_floating_point() else x for x in inputs]
    result = function(*wide)
    grad = torch.randn_like(result)
    leaves = [x for x in wide if x.requires_grad]
    return (result.detach(), grad), [g.detach() for g in torch.autograd.grad(result, leaves, grad)]


def ours(
    engine: EngineAdapter, function: Callable[..., Any], grad: torch.Tensor, *inputs: torch.Tensor
) -> tuple[Any, list[Any]]:
    values = [engine.tensor(x, x.is_floating_point()) for x in inputs]
    result = function(*values)
    leaves = [v for v, x in zip(values, inputs, strict=True) if x.is_floating_point()]
    return result, engine.grad([result], [engine.tensor(grad.to(OUT[result.dtype]))], leaves, False)


OUT = {mine: theirs for theirs, mine in TORCH_TO_OURS.items()}
IMAGES = [(4, 33, 9, 7), (8, 64, 32, 32)]


def compare_within(engine: EngineAdapter, found: Any, expected: Any, bounds: Any) -> None:
    """Each element is within its own bound."""
    for mine, reference, bound in zip(flatten(found), flatten(expected), flatten(bounds), strict=True):
        error = (to_torch(engine.numpy(mine)).double() - reference).abs()
        share = float((error / bound).nan_to_num(0).max())
        assert bool((error <= bound).all()), f"an error is {share:.3g} times its bound"


def check(
    engine: EngineAdapter, mine: Callable[..., Any], theirs: Callable[..., torch.Tensor], *inputs: torch.Tensor,
    slack: float = 1.0, bounds: Callable[..., Any] | None = None,
) -> None:  # fmt: skip
    """Result and gradients, on aligned and on misaligned inputs; and that a second run gives the same bits.

    ``bounds`` returns how far the elements of the result and of gradients may be off, for a gradient of the result.
    """
    dtype = inputs[0].dtype
    (expected, grad), gradients = differentiated(theirs, *inputs)
    grad = grad.to(dtype).double() if dtype in (torch.float16, torch.bfloat16) else grad
    wide = [x.double().requires_grad_() if x.is_floating_point() else x for x in inputs]
    leaves = [x for x in wide if x.requires_grad]
    gradients = list(torch.autograd.grad(theirs(*wide), leaves, grad))
    for change in (lambda x: x, misaligned):
        found, found_gradients = ours(engine, mine, grad, *map(change, inputs))
        if bounds is not None:
            compare_within(engine, [found, *found_gradients], [expected, *gradients], bounds(grad))
            continue
        compare(engine, found, expected, dtype, slack)
        compare(engine, found_gradients, gradients, dtype, slack)
    again, gradients_again = ours(engine, mine, grad, *map(misaligned, inputs))
    for first, second in zip([found, *found_gradients], [again, *gradients_again], strict=True):
        np.testing.assert_array_equal(engine.numpy(first).tobytes(), engine.numpy(second).tobytes())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("length", LENGTHS)
def test_softmax_of_rows(engine: EngineAdapter, length: int, name: str, dtype: torch.dtype) -> None:
    def mine(x: Any) -> Any:
        return getattr(engine.functional, name)(x, -1)

    check(engine, mine, lambda x: getattr(torch, name)(x, -1), rows(length, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize(("shape", "dim"), [((3, 5, 7), 1), ((300, 33), 0), ((2, 100, 65), 1), ((4, 3, 2, 2), 0)])
def test_softmax_of_columns(
    engine: EngineAdapter, shape: tuple[int, ...], dim: int, name: str, dtype: torch.dtype
) -> None:
    def mine(x: Any) -> Any:
        return getattr(engine.functional, name)(x, dim)

    check(engine, mine, lambda x: getattr(torch, name)(x, dim), torch.randn(shape).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [3, 200, 5000, 70001])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_what_is_not_finite(engine: EngineAdapter, name: str, length: int, dtype: torch.dtype) -> None:
    x = rows(length, dtype, 6)
    x[0, length // 2] = math.nan
    x[1] = -math.inf
    x[2, 0] = -math.inf
    x[3, length - 1] = math.inf
    x[4, : length - 1] = -math.inf
    for dim, tensor in ((1, x), (0, x.t().contiguous())):
        expected = getattr(torch, name)(tensor.double(), dim)
        compare(engine, getattr(engine.functional, name)(engine.tensor(tensor), dim), expected, dtype)


def test_softmax_converts_before_it_computes(engine: EngineAdapter) -> None:
    numbers = torch.randint(-5, 5, (4, 77))
    for source in (numbers, numbers.to(torch.int32), numbers.double(), numbers.to(torch.bfloat16)):
        found = engine.functional.softmax(engine.tensor(source), 1, TORCH_TO_OURS[torch.float32])
        compare(engine, found, torch.softmax(numbers.double(), 1), torch.float32)


def test_softmax_of_strided_and_of_empty_operands(engine: EngineAdapter) -> None:
    x = torch.randn(6, 50, 4).transpose(0, 1)
    compare(engine, engine.functional.softmax(engine.tensor(x), -1), torch.softmax(x.double(), -1), torch.float32)
    for shape in ((0, 5), (5, 0), (0,)):
        assert engine.functional.softmax(engine.tensor(torch.empty(shape)), -1).shape == shape
    compare(
        engine,
        engine.functional.softmax(engine.tensor(torch.tensor(3.0)), 0),
        torch.tensor(1.0).double(),
        torch.float32,
    )


@pytest.mark.slow
def test_softmax_beyond_32_bits(engine: EngineAdapter) -> None:
    count, length = (1 << 21) + 3, 1025
    x = engine.functional.zeros((count, length), dtype=TORCH_TO_OURS[torch.bfloat16], device=engine.device)
    found = engine.functional.softmax(x, -1)
    for row in (0, count // 2, count - 1):
        part = engine.functional.select(found, 0, row)
        compare(engine, part, torch.full((length,), 1 / length).double(), torch.bfloat16)


CLASSES = [2, 10, 33, 1000, 1025, 50257]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [*((6, c) for c in CLASSES), (2, 21, 9, 5), (17,)], ids=str)
def test_cross_entropy(
    engine: EngineAdapter, shape: tuple[int, ...], weighted: bool, smoothing: float, reduction: str, dtype: torch.dtype
) -> None:
    classes = shape[0] if len(shape) == 1 else shape[1]
    target = torch.randint(0, classes, (*shape[:1], *shape[2:]) if len(shape) > 1 else ())
    if target.ndim:
        target.view(-1)[0] = -100
    weight = torch.rand(classes).to(dtype) + 0.5 if weighted else None
    mine_target, mine_weight = engine.tensor(target), None if weight is None else engine.tensor(weight)

    def mine(x: Any) -> Any:
        return engine.functional.cross_entropy(
            x, mine_target, mine_weight, reduction=reduction, label_smoothing=smoothing
        )

    def theirs(x: torch.Tensor) -> torch.Tensor:
        wide = None if weight is None else weight.double()
        return functional.cross_entropy(x, target, wide, reduction=reduction, label_smoothing=smoothing)

    check(engine, mine, theirs, (torch.randn(shape, dtype=torch.float64) * 3).to(dtype))


@pytest.mark.parametrize("shape", [(6, 10), (2, 7, 3, 5), (9,)], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nll_loss(engine: EngineAdapter, shape: tuple[int, ...], reduction: str, dtype: torch.dtype) -> None:
    classes = shape[0] if len(shape) == 1 else shape[1]
    target = torch.randint(0, classes, (*shape[:1], *shape[2:]) if len(shape) > 1 else ())
    if target.ndim:
        target.view(-1)[0] = 1
    weight = torch.rand(classes).to(dtype) + 0.5
    mine_target, mine_weight = engine.tensor(target), engine.tensor(weight)

    def mine(x: Any) -> Any:
        return engine.functional.nll_loss(x, mine_target, mine_weight, ignore_index=1, reduction=reduction)

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return functional.nll_loss(x, target, weight.double(), ignore_index=1, reduction=reduction)

    check(engine, mine, theirs, torch.randn(shape, dtype=torch.float64).to(dtype))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("offset", [0.0, 50.0, -300.0])
@pytest.mark.parametrize("shape", [(400, 10), (60, 1025), (3, 12, 11, 7)], ids=str)
def test_the_loss_of_a_sure_answer_keeps_its_digits(
    engine: EngineAdapter, shape: tuple[int, ...], offset: float, smoothing: float
) -> None:
    x, target = torch.randn(shape) + offset, torch.randint(0, shape[1], (shape[0], *shape[2:]))
    x = x.scatter_add(1, target.unsqueeze(1), torch.full(shape, 12.0))
    options: dict[str, Any] = {"reduction": "none", "label_smoothing": smoothing}
    found = engine.functional.cross_entropy(engine.tensor(x), engine.tensor(target), **options)
    expected = functional.cross_entropy(x.double(), target, **options)
    torch.testing.assert_close(to_torch(engine.numpy(found)).double(), expected, rtol=1e-6, atol=1e-6)


def test_cross_entropy_of_many_small_rows_and_of_none(engine: EngineAdapter) -> None:
    x, target = torch.randn(300_001, 10), torch.randint(0, 10, (300_001,))
    found = engine.functional.cross_entropy(engine.tensor(x), engine.tensor(target))
    compare(engine, found, functional.cross_entropy(x.double(), target), torch.float32)
    empty = engine.functional.cross_entropy(engine.tensor(x[:0]), engine.tensor(target[:0]))
    assert math.isnan(float(engine.numpy(empty)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("length", [length for length in LENGTHS if length > 1])
def test_layer_norm(engine: EngineAdapter, length: int, affine: bool, dtype: torch.dtype) -> None:
    """Rows whose elements are nearly equal, which short ones may be, are sensitive to each rounding."""
    parameters = [torch.randn(length).to(dtype), torch.randn(length).to(dtype)] if affine else []

    def mine(x: Any, *parameters: Any) -> Any:
        return engine.functional.layer_norm(x, (length,), *parameters)

    def theirs(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (length,), *parameters)

    x = rows(length, dtype, 37) + 1

    def bounds(grad: torch.Tensor) -> Any:
        result, gradients = layer_norm_bounds(x.double(), grad, parameters, dtype)
        return [result, *gradients]

    check(engine, mine, theirs, x, *parameters, bounds=bounds)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [2, 10, 33, 768, 4096, 20000, 70000])
def test_rms_norm(engine: EngineAdapter, length: int, dtype: torch.dtype) -> None:
    def mine(x: Any, weight: Any) -> Any:
        return engine.functional.rms_norm(x, (length,), weight, 1e-6)

    def theirs(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (length,), weight, 1e-6)

    check(engine, mine, theirs, rows(length, dtype, 37), torch.randn(length).to(dtype), slack=4)


def test_layer_norm_with_parameters_of_another_type(engine: EngineAdapter) -> None:
    x, weight, bias = torch.randn(50, 768).bfloat16(), torch.randn(768), torch.randn(768)
    (expected, grad), _ = differentiated(lambda *a: functional.layer_norm(a[0], (768,), *a[1:]), x, weight, bias)
    found, gradients = ours(
        engine, lambda *a: engine.functional.layer_norm(a[0], (768,), *a[1:]), grad, x, weight, bias
    )
    compare(engine, found, expected, torch.bfloat16)
    assert [g.dtype for g in gradients] == [TORCH_TO_OURS[t] for t in (torch.bfloat16, torch.float32, torch.float32)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("shape", "innermost"),
    [*[(shape, False) for shape in ((9, 5), (300, 64), (3, 7, 11), (2, 3, 2, 4, 5), *IMAGES)],
     *[(shape, True) for shape in IMAGES]], ids=str,
)  # fmt: skip
def test_batch_norm(engine: EngineAdapter, shape: tuple[int, ...], innermost: bool, dtype: torch.dtype) -> None:
    x = (torch.randn(shape, dtype=torch.float64) * 2 + 30).to(dtype)
    weight, bias = (torch.randn(shape[1]).to(dtype) for _ in range(2))

    def mine(x: Any, weight: Any, bias: Any) -> Any:
        x = engine.functional._in_layout(x, images.stride()) if innermost else x
        return engine.functional.batch_norm(x, None, None, weight, bias, True)

    images = x.to(memory_format=torch.channels_last) if innermost else x

    def theirs(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.batch_norm(x, None, None, weight, bias, True)

    check(engine, mine, theirs, x, weight, bias, slack=4)


@pytest.mark.parametrize("kept", ["both", "mean", "var"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batch_norm_updates_running_statistics(engine: EngineAdapter, dtype: torch.dtype, kept: str) -> None:
    x = (torch.randn(6, 700, 4) * 3 + 1).to(dtype)
    mean, var = torch.randn(700).to(dtype), torch.rand(700).to(dtype)
    mine = [engine.tensor(mean) if kept != "var" else None, engine.tensor(var) if kept != "mean" else None]
    engine.functional.batch_norm(engine.tensor(x), *mine, None, None, True, 0.3)
    wide, expected = x.double(), (mean.double(), var.double())
    functional.batch_norm(wide, *expected, None, None, True, 0.3)
    found = [value for value in mine if value is not None]
    compare(engine, found, [e for e, value in zip(expected, mine, strict=True) if value is not None], dtype)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "batch_norm", "cross_entropy", "log_softmax"])
def test_second_gradients(engine: EngineAdapter, name: str) -> None:
    x, weight, bias = torch.randn(4, 9).double(), torch.randn(9).double(), torch.randn(9).double()
    target = torch.tensor([0, 3, 8, -100])
    calls: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[torch.Tensor]]] = {
        "layer_norm": (
            lambda F, x, w, b: F.layer_norm(x, (9,), w, b),
            lambda x, w, b: functional.layer_norm(x, (9,), w, b), [x, weight, bias],
        ),
        "rms_norm": (
            lambda F, x, w: F.rms_norm(x, (9,), w, 1e-3),
            lambda x, w: functional.rms_norm(x, (9,), w, 1e-3), [x, weight],
        ),
        "batch_norm": (
            lambda F, x, w, b: F.batch_norm(x, None, None, w, b, True),
            lambda x, w, b: functional.batch_norm(x, None, None, w, b, True), [x, weight, bias],
        ),
        "cross_entropy": (
            lambda F, x: F.cross_entropy(x, engine.tensor(target), engine.tensor(weight.abs()), label_smoothing=0.2),
            lambda x: functional.cross_entropy(x, target, weight.abs(), label_smoothing=0.2), [x],
        ),
        "log_softmax": (lambda F, x: F.log_softmax(x, 1), lambda x: torch.log_softmax(x, 1), [x]),
    }  # fmt: skip
    mine, theirs, inputs = calls[name]
    leaves = [i.clone().requires_grad_() for i in inputs]
    result = theirs(*leaves)
    grad = torch.randn_like(result).requires_grad_()
    first = torch.autograd.grad(result, leaves, grad, create_graph=True)
    directions = [torch.randn_like(f) for f in first]
    second = torch.autograd.grad(first, [*leaves, grad], directions, allow_unused=True)
    values = [engine.tensor(i, True) for i in inputs]
    my_grad = engine.tensor(grad.detach(), True)
    my_first = engine.grad([mine(engine.functional, *values)], [my_grad], values, True)
    my_second = engine.grad(my_first, [engine.tensor(d) for d in directions], [*values, my_grad], False)
    for found, expected in zip([*my_first, *my_second], [*first, *second], strict=True):
        if expected is not None:
            assert found is not None
            compare(engine, found, expected.detach(), torch.float64)
