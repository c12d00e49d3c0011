"""Dropout, attention and padding: what the operator database does not ask, because it is random or not there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from server.engine.random import Generator
from telegrad_protocol.errors import ArgumentError, DTypeError, NotSupportedError, ShapeError
from tests.gpus import ALL_DEVICES

from .adapters import EngineAdapter
from .harness import Comparison


@pytest.fixture(params=ALL_DEVICES)
def adapter(request: pytest.FixtureRequest) -> EngineAdapter:
    made = EngineAdapter(request.param)
    for device in made.backends:
        made.context.generators[device] = Generator(7)
    return made


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_native_dropout_tells_what_it_kept(adapter: EngineAdapter, dtype: torch.dtype) -> None:
    x = torch.rand(50, 40).to(dtype).t() + 1
    output, mask = adapter.functional.native_dropout(adapter.tensor(x), 0.25, True)
    assert output.meta.strides == mask.meta.strides == (1, 40)
    kept = torch.from_numpy(adapter.numpy(mask).copy())
    assert 0.65 < kept.float().mean() < 0.85
    expected = (x.float() * kept / 0.75).to(dtype).float().numpy()
    np.testing.assert_allclose(adapter.numpy(output).astype(np.float32), expected, rtol=1e-6)


def test_equal_seeds_drop_equal_elements(adapter: EngineAdapter) -> None:
    x = adapter.tensor(torch.ones(1000))
    first = adapter.numpy(adapter.functional.dropout(x, 0.5))
    second = adapter.numpy(adapter.functional.dropout(x, 0.5))
    adapter.context.generators[x.device] = Generator(7)
    assert np.array_equal(adapter.numpy(adapter.functional.dropout(x, 0.5)), first)
    assert not np.array_equal(first, second)


def test_dropout_at_its_limits(adapter: EngineAdapter) -> None:
    x = adapter.tensor(torch.tensor([1.0, math.inf]))
    assert adapter.functional.dropout(x, 0.0) is x
    assert adapter.functional.dropout(x, 0.5, False) is x
    assert adapter.numpy(adapter.functional.dropout(adapter.tensor(torch.ones(3)), 1.0)).tolist() == [0.0] * 3
    output, mask = adapter.functional.native_dropout(x, 0.5, False)
    assert adapter.numpy(output).tolist() == [1.0, math.inf]
    assert adapter.numpy(mask).all()
    with pytest.raises(ArgumentError, match=r"dropout: the probability must be between 0 and 1, got 1.5"):
        adapter.functional.dropout(x, 1.5)
    with pytest.raises(DTypeError, match=r"dropout: expected a floating-point or complex tensor, got int64\[2\]"):
        adapter.functional.dropout(adapter.tensor(torch.ones(2).long()))


def test_dropout_differentiates_through_its_mask_twice(adapter: EngineAdapter) -> None:
    x = adapter.tensor(torch.rand(100) + 1, requires_grad=True)
    weight = adapter.tensor(torch.rand(100) + 1, requires_grad=True)
    output, mask = adapter.functional.native_dropout(x, 0.5, True)
    (grad,) = adapter.grad([output], [weight], [x], True)
    np.testing.assert_allclose(adapter.numpy(grad), adapter.numpy(weight) * adapter.numpy(mask) * 2, rtol=1e-6)
    (second,) = adapter.grad([grad], [x], [weight], False)
    np.testing.assert_allclose(adapter.numpy(second), adapter.numpy(x) * adapter.numpy(mask) * 2, rtol=1e-6)


def test_inplace_dropout_writes_into_its_input(adapter: EngineAdapter) -> None:
    x = adapter.tensor(torch.ones(100))
    assert adapter.functional.dropout_(x, 0.5) is x
    assert set(adapter.numpy(x).tolist()) == {0.0, 2.0}
    assert x.storage.version == 1


def test_feature_dropout_drops_whole_channels(adapter: EngineAdapter) -> None:
    found = adapter.numpy(
        adapter.functional.feature_dropout(adapter.tensor(torch.ones(6, 20, 3, 2)), 0.5, True)
    ).reshape(120, 6)
    assert all(len(set(channel)) == 1 for channel in found.tolist())
    assert set(found[:, 0].tolist()) == {0.0, 2.0}
    with pytest.raises(ShapeError, match="at least two dimensions"):
        adapter.functional.feature_dropout(adapter.tensor(torch.ones(3)), 0.5, True)


def test_alpha_dropout_keeps_mean_and_variance(adapter: EngineAdapter) -> None:
    torch.manual_seed(0)
    found = adapter.numpy(adapter.functional.alpha_dropout(adapter.tensor(torch.randn(50000)), 0.3, True))
    assert abs(found.mean()) < 0.03
    assert abs(found.std() - 1) < 0.03


def test_attention_weights_are_dropped(adapter: EngineAdapter) -> None:
    query, value = torch.zeros(1, 1, 4), torch.ones(1, 1000, 1)
    args = map(adapter.tensor, (query, torch.zeros(1, 1000, 4), value))
    found = adapter.numpy(adapter.functional.scaled_dot_product_attention(*args, None, 0.5)).item()
    kept = found * 1000 / 2
    assert abs(kept - round(kept)) < 1e-2
    assert 400 < kept < 600


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool], ids=str)
def test_rows_that_see_nothing_attend_to_nothing(adapter: EngineAdapter, dtype: torch.dtype) -> None:
    seen = torch.tensor([[True, False], [False, False]])
    mask = seen if dtype is torch.bool else torch.zeros(2, 2).masked_fill(~seen, -math.inf)
    q, k, v = (adapter.tensor(torch.rand(2, 3), requires_grad=True) for _ in range(3))
    found = adapter.functional.scaled_dot_product_attention(q, k, v, adapter.tensor(mask))
    assert adapter.numpy(found)[1].tolist() == [0.0] * 3
    for grad in adapter.grad([found], [adapter.tensor(torch.ones(2, 3))], [q, k, v], False):
        assert np.isfinite(adapter.numpy(grad)).all()


def test_query_heads_share_keys_and_values(adapter: EngineAdapter) -> None:
    torch.manual_seed(0)
    args = [torch.randn(shape, requires_grad=True) for shape in ((2, 6, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3))]

    def theirs(q: Any, k: Any, v: Any, **options: Any) -> Any:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

    for options in ({}, {"is_causal": True}, {"scale": 0.3}):
        Comparison(adapter).run(
            theirs, adapter.functional.scaled_dot_product_attention, args, {"enable_gqa": True, **options}
        )


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ("scaled_dot_product_attention", (torch.ones(2, 3), torch.ones(2, 4), torch.ones(2, 3)), {}, ShapeError,
    "do not go together"),
    ("scaled_dot_product_attention", (torch.ones(2, 3),) * 3, {"attn_mask": torch.ones(2, 2), "is_causal": True},
    ArgumentError, "either"),
    ("scaled_dot_product_attention", (torch.ones(2, 3),) * 3, {"attn_mask": torch.ones(3, 2)}, ShapeError,
    "do not broadcast|does not expand"),
    ("scaled_dot_product_attention", (torch.ones(2, 3),) * 3, {"attn_mask": torch.ones(2, 2).long()}, DTypeError,
    "mask must be bool or float32"),
    ("scaled_dot_product_attention", (torch.ones(3, 2, 3), *(torch.ones(2, 2, 3),) * 2), {"enable_gqa": True},
    ShapeError, "does not divide"),
    ("glu", (torch.ones(2, 3),), {}, ShapeError, r"glu: dimension 1 of float32\[2,3\] must be even"),
    ("prelu", (torch.ones(2, 3), torch.ones(2)), {}, ShapeError, "input channel size. Found 2 and 3"),
    ("pad", (torch.ones(2, 3), (1,)), {}, ShapeError, "pad: paddings come in pairs"),
    ("pad", (torch.ones(2, 3), (3, 0), "reflect"), {}, ShapeError, "a reflection of 3 must be less than dimension 1"),
    ("pad", (torch.ones(2, 3), (4, 0), "circular"), {}, ShapeError, "more than once"),
    ("pad", (torch.ones(2, 3), (1, 1), "mirror"), {}, NotSupportedError, "unknown mode 'mirror'"),
    ("pad", (torch.ones(2, 3), (-4, 0)), {}, ShapeError, "takes more from"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "kind", "message"), REFUSED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_what_does_not_fit_is_refused(
    adapter: EngineAdapter,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    kind: type[Exception],
    message: str,
) -> None:
    def convert(thing: Any) -> Any:
        return adapter.tensor(thing) if isinstance(thing, torch.Tensor) else thing

    with pytest.raises(kind, match=message):
        adapter.function(name)(*map(convert, args), **{k: convert(v) for k, v in kwargs.items()})
