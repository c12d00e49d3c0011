"""Reductions, softmax, sorting, losses and normalization where PyTorch's database is silent.

Sizes beyond a cache block, ties, NaN, empty tensors, other layouts, and what errors say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

from telegrad_protocol.errors import (
    ArgumentError,
    ArgumentTypeError,
    DimensionError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
)  # fmt: skip

from .adapters import EngineAdapter
from .harness import Comparison, assert_close

SHAPES = [(3, 5000), (700, 130), (1, 1), (4099, 47), (2, 3, 4096), (130, 10), (64, 48)]
"""Rows longer than one product sums, more rows than one block holds, and both sides of the narrow limit."""


@pytest.fixture
def adapter() -> EngineAdapter:
    torch.manual_seed(7)
    return EngineAdapter()


def compare(adapter: EngineAdapter, theirs: Any, name: str, *args: Any, second: bool = False, **kwargs: Any) -> None:
    Comparison(adapter).run(theirs, adapter.function(name), args, kwargs, second=second)


def against_float64(adapter: EngineAdapter, theirs: Any, name: str, x: torch.Tensor, *args: Any) -> None:
    """Compare a float32 result with PyTorch's of the same numbers in float64."""
    found = adapter.function(name)(adapter.tensor(x), *args)
    expected = theirs(x.double(), *args).float()
    assert_close(torch.from_numpy(adapter.numpy(found).copy()), expected, name)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dim", [None, 0, -1])
def test_sums_of_long_rows_are_as_exact_as_those_of_short_ones(adapter: EngineAdapter, shape: Any, dim: Any) -> None:
    x = torch.rand(shape)
    against_float64(adapter, torch.sum, "sum", x, *(() if dim is None else (dim,)))
    against_float64(adapter, torch.mean, "mean", x, *(() if dim is None else (dim,)))


def test_a_sum_of_ten_million_equal_numbers_stays_close(adapter: EngineAdapter) -> None:
    found = adapter.numpy(adapter.function("sum")(adapter.tensor(torch.full((10_000_000,), 0.1))))
    assert abs(float(found) - 1_000_000.0149) < 5.0  # added one by one they are 1,087,937


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, -1])
def test_softmax_over_blocks_agrees(adapter: EngineAdapter, shape: Any, name: str, dim: int) -> None:
    x = (torch.randn(shape) * 3).requires_grad_()
    compare(adapter, getattr(torch, name), name, x, dim)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_neither_overflows_nor_forgets_nan(adapter: EngineAdapter, name: str) -> None:
    x = torch.tensor([[1e30, -1e30, 3.0], [float("-inf")] * 3, [float("nan"), 0, 1], [float("inf"), 0, 1]])
    compare(adapter, getattr(torch, name), name, x, 1)


def test_softmax_refuses_integers_and_names_the_remedy(adapter: EngineAdapter) -> None:
    with pytest.raises(DTypeError, match=r"softmax: expected a floating point type, got int64\[3\]; convert it"):
        adapter.function("softmax")(adapter.tensor(torch.arange(3)), 0)


@pytest.mark.parametrize("shape", [(700, 130), (3, 5000), (5, 6, 48)])
def test_layer_norm_over_blocks_agrees_with_its_gradients(adapter: EngineAdapter, shape: Any) -> None:
    x, weight, bias = torch.randn(shape), torch.randn(shape[-1]), torch.randn(shape[-1])
    leaves = [t.requires_grad_() for t in (x, weight, bias)]
    expected = TF.layer_norm(x.double(), shape[-1:], weight.double(), bias.double())
    cotangent = torch.randn(shape)
    wanted = torch.autograd.grad(expected, leaves, cotangent.double())
    mine = [adapter.tensor(t, True) for t in leaves]
    found = adapter.function("layer_norm")(mine[0], shape[-1:], *mine[1:])
    assert_close(torch.from_numpy(adapter.numpy(found).copy()), expected.float(), "layer_norm")
    gradients = adapter.grad([found], [adapter.tensor(cotangent)], mine, False)
    for gradient, reference in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(torch.from_numpy(adapter.numpy(gradient).copy()), reference, rtol=1e-4, atol=2e-4)


