"""Grad modes, autocast, train and eval, default dtypes and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..harness import Built, batch, case

HALF = 2e-2
"""What results in bfloat16 may differ by: fused chains round once."""


def _weights(tg: Any) -> Any:
    tg.manual_seed(3)
    return tg.randn(4, 4, requires_grad=True)


@case()
def no_grad_inside(tg: Any) -> Built:
    weight = _weights(tg)

    def function(x: Any) -> Any:
        with tg.no_grad():
            norm = weight.norm()
        y = x @ weight / norm
        with tg.enable_grad():
            y.sum().backward()
        return y.detach(), norm

    return Built(function, batch(tg), lambda: weight.grad)


@case()
def inference_mode_inside(tg: Any) -> Built:
    weight = _weights(tg)

    def function(x: Any) -> Any:
        with tg.inference_mode():
            y = x @ weight
            z = y.softmax(-1) * 2
        return z, y.is_inference()

    return Built(function, batch(tg))


@case(calls=12)
def grad_modes_outside(tg: Any) -> Built:
    weight, number = _weights(tg), [0]

    def function(x: Any) -> Any:
        y = ((x @ weight).tanh() * 2).exp()
        return y, y.requires_grad, y.sum()

    def state() -> None:
        number[0] += 1
        tg.set_grad_enabled(number[0] % 3 != 0)

    return Built(function, batch(tg), state)


@case(tolerance=HALF)
def autocast_inside(tg: Any) -> Built:
    weight = _weights(tg)

    def function(x: Any) -> Any:
        with tg.autocast("cpu", dtype=tg.bfloat16):
            y = (x @ weight).relu() @ weight
            with tg.autocast("cpu", enabled=False):
                z = y.float() @ weight
        z.sum().backward()
        return y.detach(), z.detach()

    return Built(function, batch(tg), lambda: weight.grad)


@case(tolerance=HALF, calls=10)
def autocast_outside(tg: Any) -> Built:
    weight = _weights(tg)

    def compute(x: Any) -> Any:
        y = x @ weight
        loss = tg.nn.functional.gelu(y).sum()
        loss.backward()
        return loss.detach(), y.dtype

    return Built(compute, batch(tg), lambda: weight.grad)


@case()
def a_decorated_function(tg: Any) -> Built:
    weight = _weights(tg)

    @tg.no_grad()
    def function(x: Any) -> Any:
        return x @ weight + x.sum()

    return Built(function, batch(tg))


@case(calls=12)
def train_and_eval(tg: Any) -> Built:
    tg.manual_seed(5)
    model = tg.nn.Sequential(tg.nn.Linear(4, 6), tg.nn.BatchNorm1d(6), tg.nn.Dropout(0.5), tg.nn.Linear(6, 2))
    number = [0]

    def function(x: Any) -> Any:
        return model(x).detach()

    def state() -> Any:
        number[0] += 1
        model.train(number[0] % 3 != 2)
        return list(model.buffers())

    return Built(function, batch(tg), state)


@case()
def dropout_in_training(tg: Any) -> Built:
    weight = _weights(tg)

    def function(x: Any) -> Any:
        y = tg.nn.functional.dropout(x @ weight, 0.5)
        y.square().sum().backward()
        return y.detach(), tg.rand(2), tg.randint(0, 9, (3,)), tg.randperm(5)

    return Built(function, batch(tg), lambda: [weight.grad, tg.rand(1)])


@case()
def seeds_inside(tg: Any) -> Built:
    def function(x: Any) -> Any:
        tg.manual_seed(x.shape[0])
        return tg.randn_like(x), tg.bernoulli(x.sigmoid()), tg.multinomial(x.softmax(-1), 2)

    return Built(function, batch(tg))


@case()
def a_generator_of_its_own(tg: Any) -> Built:
    generator = tg.Generator().manual_seed(11)

    def function(x: Any) -> Any:
        return x + tg.randn(4, generator=generator), tg.empty(3).uniform_(-1, 1, generator=generator)

    return Built(function, batch(tg))


@case(calls=12)
def default_dtypes(tg: Any) -> Built:
    number = [0]

    def function(x: Any) -> Any:
        return tg.ones(2) / 3 + x.sum().to(tg.get_default_dtype()), tg.tensor([0.1]), tg.arange(3) * 0.1

    def state() -> None:
        number[0] += 1
        tg.set_default_dtype(tg.float64 if number[0] % 6 > 2 else tg.float32)

    return Built(function, batch(tg), state)


@case()
def graphs_of_random_steps(tg: Any) -> Built:
    weight = _weights(tg)

    def function(x: Any) -> Any:
        noise: Callable[[], Any] = lambda: tg.randn(x.shape[0], 4)
        loss = ((x + noise()) @ weight + noise()).square().mean()
        (gradient,) = tg.autograd.grad(loss, weight)
        with tg.no_grad():
            weight.sub_(gradient, alpha=0.01)
        return loss.detach()

    return Built(function, batch(tg), lambda: weight)
