"""Functions under the dispatcher's names, and what half precision rounds once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close


def _both(tg: Any, *shape: int, dtype: str = "float64", requires_grad: bool = True) -> tuple[torch.Tensor, Any]:
    theirs = torch.randn(*shape, dtype=torch.float64)
    ours = tg.tensor(theirs.numpy()).to(getattr(tg, dtype))
    return theirs.to(getattr(torch, dtype)).requires_grad_(requires_grad), ours.requires_grad_(requires_grad)


def _same(ours: Any, theirs: torch.Tensor, **tolerance: float) -> None:
    assert (tuple(ours.shape), str(ours.dtype).split(".")[1]) == (tuple(theirs.shape), str(theirs.dtype).split(".")[1])
    assert_close(torch.from_numpy(np.array(ours.detach().double().numpy())), theirs.detach().double(), **tolerance)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("name", ["layer", "group", "batch in training", "batch"])
def test_native_normalizations_return_their_statistics(tg: Any, name: str, dtype: str, seed: int) -> None:
    torch.manual_seed(seed)
    x, own_x = _both(tg, 3, 4, 5, dtype=dtype)
    w, own_w = _both(tg, 5 if name == "layer" else 4, dtype=dtype)
    means, own_means = _both(tg, 4, dtype=dtype, requires_grad=False)
    scales, own_scales = torch.ones_like(means), tg.ones_like(own_means)

    def call(library: Any, x: Any, w: Any, mean: Any, var: Any) -> Any:
        if name == "layer":
            return library.native_layer_norm(x, [5], w, None, 1e-5)
        if name == "group":
            return library.native_group_norm(x, w, None, 3, 4, 5, 2, 1e-5)
        return library.native_batch_norm(x, w, None, mean, var, name != "batch", 0.3, 1e-5)

    theirs, ours = call(torch, x, w, means, scales), call(tg, own_x, own_w, own_means, own_scales)
    coarse = {"rtol": 0.02, "atol": 0.02} if dtype == "bfloat16" else {"rtol": 1e-9, "atol": 1e-9}
    for mine, other in zip((*ours, own_means, own_scales), (*theirs, means, scales), strict=True):
        _same(mine, other, **coarse)
    assert [t.requires_grad for t in ours] == [t.requires_grad for t in theirs]
    if dtype == "float64":
        for library, results in ((torch, theirs), (tg, ours)):
            library.cat([(r * r).reshape(-1) for r in results if r.requires_grad]).sum().backward()
        _same(own_x.grad, x.grad)
        _same(own_w.grad, w.grad)


def test_operators_have_the_names_of_the_dispatcher(tg: Any, seed: int) -> None:
    torch.manual_seed(seed)
    x, own_x = _both(tg, 2, 3, 6, 6)
    maxima, places = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    own_maxima, own_places = tg.nn.functional.max_pool2d(own_x, 2, return_indices=True)
    window = ([2, 2], [2, 2], [0, 0], [1, 1], False)
    table, own_table = _both(tg, 5, 3)

    def results(aten: Any, x: Any, maxima: Any, places: Any, table: Any, library: Any) -> list[Any]:
        return [
            aten.add.Tensor(x, x, alpha=2), aten.mm(table, table.t()), aten.slice.Tensor(x, 2, 1, -1, 2),
            aten.max_pool2d_with_indices_backward.default(maxima, x, *window, places),
            aten.native_dropout_backward.default(x, x > 0, 2.0), aten.embedding.default(table, places[0, 0] % 5),
            aten.silu.default(x), aten.clone(x), aten.linalg_vector_norm.default(x),
            library.grid_sampler_2d(x, x.permute(0, 2, 3, 1)[..., :2].tanh(), 0, 1, True),
        ]  # fmt: skip

    theirs = results(torch.ops.aten, x, maxima, places, table, torch)
    ours = results(tg.ops.aten, own_x, own_maxima, own_places, own_table, tg)
    for mine, other in zip(ours, theirs, strict=True):
        _same(mine, other)
    with pytest.raises(AttributeError, match=r"no attribute .no_such_thing."):
        getattr(tg.ops.aten, "no_such_thing")  # noqa: B009


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_in_half_precision_are_renormalized_in_the_table(tg: Any, dtype: str, seed: int) -> None:
    torch.manual_seed(seed)
    table, own_table = _both(tg, 6, 4, dtype=dtype, requires_grad=False)
    places = torch.tensor([[0, 2], [5, 2]])
    for name in ("embedding", "embedding_bag"):
        theirs = getattr(torch.nn.functional, name)(places, table, max_norm=0.5)
        ours = getattr(tg.nn.functional, name)(tg.tensor(places.numpy()), own_table, max_norm=0.5)
        _same(ours, theirs, rtol=0.02, atol=0.02)
        _same(own_table, table, rtol=0.02, atol=0.02)


def test_compositions_round_half_precision_once(tg: Any, seed: int) -> None:
    torch.manual_seed(seed)
    x, own_x = _both(tg, 2, 3, 8, 8, dtype="bfloat16")
    places, own_places = _both(tg, 2, 5, 5, 2, dtype="bfloat16")
    target = torch.randint(0, 2, (2, 3, 8, 8)) * 2.0 - 1
    own_target = tg.tensor(target.numpy())
    exact = [
        torch.nn.functional.grid_sample(x.double(), places.double(), align_corners=False),
        torch.nn.functional.hinge_embedding_loss(x.double(), target.double(), margin=8.396),
    ]
    ours = [
        tg.nn.functional.grid_sample(own_x, own_places, align_corners=False),
        tg.nn.functional.hinge_embedding_loss(own_x, own_target.to(tg.bfloat16), margin=8.396),
    ]
    for mine, other in zip(ours, exact, strict=True):
        _same(mine, other.to(torch.bfloat16), rtol=0.008, atol=1e-4)
    ours[0].float().sum().backward()
    assert own_x.grad.dtype is tg.bfloat16 and own_places.grad.dtype is tg.bfloat16


def test_linear_cross_entropy_and_rrelu_refuse_what_does_not_fit(tg: Any) -> None:
    functional = tg.nn.functional
    x, w, target = tg.zeros(2, 3), tg.zeros(4, 3), tg.zeros(2, dtype=tg.int64)
    cases = [
        ((tg.zeros(2, 2, 3), w, target), {}, "one or two dimensions"),
        ((x, tg.zeros(3), target), {}, "two or more dimensions"),
        ((x, tg.zeros(4, 5), target), {}, "same number of features"),
        ((x, w, tg.zeros(2, 4)), {"ignore_index": 0}, "probabilities"),
        ((x, w, target), {"linear_bias": tg.zeros(3)}, r"linear_bias must have shape \[4\]"),
        ((tg.zeros(3), tg.zeros(2, 4, 3), target), {}, "requires input of"),
    ]
    for args, kwargs, message in cases:
        with pytest.raises(tg.errors.ShapeError, match=message):
            functional.linear_cross_entropy(*args, **kwargs)
    with pytest.raises(ValueError, match="Lower bound should be less than or equal to the upper bound"):
        functional.rrelu(x, 0.5, 0.25)


def test_pools_and_normalize_write_into_what_they_are_given(tg: Any, seed: int) -> None:
    x = tg.tensor(np.random.default_rng(seed).standard_normal((2, 3, 4, 4)))
    functional = tg.nn.functional
    for run in (lambda **kw: functional.avg_pool2d(x, 2, **kw), lambda **kw: functional.normalize(x, 2.0, 1, **kw)):
        expected = run()
        out = tg.empty_like(expected)
        assert run(out=out) is out
        np.testing.assert_array_equal(out.numpy(), expected.numpy())
