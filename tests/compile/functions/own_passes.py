"""Functions of the program's own with several operations, under every mode, and what stands between programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..harness import Built, batch, case

HALF = 2e-2
"""What results in bfloat16 may differ by: fused chains round once."""


def _two_results(tg: Any) -> Any:
    class Two(tg.autograd.Function):  # type: ignore[misc, name-defined]
        """Has two results, saves none of them, and is told which gradients there are."""

        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            ctx.set_materialize_grads(False)
            return x * w, x.sin() + w

        @staticmethod
        def backward(ctx: Any, product: Any, total: Any) -> Any:
            x, w = ctx.saved_tensors
            of_x, of_w = tg.zeros_like(x), tg.zeros_like(w)
            if product is not None:
                of_x, of_w = of_x + product * w, of_w + (product * x).sum(0)
            if total is not None:
                of_x, of_w = of_x + total * x.cos(), of_w + total.sum(0)
            return of_x, of_w

    return Two


@case(calls=15)
def results_that_nobody_differentiates(tg: Any) -> Built:
    two, weight = _two_results(tg), tg.ones(4, requires_grad=True)

    def function(x: Any, which: int) -> Any:
        weight.grad = None
        product, total = two.apply(x, weight)
        loss = (product.sum(), total.sum(), (product * total).sum())[which]
        loss.backward()
        return loss.detach()

    return Built(function, lambda number, rng: (*batch(tg)(number, rng), number // 5), lambda: weight.grad)


@case(calls=20, tolerance=HALF)
def functions_in_every_mode(tg: Any) -> Built:
    two, weight = _two_results(tg), tg.ones(4, requires_grad=True)

    def function(x: Any, mode: int) -> Any:
        weight.grad = None
        modes = (
            tg.enable_grad(), tg.no_grad(), tg.autocast("cpu", dtype=tg.bfloat16), tg.inference_mode(),
        )  # fmt: skip
        with modes[mode]:
            product, total = two.apply(x, weight)
        loss = (weight * x).sin().sum() + (total.float().sum() if mode != 3 else 0)
        loss.backward()
        return loss.detach(), product.requires_grad

    return Built(function, lambda number, rng: (*batch(tg)(number, rng), number // 5), lambda: weight.grad)


@case(calls=9)
def functions_behind_what_is_not_recorded(tg: Any) -> Built:
    two, weight = _two_results(tg), tg.ones(4, requires_grad=True)

    def function(x: Any) -> Any:
        with tg.no_grad():
            scale = (x * 2 + weight).sin()
        product, total = two.apply(scale, weight)
        return product, total.exp(), scale

    kept: list[Any] = []

    def called(x: Any) -> Any:
        kept[:] = function(x)
        return kept[1].requires_grad

    def state() -> Any:
        weight.grad = None
        (kept[0].sum() + kept[1].mean()).backward()
        return weight.grad, kept[2]

    return Built(called, batch(tg), state)


@case()
def functions_under_vmap(tg: Any) -> Built:
    from telegrad.func import grad, vmap

    class Cube(tg.autograd.Function):  # type: ignore[misc, name-defined]
        """Cubes, and is mapped as it is."""

        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x**3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x * x * gradient

    def function(x: Any) -> Any:
        return Cube.apply(x), vmap(Cube.apply)(x), vmap(grad(lambda row: Cube.apply(row).sum()))(x)

    return Built(function, batch(tg))


@case()
def rounded_weights_in_training(tg: Any) -> Built:
    class Round(tg.autograd.Function):  # type: ignore[misc, name-defined]
        """Rounds to eighths of the largest element, and passes gradients on."""

        @staticmethod
        def forward(ctx: Any, weight: Any) -> Any:
            step = weight.abs().max() / 8
            return (weight / step).round() * step, step

        @staticmethod
        def backward(ctx: Any, gradient: Any, of_step: Any) -> Any:
            return gradient

    tg.manual_seed(5)
    layer = tg.nn.Linear(4, 3)
    optimizer = tg.optim.AdamW(layer.parameters(), lr=1e-2)

    def function(x: Any) -> Any:
        optimizer.zero_grad()
        weight, step = Round.apply(layer.weight)
        loss = tg.nn.functional.linear(x, weight, layer.bias).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), step.detach()

    return Built(function, batch(tg), lambda: list(layer.parameters()))


@case()
def derivatives_outside(tg: Any) -> Built:
    weight, kept = tg.full((4,), 0.5, requires_grad=True), []

    def function(x: Any) -> Any:
        loss = (x * weight).sin().exp().sum()
        kept[:] = [loss]
        return loss.detach()

    def state() -> Any:
        (gradient,) = tg.autograd.grad(kept[0], weight, create_graph=True)
        return gradient.detach(), tg.autograd.grad(gradient.sum(), weight)[0]

    return Built(function, batch(tg), state)


@case()
def hooks_between_modes(tg: Any) -> Built:
    weight = tg.ones(4, requires_grad=True)

    def function(x: Any) -> Any:
        weight.grad = None
        with tg.no_grad():
            scale = (x * 2).sum() + 1
            other = scale * 2
        hidden = x * weight
        hidden.register_hook(lambda gradient: gradient * 2)
        with tg.no_grad():
            total = hidden.sum() * other + scale
        hidden.exp().sum().backward()
        with tg.no_grad():
            weight.sub_(weight.grad, alpha=0.01)
        return total

    return Built(function, batch(tg), lambda: [weight, weight.grad])


@case()
def a_number_read_without_gradients(tg: Any) -> Built:
    weight, kept = tg.ones(4, requires_grad=True), []

    def function(x: Any) -> Any:
        with tg.no_grad():
            total = (x * weight).sum() * 2
            number = total.item()  # break
            more = total * 3
        result = (x * weight).exp() * number + more
        kept[:] = [result]
        return result.detach()

    def state() -> Any:
        weight.grad = None
        kept[0].sum().backward()
        return weight.grad

    return Built(function, batch(tg), state)


@case()
def passes_to_some_leaves(tg: Any) -> Built:
    first, second = tg.ones(4, requires_grad=True), tg.full((4,), 2.0, requires_grad=True)

    def function(x: Any, gradient: Any) -> Any:
        first.grad = second.grad = None
        product = (x * first).sin() + second * x
        tg.autograd.backward([product, product * 2], [gradient, gradient], inputs=[first], retain_graph=True)
        product.backward(gradient, inputs=second)
        return product.detach()

    def arguments(number: int, rng: np.random.Generator) -> Any:
        (x,) = batch(tg)(number, rng)
        return x, x * 0.5

    return Built(function, arguments, lambda: [first.grad, second.grad])
