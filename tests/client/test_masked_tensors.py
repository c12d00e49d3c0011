"""Masked tensors compute, print and have gradients as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from telegrad import errors

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors is in prototype stage"),
    pytest.mark.filterwarnings("ignore:It is not recommended to create a MaskedTensor"),
]
Made = Callable[..., Any]
SHAPES = ((3, 4), (5,), (2, 3, 2), ())
UNARY = (
    "abs", "neg", "exp", "log", "sqrt", "sin", "tanh", "sigmoid", "reciprocal", "floor", "sign", "square", "rsqrt",
    "erf", "isnan", "logit", "nan_to_num", "log1p", "ceil", "atan", "negative", "positive",
)  # fmt: skip
BINARY = (
    "add", "sub", "mul", "div", "eq", "ne", "lt", "gt", "le", "ge", "maximum", "minimum", "fmod", "remainder", "atan2",
    "logaddexp",
)  # fmt: skip
REDUCTIONS = ("sum", "mean", "amin", "amax", "prod", "argmin", "argmax", "all", "var", "std")
VIEWS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda lib, x: x.t(), lambda lib, x: x.transpose(0, 1), lambda lib, x: x.view(4, 3), lambda lib, x: x.reshape(-1),
    lambda lib, x: x[0], lambda lib, x: x[:, 1:], lambda lib, x: x[2, 1], lambda lib, x: x.unsqueeze(1),
    lambda lib, x: x.clone(), lambda lib, x: x.detach(), lambda lib, x: x.to(lib.float64),
    lambda lib, x: x.contiguous(), lambda lib, x: lib.cat([x, x]), lambda lib, x: lib.stack([x, x], 1),
    lambda lib, x: x.select(1, 2),
    lambda lib, x: x.split(2)[1], lambda lib, x: x.chunk(2, 1)[0], lambda lib, x: x.flatten(),
    lambda lib, x: lib.ones_like(x), lambda lib, x: x.unsqueeze(0).expand(2, 3, 4), lambda lib, x: x.softmax(-1),
)  # fmt: skip


def _same(ours: Any, theirs: Any) -> None:
    """The masks are equal, and so are elements where they are true."""
    mask = theirs.get_mask().numpy()
    assert ours.shape == tuple(theirs.shape) and str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    assert np.array_equal(ours.get_mask().numpy(), mask)
    expected = theirs.get_data().detach().numpy()
    got = ours.get_data().detach().numpy()
    assert np.allclose(got[mask], expected[mask], rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.fixture
def made(tg: Any, rng: np.random.Generator) -> Made:
    """Makes a masked tensor of random elements in telegrad and in PyTorch."""

    def make(shape: tuple[int, ...], mask: Any = None, **options: Any) -> tuple[Any, Any]:
        data = np.asarray(rng.standard_normal(shape) + 0.1, np.float32)
        chosen = np.asarray(rng.random(shape) < 0.7) if mask is None else mask
        ours = tg.masked.masked_tensor(tg.tensor(data), tg.tensor(chosen), **options)
        return ours, torch.masked.masked_tensor(torch.tensor(data), torch.tensor(chosen), **options)

    return make


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_elements_are_computed_and_printed_as_in_pytorch(tg: Any, made: Made, shape: tuple[int, ...]) -> None:
    ours, theirs = made(shape)
    assert repr(ours) == repr(theirs) and isinstance(ours, tg.Tensor) and tg.masked.is_masked_tensor(ours)
    assert not tg.masked.is_masked_tensor(ours.get_data())
    assert np.allclose(ours.to_tensor(-1).numpy(), theirs.to_tensor(-1).numpy())
    for name in UNARY:
        _same(getattr(tg, name)(ours), getattr(torch, name)(theirs))
        _same(getattr(ours, name)(), getattr(theirs, name)())
    mask = theirs.get_mask().numpy()
    other, their_other = made(shape, mask)
    for name in BINARY:
        _same(getattr(tg, name)(ours, other), getattr(torch, name)(theirs, their_other))
    for name in ("add", "sub", "mul", "div", "eq", "lt", "fmod", "remainder"):
        _same(getattr(ours, name)(2.0), getattr(theirs, name)(2.0))
    _same(ours * ours.get_data(), theirs * theirs.get_data())
    _same(ours.sin_().mul_(3), theirs.sin_().mul_(3))
    condition = theirs.get_data() > 0
    last = tg.where(tg.tensor(condition.numpy()), ours, other)
    _same(last, torch.where(condition, theirs, their_other))
    assert repr(tg.isnan(ours)) == repr(torch.isnan(theirs))
    assert repr(other * 2.0**20) == repr(their_other * 2.0**20)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reductions_skip_what_is_masked(tg: Any, made: Made, shape: tuple[int, ...]) -> None:
    mask = np.ones(shape, bool)
    mask.reshape(-1)[1::3] = False
    ours, theirs = made(shape, mask)
    for name in REDUCTIONS:
        _same(getattr(tg, name)(ours), getattr(torch, name)(theirs))
        for dim in range(len(shape)):
            _same(getattr(tg, name)(ours, dim), getattr(torch, name)(theirs, dim))
            _same(getattr(ours, name)(dim=dim, keepdim=True), getattr(theirs, name)(dim=dim, keepdim=True))
    assert tg.norm(ours, 2).item() == pytest.approx(float(np.linalg.norm(theirs.get_data().numpy()[mask])), rel=1e-5)
    hidden, their_hidden = made(shape, np.zeros(shape, bool))
    _same(hidden.sum(), their_hidden.sum())


def test_views_treat_data_and_mask_alike(tg: Any, made: Made) -> None:
    ours, theirs = made((3, 4))
    for view in VIEWS:
        _same(view(tg, ours), view(torch, theirs))


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: (x * x).sum(), lambda x: x.exp().sum(), lambda x: x.mean(1).sum(), lambda x: x.amax(1).sum(),
        lambda x: (x.sqrt() / x).sum(), lambda x: x.prod(),
    ],
)  # fmt: skip
def test_gradients_are_masked_as_the_elements_are(tg: Any, made: Made, loss: Callable[[Any], Any]) -> None:
    mask = np.array([[True, False, True], [True, True, False]])
    ours, theirs = made((2, 3), mask, requires_grad=True)
    with tg.no_grad(), torch.no_grad():
        ours.get_data().abs_(), theirs.get_data().abs_()
    loss(ours).backward()
    loss(theirs).backward()
    assert ours.requires_grad and ours.is_leaf and loss(ours).grad_fn is not None
    _same(ours.grad, theirs.grad)


def test_gradients_flow_to_the_data_that_a_masked_tensor_is_made_of(tg: Any) -> None:
    data = np.array([4.0, -1.0, 9.0], np.float32)
    leaf, mask = tg.tensor(data, requires_grad=True), tg.tensor([True, False, True])
    masked = tg.masked.as_masked_tensor(leaf, mask)
    (masked.sqrt().sum() * 2).backward()
    assert leaf.grad.tolist() == pytest.approx([0.5, 0, 1 / 3])  # no NaN where the root of -1 is masked
    assert not masked.is_leaf and tg.masked.masked_tensor(leaf, mask).is_leaf
    seen: list[Any] = []
    x = tg.masked.masked_tensor(leaf, mask, requires_grad=True)
    x.register_hook(seen.append)
    x.sum().backward()
    assert repr(seen[0]) == repr(x.grad)


def test_what_makes_no_sense_is_refused(tg: Any) -> None:
    data, mask = tg.ones(2, 3), tg.ones(2, 3, dtype=tg.bool)
    x = tg.masked.masked_tensor(data, mask)
    other, make = tg.masked.masked_tensor(data, ~mask), tg.masked.masked_tensor
    for wrong, kind in (
        (lambda: make(data, mask[0]), ValueError), (lambda: make(data, data), TypeError),
        (lambda: make([1.0], mask), TypeError), (lambda: make(x, mask), TypeError),
        (lambda: make(data * 1j, mask), TypeError), (lambda: x + other, ValueError), (lambda: x @ x.t(), TypeError),
        (lambda: x.tolist(), TypeError), (lambda: x.numpy(), TypeError), (lambda: tg.where(mask, x, data), TypeError),
        (lambda: tg.masked.is_masked_tensor(3), TypeError), (lambda: make(data.to_sparse(), mask), TypeError),
    ):  # fmt: skip
        with pytest.raises(kind) as caught:
            wrong()
        assert isinstance(caught.value, errors.TelegradError) and str(caught.value)


def test_operands_with_one_mask_wait_for_nothing(tg: Any) -> None:
    x = tg.masked.masked_tensor(tg.ones(4), tg.tensor([True, False, True, True]))
    session = x.get_data()._session
    before = session.round_trips
    y = ((x + x.exp()) * x).sum()
    assert session.round_trips == before and y.item() == pytest.approx(3 * (1 + np.e), rel=1e-5)
