"""Gradients of gradients whose graph lies behind a function of the program, which the second pass does not enter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .twins import assert_same, evaluate

PROLOGUE = """
class Same(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, grad):
        return grad
class Double(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 2
class Swapped(t.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return b * 3, a * 2
    @staticmethod
    def backward(ctx, ga, gb):
        return gb * 2, ga * 3
class Cubes(t.nn.Module):
    def forward(self, x):
        return (x ** 3).sum()
def hooked(kind):
    module = Cubes()
    getattr(module, f"register_full_backward_{kind}")(lambda *gradients: None)
    return module
"""
LOSSES = [
    "Same.apply((x ** 3).sum())",
    "Double.apply((x ** 3).sum())",
    "Double.apply(x ** 3).sum()",
    "Same.apply(Double.apply(x ** 3)).sum()",
    "sum(part.sum() for part in Swapped.apply(x ** 3, (x ** 2).sin()))",
    "hooked('hook')(x)",
    "hooked('pre_hook')(x)",
    "t.nn.functional.mse_loss(hooked('hook')(x), x.exp().sum())",
]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("operand", ["x", "x * 1"], ids=["leaf", "computed"])
def test_a_second_derivative_is_pytorchs(tg: Any, rng: np.random.Generator, loss: str, operand: str) -> None:
    program = f"""{PROLOGUE}
x = t.tensor(values, requires_grad=True)
x = {operand}
loss = {loss}
first, = t.autograd.grad(loss, x, create_graph=True)
second, = t.autograd.grad(first.sum(), x)
first.detach(), second
"""
    assert_same(*evaluate(program, tg, values=rng.uniform(0.5, 1.5, 4)))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_second_pass_accumulates_what_pytorch_does(tg: Any, rng: np.random.Generator, loss: str) -> None:
    program = f"""{PROLOGUE}
x = t.tensor(values, requires_grad=True)
({loss}).backward(create_graph=True)
first, x.grad = x.grad, None
first.sum().backward()
x.grad.detach()
"""
    assert_same(*evaluate(program, tg, values=rng.uniform(0.5, 1.5, 4)))


def test_what_a_gradient_does_not_depend_on_has_none(tg: Any, rng: np.random.Generator) -> None:
    program = f"""{PROLOGUE}
x = t.tensor(values, requires_grad=True)
other = t.ones(4, dtype=t.float64, requires_grad=True)
first, = t.autograd.grad(Same.apply((x ** 3 + other).sum()), x, create_graph=True)
second = t.autograd.grad(first.sum(), [x, other], allow_unused=True)
second
"""
    assert_same(*evaluate(program, tg, values=rng.uniform(0.5, 1.5, 4)))
