"""Gradients that do not change with the operands and yet depend on them: differentiated again they give zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import telegrad
from server.engine.autograd.zero_derivatives import DEPENDING
from server.engine.operators import OPERATORS

from .twins import assert_same, evaluate

FUNCTIONS = [
    "F.relu(x)", "F.relu(x.clone(), inplace=True)", "F.leaky_relu(x, 0.2)", "F.hardtanh(x)", "F.relu6(x)",
    "F.hardsigmoid(x)", "F.threshold(x, 0.1, 0.5)", "F.hardshrink(x)", "F.softshrink(x)", "F.rrelu(x)",
    "F.prelu(x, weight)", "F.max_pool1d(x, 2)", "F.max_pool2d(x[None], 2)", "F.max_pool3d(x[None, None], 2)",
    "F.avg_pool1d(x, 2)", "F.avg_pool2d(x[None], 2)", "F.avg_pool3d(x[None, None], 2)", "F.adaptive_avg_pool1d(x, 3)",
    "F.adaptive_avg_pool2d(x, 3)", "F.adaptive_max_pool1d(x, 3)", "F.adaptive_max_pool2d(x, 3)",
    "F.interpolate(x[None], size=3, mode='area')", "F.fractional_max_pool2d(x[None], 2, output_size=(2, 3), "
    "_random_samples=t.full((1, 2, 2), 0.3, dtype=t.float64))", "F.pad(x, (1, 2), mode='reflect')",
    "F.pad(x, (1, -2), mode='replicate')", "F.nll_loss(x[0], t.tensor([0, 2, 3, 1]))", "F.pdist(x[0], 1.0)",
    "t.cdist(x, x + 1, 1.0)", "F.multi_margin_loss(x[0], t.tensor([0, 2, 3, 1]))",
    "F.multilabel_margin_loss(x[0, 0], t.tensor([2, 0, -1, 1, 3]))", "t.stft(x[0, 0], 4, hop_length=2, "
    "window=t.ones(4, dtype=t.float64), return_complex=True).real",
    "F.grid_sample(x[None], grid, mode='nearest', align_corners=False)",
]  # fmt: skip

PROLOGUE = """
F = t.nn.functional
x = t.from_numpy(values).requires_grad_()
weight = t.tensor([0.25], dtype=t.float64, requires_grad=True)
grid = t.from_numpy(values[:1, :, :2].copy()).clone().reshape(1, 4, 1, 2).requires_grad_()
"""


@pytest.fixture
def values(rng: np.random.Generator) -> Any:
    return rng.normal(size=(2, 4, 5))


@pytest.mark.parametrize("call", FUNCTIONS)
def test_a_gradient_that_does_not_change_is_differentiated_to_zeros(call: str, tg: Any, values: Any) -> None:
    program = f"""
    {PROLOGUE.replace(chr(10), chr(10) + "    ")}
    first, = t.autograd.grad({call}.sum(), x, create_graph=True)
    second, = t.autograd.grad(first.sum(), x, allow_unused=True)
    if second is None and {any(name in call for name in ("dist", "margin", "nearest"))}:
        second = t.zeros_like(x)
    first.requires_grad, first.detach(), second
    """
    ours, theirs = evaluate(program, tg, values=values.copy())
    if isinstance(theirs, (RuntimeError, NotImplementedError)):  # PyTorch has no second derivative of the function
        assert ours[0] is True and not ours[2].abs().sum().item()
        return
    assert_same(ours, theirs)


def test_a_grid_at_which_nearest_elements_are_taken_has_a_gradient_of_zeros(tg: Any, values: Any) -> None:
    program = f"""
    {PROLOGUE.replace(chr(10), chr(10) + "    ")}
    t.autograd.grad(F.grid_sample(x[None], grid, mode="nearest", align_corners=True).square().sum(), (x, grid))
    """
    assert_same(*evaluate(program, tg, values=values))


def test_leaves_that_zeros_alone_reach_get_a_gradient(tg: Any, values: Any) -> None:
    program = """
    net = t.nn.Sequential(t.nn.Linear(5, 4), t.nn.ReLU(), t.nn.Linear(4, 3), t.nn.LeakyReLU(0.2), t.nn.Linear(3, 1))
    net.double()
    with t.no_grad():
        for p in net.parameters():
            p.copy_(t.linspace(-1.0, 1.0, p.numel(), dtype=t.float64).reshape(p.shape))
    x = t.from_numpy(values[0]).requires_grad_()
    slope, = t.autograd.grad(net(x).sum(), x, create_graph=True)
    ((slope.norm(2, dim=1) - 1) ** 2).mean().backward()
    [p.grad for p in net.parameters()], x.grad
    """
    assert_same(*evaluate(program, tg, values=values))


def test_what_retains_its_gradient_gets_zeros(tg: Any, values: Any) -> None:
    program = """
    x = t.from_numpy(values).requires_grad_()
    inner = x * 2
    slope, = t.autograd.grad(t.relu(inner).sum(), x, create_graph=True)
    inner.retain_grad()
    (slope * x.detach()).sum().backward()
    inner.grad, x.grad
    """
    assert_same(*evaluate(program, tg, values=values))


def test_a_function_of_the_program_lets_zeros_through(tg: Any, values: Any) -> None:
    program = """
    class Twice(t.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2
        @staticmethod
        def backward(ctx, grad):
            return grad * 2
    x = t.from_numpy(values).requires_grad_()
    slope, = t.autograd.grad(t.relu(Twice.apply(x)).sum(), x, create_graph=True)
    slope.requires_grad, t.autograd.grad(slope.sum(), x)[0]
    """
    assert_same(*evaluate(program, tg, values=values))


def test_a_bias_of_a_convolution_has_a_gradient_that_depends_on_the_images(tg: Any, values: Any) -> None:
    program = """
    x = t.from_numpy(values).requires_grad_()
    weight, bias = t.ones(3, 4, 2, dtype=t.float64, requires_grad=True), t.ones(3, dtype=t.float64, requires_grad=True)
    slopes = t.autograd.grad(t.nn.functional.conv1d(x, weight, bias).sum(), (x, weight, bias), create_graph=True)
    [slope.requires_grad for slope in slopes]
    """
    assert_same(*evaluate(program, tg, values=values))


def test_the_second_derivative_of_ctc_is_refused_and_not_taken_for_zero(tg: Any, rng: np.random.Generator) -> None:
    scores = tg.from_numpy(rng.normal(size=(6, 2, 4))).requires_grad_()
    loss = tg.nn.functional.ctc_loss(scores.log_softmax(2), tg.tensor([[1, 2], [3, 1]]), [6, 6], [2, 2])
    slope = tg.autograd.grad(loss, scores, create_graph=True)[0]
    assert slope.requires_grad
    with pytest.raises(telegrad.TelegradError, match="derivative for '_ctc_loss_backward' is not implemented"):
        tg.autograd.grad(slope.square().sum(), scores)[0].tolist()


def test_batched_gradients_of_piecewise_functions_are_those_of_each_row(tg: Any, values: Any) -> None:
    program = """
    func = t.func
    x = t.from_numpy(values[0])
    row = lambda a: t.nn.functional.prelu(a, t.full((1,), 0.25, dtype=t.float64)).sum()
    func.vmap(func.grad(row))(x), func.hessian(lambda a: t.relu(a).sum())(x[0]).contiguous()
    """
    assert_same(*evaluate(program, tg, values=values))


def test_what_depends_on_operands_is_an_operation() -> None:
    assert set(OPERATORS) >= DEPENDING


WITHOUT = ["x // 2", "3 // x", "(x * 1).floor_divide_(2)", "t.heaviside(x, x)", "t.heaviside(x.detach(), x)"]


@pytest.mark.parametrize("call", WITHOUT)
def test_what_pytorch_does_not_differentiate_says_so_once_a_gradient_reaches_it(tg: Any, call: str) -> None:
    for t in (tg, torch):
        x = t.tensor([1.5, 2.5], requires_grad=True)
        y = eval(call, {"t": t, "x": x})  # noqa: S307 - the tests' own programs
        assert y.requires_grad and not eval(call, {"t": t, "x": x.detach()}).requires_grad  # noqa: S307
        with pytest.raises(RuntimeError, match="not implemented"):
            (x + y).sum().backward()
            x.grad.sum().item()