def test_layer_norm_of_several_dimensions_has_second_gradients(adapter: EngineAdapter) -> None:
    x, weight, bias = (torch.randn(s, dtype=torch.float64).requires_grad_() for s in ((5, 1, 4), (1, 4), (1, 4)))
    compare(adapter, TF.layer_norm, "layer_norm", x, (1, 4), weight, bias, second=True)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignore_index", [-100, 2])
@pytest.mark.parametrize("shape", [(128, 10), (600, 100), (3, 4)])
def test_cross_entropy_of_a_matrix_agrees_twice_differentiated(
    adapter: EngineAdapter, reduction: str, ignore_index: int, shape: Any
) -> None:
    x = torch.randn(shape, dtype=torch.float64).requires_grad_()
    target = torch.randint(0, shape[1], shape[:1])
    target[0] = ignore_index
    options = {"reduction": reduction, "ignore_index": ignore_index}
    compare(adapter, TF.cross_entropy, "cross_entropy", x, target, second=True, **options)


def test_cross_entropy_keeps_precision_for_large_logits(adapter: EngineAdapter) -> None:
    x, target = torch.tensor([[1000.0, 993.0, 0.0]] * 2), torch.tensor([0, 1])
    options = {"reduction": "none"}
    found = adapter.numpy(adapter.function("cross_entropy")(adapter.tensor(x), adapter.tensor(target), **options))
    np.testing.assert_allclose(found, TF.cross_entropy(x.double(), target, **options).numpy(), rtol=1e-4)


@pytest.mark.parametrize("bad", [10, -1, 1 << 40])
@pytest.mark.parametrize("shape", [(4, 10), (4, 10, 2), (10,)])
def test_a_class_out_of_range_raises_index_error(adapter: EngineAdapter, bad: int, shape: Any) -> None:
    target = torch.full((shape[0], *shape[2:]) if len(shape) > 1 else (), bad)
    for name in ("cross_entropy", "nll_loss"):
        with pytest.raises(IndexOutOfRangeError, match=f"index {bad} is out of range for 10 classes"):
            adapter.function(name)(adapter.tensor(torch.randn(shape)), adapter.tensor(target))


def test_losses_say_what_does_not_fit(adapter: EngineAdapter) -> None:
    x, target = adapter.tensor(torch.randn(4, 3)), adapter.tensor(torch.zeros(5, dtype=torch.int64))
    with pytest.raises(ArgumentError, match=r"cross_entropy: target int64\[5\] must have the shape \[4\] for input"):
        adapter.function("cross_entropy")(x, target)
    with pytest.raises(ArgumentError, match="mse_loss: avg is not a valid value for reduction"):
        adapter.function("mse_loss")(x, x, reduction="avg")
    with pytest.raises(ArgumentError, match="all elements of input should be between 0 and 1"):
        adapter.function("binary_cross_entropy")(*(adapter.tensor(torch.tensor([1.5])) for _ in range(2)))


def test_former_names_of_reduction_still_count(adapter: EngineAdapter) -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    found = adapter.function("mse_loss")(adapter.tensor(x), adapter.tensor(y), size_average=False)
    Comparison(adapter).compare(found, TF.mse_loss(x, y, reduction="sum"))


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin"])
def test_the_gradient_of_an_extremum_is_shared_by_its_ties(adapter: EngineAdapter, name: str) -> None:
    x = torch.tensor([[2.0, 1.0, 2.0], [1.0, 2.0, 1.0]]).requires_grad_()
    compare(adapter, getattr(torch, name), name, x)


@pytest.mark.parametrize("name", ["max", "min"])
def test_an_extremum_along_a_dimension_gives_its_gradient_to_one_element(adapter: EngineAdapter, name: str) -> None:
    x = torch.tensor([[2.0, 1.0, 2.0], [1.0, 2.0, 1.0]]).requires_grad_()
    compare(adapter, lambda t, d: tuple(getattr(torch, name)(t, d)), name, x, 1)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "sort", "median", "cummax", "topk", "amax"])
def test_nan_counts_as_the_largest_and_is_never_lost(adapter: EngineAdapter, name: str) -> None:
    x = torch.tensor([[1.0, float("nan"), 3.0, float("-inf")], [float("inf"), 2.0, 5.0, -1.0]])
    args = {"sort": (1, True), "topk": (2, 1), "argmax": (), "argmin": ()}.get(name, (1,))
    compare(adapter, getattr(torch, name), name, x, *args)


