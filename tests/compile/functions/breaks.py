"""Graph breaks of each kind; the lines where programs end are marked as breaks."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from ..harness import Built, batch, case


@case()
def item(tg: Any) -> Built:
    def function(x: Any) -> Any:
        y = x.sin() + 1
        if y.sum().item() > 12:  # break
            y = y * 2
        return y.cos() - x

    return Built(function, batch(tg))


@case()
def tolist_and_index(tg: Any) -> Built:
    def function(x: Any) -> Any:
        order = x.sum(1).argsort().tolist()  # break
        return [x[number] * (place + 1) for place, number in enumerate(order)]

    return Built(function, batch(tg))


@case()
def truth_of_a_tensor(tg: Any) -> Built:
    def function(x: Any) -> Any:
        if (x > 0).all():  # break
            return x.sqrt()
        while x.abs().max() > 0.5:  # break
            x = x / 2
        return x.exp()

    return Built(function, batch(tg))


@case()
def shapes_of_elements(tg: Any) -> Built:
    def function(x: Any) -> Any:
        places = (x > 0).nonzero()  # break
        chosen = x[x > 0]  # break
        return places, chosen * 2, tg.unique((x * 2).round())  # break

    return Built(function, batch(tg))


@case()
def numpy_inside(tg: Any) -> Built:
    def function(x: Any) -> Any:
        y = (x * 2).numpy()  # break
        z = np.sqrt(np.abs(y))
        return tg.from_numpy(z) + x, tg.tensor(float(z.sum()))

    return Built(function, batch(tg))


@case()
def a_disabled_function(tg: Any) -> Built:
    total = tg.zeros(4)

    @tg.compiler.disable
    def inner(x: Any) -> Any:
        total.add_(x.sum(0))
        return x - 1

    def function(x: Any) -> Any:
        y = x * 3
        z = inner(y)  # break
        return (z.abs() + total).tanh().exp()

    return Built(function, batch(tg), lambda: total)


@case()
def graph_break(tg: Any) -> Built:
    from telegrad.compiler import dynamo

    def function(x: Any) -> Any:
        y = (x.tanh() * 2).exp().log1p()
        dynamo.graph_break()  # break
        return (y + x.sum()).sin().cos()

    return Built(function, batch(tg))


@case()
def prints_of_numbers(tg: Any) -> Built:
    told: list[str] = []

    def function(x: Any) -> Any:
        y = x * 2 + 1
        told.append(f"{y[0, 0]:.3f} {y.shape}")  # break
        told.append(repr(y.sum(0)))  # break
        return y.log1p()

    return Built(function, batch(tg), lambda: told[-2:])


@case()
def a_print(tg: Any) -> Built:
    def function(x: Any) -> Any:
        y = x.sin().exp().log1p().tanh()
        print("hi")  # break
        return y.cos().abs().sqrt().sum()

    return Built(function, batch(tg))


@case()
def a_logger(tg: Any) -> Built:
    def function(x: Any) -> Any:
        y = x.exp() + 1
        logging.getLogger("compile").debug("shape %s", y.shape)
        return y / y.sum(-1, keepdim=True)

    return Built(function, batch(tg))


@case()
def equality_of_tensors(tg: Any) -> Built:
    def function(x: Any) -> Any:
        same = tg.equal(x, x.clone())  # break
        near = tg.allclose(x, x + 1e-9)  # break
        return (x + 1 if same else x), near

    return Built(function, batch(tg))


@case()
def a_large_array(tg: Any) -> Built:
    array = np.arange(40_000, dtype="f")

    def function(x: Any) -> Any:
        y = x.sum() * 2
        table = tg.tensor(array)  # break
        return table[:5] * y + table.mean()

    return Built(function, batch(tg))


@case()
def a_transfer_to_the_host(tg: Any) -> Built:
    def function(x: Any) -> Any:
        y = x.relu() - 0.25
        numbers = [float(value) for value in y.mean(0)]  # break
        return y * max(numbers)

    return Built(function, batch(tg))


@case()
def a_break_in_a_helper(tg: Any) -> Built:
    def helper(y: Any) -> Any:
        return y.max().item()  # break

    def function(x: Any) -> Any:
        y = (x * 2).tanh().exp().log1p()
        return y / (1 + abs(helper(y)))

    return Built(function, batch(tg))


@case()
def breaks_in_a_loop(tg: Any) -> Built:
    def function(x: Any) -> Any:
        for _ in range(3):
            x = (x * 0.5 + 1).tanh().exp()
            if x.sum().item() > 1e6:  # break
                break
        return x

    return Built(function, batch(tg))
