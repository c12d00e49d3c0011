"""Numbers and operands that make no sense: refused where PyTorch refuses them, and else what PyTorch makes of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from telegrad_protocol.errors import DTypeError, ShapeError, TelegradError

from .adapters import EngineAdapter
from .harness import Comparison, tree_map

X = torch.arange(6.0).reshape(2, 3)
I = torch.tensor([1, 0])
B = I.to(torch.uint8)
NONE = torch.zeros(0)
NAN, INF, HUGE = math.nan, math.inf, 2**62


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def _mine(adapter: EngineAdapter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    return tuple(tree_map(adapter.tensor, adapter.convert, [*args])), tree_map(adapter.tensor, adapter.convert, kwargs)


def _theirs(name: str) -> Any:
    return getattr(torch, name, None) or getattr(torch.nn.functional, name, None) or getattr(torch.Tensor, name)


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((name, (X, 1 + 2j), {}) for name in ("leaky_relu", "celu", "softplus", "softshrink", "hardshrink")),
    ("threshold", (I, NAN, 1), {}), ("threshold", (I, 0, NAN), {}), ("threshold", (I, 0, INF), {}),
    ("threshold", (X, 1 + 2j, 0), {}), ("lerp", (X, X, 1 + 2j), {}), ("normal", (X, torch.tensor(1 + 2j)), {}),
    ("var", (X,), {"correction": 1 + 2j}), ("std_mean", (X,), {"correction": 1 + 2j}),
    *(("constant_pad_nd", (I, (1, 1), value), {}) for value in (NAN, INF, 1 + 2j, 1e20, 2**63)),
    ("constant_pad_nd", (X, (1, 1), 1 + 2j), {}), ("constant_pad_nd", (B, (1, 1), 300), {}),
    ("masked_fill", (I, I > 0, NAN), {}), ("masked_fill", (X, X > 0, 1 + 2j), {}),
    ("masked_fill", (X, X > 0, 1e300), {}),
    ("full_like", (I, INF), {}), ("full_like", (X.half(), 1e10), {}), ("fill_", (I.clone(), NAN), {}),
    ("index_fill", (I, 0, I, NAN), {}), ("index_fill", (X, 0, NONE, 1.0), {}), ("index_copy", (X, 0, NONE, X), {}),
    ("index_select", (X, 0, NONE), {}), ("index_add", (X, 0, NONE, torch.zeros(0, 3)), {}), ("take", (X, NONE), {}),
    ("embedding", (NONE, X), {}), ("embedding", (B, X), {}), ("embedding_renorm_", (X.clone(), NONE, 1.0, 2.0), {}),
    ("cross", (X > 0, X > 0), {}), ("cross", (torch.tensor(1.0), torch.tensor(1.0)), {}),
    ("cross", (torch.tensor(1.0), torch.tensor(1.0)), {"dim": 0}), ("pow", (B, 300), {}),
    *(("arange", bounds, {}) for bounds in ((0, INF, 1), (0, NAN, 1), (0, 1, 0), (0, 1e300, 1e-300), (0, 2, 1 + 2j))),
    ("linspace", (NAN, 1, 3), {"dtype": torch.int64}), ("linspace", (0, INF, 3), {"dtype": torch.int64}),
    ("logspace", (0, NAN, 3), {"dtype": torch.int64}), ("bincount", (I,), {"minlength": -1}), ("diff", (X,), {"n": -1}),
    ("repeat_interleave", (X, -1), {}), ("round", (I,), {"decimals": 400}), ("mse_loss", (X > 0, X > 0), {}),
    ("searchsorted", (X[0], X[0]), {"sorter": torch.tensor([5, 0, 1])}),
    ("searchsorted", (X[0], X[0]), {"sorter": torch.tensor([-1, 0, 1])}),
    ("take_along_dim", (torch.zeros(2, 0), I.reshape(2, 1)), {"dim": 1}),
    ("take_along_dim", (X[0, 0], I[0]), {"dim": 0}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "kwargs"), REFUSED, ids=[f"{name}-{i}" for i, (name, _, _) in enumerate(REFUSED)]
)
def test_what_pytorch_refuses_is_refused(
    adapter: EngineAdapter, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(Exception):  # noqa: B017 - of whatever class: it is PyTorch's
        _theirs(name)(*args, **kwargs)
    args, kwargs = _mine(adapter, args, kwargs)
    with pytest.raises(TelegradError) as caught:
        adapter.function(name)(*args, **kwargs)
    assert name.rstrip("_").removesuffix("_renorm") in str(caught.value) or "normal" in name


TAKEN: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((name, (X, diagonal), {}) for name in ("tril", "triu") for diagonal in (HUGE, -HUGE, 2**63 - 1, -(2**63), 1, -3)),
    *(("round", (X,), {"decimals": decimals}) for decimals in (39, 400, -400, 30)),
    *(("diff", (X,), {"n": n}) for n in (2, 3, 5, 2**40)), ("constant_pad_nd", (B, (1, 1), -1), {}),
    ("constant_pad_nd", (I, (1, 1), 2.7), {}), ("linspace", (NAN, 1, 3), {}), ("linspace", (0, INF, 3), {}),
    ("logspace", (0, 1, 3), {"base": INF}), ("pow", (B, 255), {}),
    *(("embedding_renorm_", (X.clone(), I, 1.0, norm), {}) for norm in (0.0, -2.0, 1e308, NAN, INF, -INF)),
    ("cross", (X[0], X[1]), {"dim": 0}), ("repeat", (torch.zeros(2, 0), 2**40, 1), {}),
    # Sums of whole numbers are exact in any order, also where they cancel.
    ("addbmm", (X, *(torch.randint(-3, 4, size).float() for size in ((100, 2, 4), (100, 4, 3)))),
     {"beta": 2, "alpha": 0.5}),
    ("softplus", (X, 0.0), {}), ("cross_entropy", (NONE, NONE), {"label_smoothing": 0.5}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "kwargs"), TAKEN, ids=[f"{name}-{i}" for i, (name, _, _) in enumerate(TAKEN)])
def test_what_pytorch_takes_gives_the_same(
    adapter: EngineAdapter, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    mine, named = _mine(adapter, args, kwargs)
    found = adapter.function(name)(*mine, **named)
    Comparison(adapter).compare(found, _theirs(name)(*args, **kwargs))


@pytest.mark.parametrize(
    "name", ["_tanh_backward", "_sigmoid_backward", "_gelu_backward", "_silu_backward", "_relu_backward"]
)
def test_a_gradient_of_another_shape_is_refused(adapter: EngineAdapter, name: str) -> None:
    with pytest.raises(ShapeError, match="does not have the shape"):
        adapter.function(name)(adapter.tensor(X), adapter.tensor(X[0]))


@pytest.mark.parametrize("name", ["_softmax_backward_data", "_log_softmax_backward_data"])
def test_gradients_of_softmax_are_floating(adapter: EngineAdapter, name: str) -> None:
    with pytest.raises(DTypeError, match="floating point"):
        adapter.function(name)(adapter.tensor(X), adapter.tensor(X > 0), 0, adapter.convert(torch.float32))


@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (2,), (), (3, 1)])
def test_statistics_that_are_not_of_rows_are_refused(adapter: EngineAdapter, shape: tuple[int, ...]) -> None:
    x, statistic = adapter.tensor(X), adapter.tensor(torch.ones(shape))
    if shape == (1, 1):  # of all elements: a layer over both dimensions
        adapter.function("_layer_norm_backward")(x, x, statistic, statistic, None)
        return
    with pytest.raises(ShapeError, match="statistics"):
        adapter.function("_layer_norm_backward")(x, x, statistic, statistic, None)
    with pytest.raises(ShapeError, match="statistics"):
        adapter.function("_layer_norm_weight_backward")(x, x, statistic, statistic, (3,))