@pytest.mark.parametrize("name", ["max", "min", "amax", "argmax", "aminmax", "median"])
@pytest.mark.parametrize("dim", [None, 1])
def test_choosing_among_no_elements_is_refused_as_in_pytorch(adapter: EngineAdapter, name: str, dim: Any) -> None:
    x, options = torch.empty(2, 0), {} if dim is None else {"dim": dim}
    try:
        expected = getattr(torch, name)(x, **options)
    except (RuntimeError, IndexError) as refusal:
        with pytest.raises(DimensionError if isinstance(refusal, IndexError) else ShapeError, match=name):
            adapter.function(name)(adapter.tensor(x), **options)
    else:
        Comparison(adapter).compare(adapter.function(name)(adapter.tensor(x), **options), expected)


def test_unbiased_is_told_from_a_dimension(adapter: EngineAdapter) -> None:
    x = torch.randn(3, 4)
    for args in ((), (True,), (False,), (0,), (0, False), ((0, 1), True, True)):
        compare(adapter, torch.var, "var", x, *args)
        compare(adapter, torch.std_mean, "std_mean", x, *args)
    with pytest.raises(ArgumentTypeError):
        adapter.function("var")(adapter.tensor(x), "rows")


def test_a_mean_of_integers_is_refused(adapter: EngineAdapter) -> None:
    with pytest.raises(DTypeError, match=r"mean: .*could not infer output dtype.*Got: int64, with int64\[3\]"):
        adapter.function("mean")(adapter.tensor(torch.arange(3)))


@pytest.mark.parametrize("zeros", [[], [1], [0, 3], [0, 1, 2, 3]])
@pytest.mark.parametrize("name", ["prod", "cumprod"])
def test_products_have_exact_second_gradients_at_zeros(adapter: EngineAdapter, zeros: list[int], name: str) -> None:
    x = torch.randn(4, 3, dtype=torch.float64)
    x[zeros] = 0
    compare(adapter, getattr(torch, name), name, x.requires_grad_(), 0, second=True)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32, torch.bfloat16])
def test_a_stable_sort_keeps_the_order_of_equals(adapter: EngineAdapter, descending: bool, dtype: Any) -> None:
    x = torch.randint(0, 3, (50, 7)).to(dtype).t()
    compare(adapter, torch.sort, "sort", x, dim=0, descending=descending, stable=True)
    compare(adapter, torch.argsort, "argsort", x, dim=-1, descending=descending, stable=True)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [1, 5, 60])
def test_topk_among_ties_finds_the_best_and_where_they_are(adapter: EngineAdapter, largest: bool, k: int) -> None:
    x = torch.randint(0, 9, (6, 100))
    values, indices = (adapter.numpy(r) for r in adapter.function("topk")(adapter.tensor(x), k, 1, largest))
    np.testing.assert_array_equal(values, torch.topk(x, k, 1, largest).values.numpy())
    np.testing.assert_array_equal(np.take_along_axis(x.numpy(), indices, 1), values)
    assert all(len(set(row)) == k for row in indices.tolist())


@pytest.mark.parametrize("layout", ["transposed", "strided", "expanded"])
@pytest.mark.parametrize("name", ["sum", "softmax", "log_softmax", "amax", "cumsum", "var", "logsumexp", "norm"])
def test_any_layout_gives_the_same_result(adapter: EngineAdapter, layout: str, name: str) -> None:
    base = torch.randn(60, 80)
    x = {"transposed": base.t(), "strided": base[::2, 1::3], "expanded": base[:1].expand(60, 80)}[layout]
    args = (2, 0) if name == "norm" else (0,)
    compare(adapter, getattr(torch, name), name, x.detach().requires_grad_(), *args)


def test_batch_norm_updates_the_running_statistics(adapter: EngineAdapter) -> None:
    x, mean, var = torch.randn(8, 3, 2), torch.zeros(3), torch.ones(3)
    mine = [adapter.tensor(t) for t in (x, mean.clone(), var.clone())]
    found = adapter.function("batch_norm")(*mine, training=True, momentum=0.3)
    Comparison(adapter).compare(found, TF.batch_norm(x, mean, var, training=True, momentum=0.3))
    Comparison(adapter).compare(mine[1], mean)
    Comparison(adapter).compare(mine[2], var)
