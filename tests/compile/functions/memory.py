"""Aliasing, views, and what is changed in place: inputs, closures, globals, attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..harness import ROWS, Built, batch, case

_global: dict[str, Any] = {}


@case()
def an_input_in_place(tg: Any) -> Built:
    held: list[Any] = []

    def function(x: Any) -> Any:
        held[:] = [x]
        x.mul_(2).add_(1)
        x[0] = 7
        return x.sum(0)

    return Built(function, batch(tg), lambda: held)


@case()
def a_closure(tg: Any) -> Built:
    running, count = tg.zeros(4), [0]

    def function(x: Any) -> Any:
        count[0] += 1
        running.mul_(0.9).add_(x.mean(0) * 0.1)
        return x - running

    return Built(function, batch(tg), lambda: [running, count])


@case()
def a_global(tg: Any) -> Built:
    _global.clear()
    _global["scale"] = tg.ones(4)

    def function(x: Any) -> Any:
        _global["scale"] = _global["scale"] * 1.5
        _global["last"] = x.sum()
        return (x * _global["scale"]).exp().log1p()

    return Built(function, batch(tg), lambda: list(_global.values()))


@case()
def views_of_views(tg: Any) -> Built:
    def function(x: Any) -> Any:
        y = x.clone()
        y.t()[1:3].mul_(3)
        y.view(-1)[::2].sub_(1)
        y.narrow(1, 0, 2).copy_(y.narrow(1, 2, 2))
        return y, y.unfold(1, 2, 1).sum(-1), y.diagonal().clone()

    return Built(function, batch(tg))


@case()
def results_that_are_views(tg: Any) -> Built:
    def function(x: Any) -> Any:
        y = x * 2
        return y[:, :2], y.t(), y.expand(2, *y.shape), y, x, x[0]

    return Built(function, batch(tg))


@case()
def a_result_is_written_later(tg: Any) -> Built:
    kept: list[Any] = []

    def function(x: Any) -> Any:
        y = x + 1
        kept[:] = [y, y[0]]
        return (y * 2).sin().cos()

    def state() -> Any:
        if kept:
            kept[1].zero_()
        return kept

    return Built(function, batch(tg), state)


@case(calls=12)
def inputs_that_overlap(tg: Any) -> Built:
    def function(a: Any, b: Any) -> Any:
        a.mul_(2)
        c = b + 1
        b.add_(a)
        return c, a * b

    def arguments(number: int, rng: np.random.Generator) -> Any:
        x = tg.tensor(rng.standard_normal(6).astype("f"))
        y = tg.tensor(rng.standard_normal(6).astype("f"))
        return ((x, y), (x, x), (x[:4], x[2:]), (x[:4], y[:4]))[number % 4]

    return Built(function, arguments, lambda: ())


@case(calls=18)
def strides_and_dtypes(tg: Any) -> Built:
    def function(x: Any) -> Any:
        return (x * 2 + 1).sum(0), x.to(tg.float32).sin().cos(), (x > 0).to(x.dtype) - x

    def arguments(number: int, rng: np.random.Generator) -> Any:
        array = rng.integers(-9, 9, (4, 4))
        x = tg.tensor(array, dtype=(tg.float32, tg.float64, tg.int64)[number // 6])
        return ((x.t(), x[::2, 1:3])[number % 2],)

    return Built(function, arguments)


@case()
def empty_and_scalar_tensors(tg: Any) -> Built:
    def function(x: Any) -> Any:
        empty = x[:0]
        return empty * 2 + 1, empty.sum(), x.sum() * tg.tensor(2.0), tg.cat([empty, x]).max()

    return Built(function, batch(tg))


@case()
def indexing(tg: Any) -> Built:
    places = tg.tensor([2, 0, 1, 0])

    def function(x: Any) -> Any:
        y = x.clone()
        y[:, places] = x
        y[0, 1:3] += 5
        y.index_add_(1, places, x)
        y.scatter_(1, places[:2].expand(x.shape[0], 2), 9.0)
        return y, y.gather(1, places.expand(x.shape[0], 4)), tg.where(y > 0, y, -1.0), y[..., None, -1]

    return Built(function, batch(tg))


@case()
def an_attribute_of_an_object(tg: Any) -> Built:
    class Counter:
        def __init__(self) -> None:
            self.hidden = tg.zeros(4)
            self.steps = 0

        def step(self, x: Any) -> Any:
            self.steps += 1
            self.hidden = tg.tanh(self.hidden + x.sum(0))
            return self.hidden * self.steps

    counter = Counter()
    return Built(counter.step, batch(tg), lambda: [counter.hidden, counter.steps])


@case()
def out_arguments(tg: Any) -> Built:
    into = tg.zeros(3, 4)

    def function(x: Any) -> Any:
        tg.mul(x[:2], 3, out=into[:2])
        tg.add(into, 1, out=into)
        return into.sum(), tg.cumsum(x, 0)

    return Built(function, batch(tg), lambda: into)


@case()
def swapped_and_set_data(tg: Any) -> Built:
    weight = tg.nn.Parameter(tg.ones(4))

    def function(x: Any) -> Any:
        with tg.no_grad():
            weight.copy_(weight * 0.5 + x.mean(0))
        weight.data.add_(0.125)
        return (x * weight).detach()

    return Built(function, batch(tg), lambda: weight)


@case()
def detached_aliases(tg: Any) -> Built:
    def function(x: Any) -> Any:
        y = x * 1
        z = y.detach()
        z.add_(1)
        w = y.view_as(y)
        w.mul_(2)
        return y, z, w, y.data_ptr() == z.data_ptr()  # break

    return Built(function, batch(tg))


@case(calls=13)
def lists_of_varying_length(tg: Any) -> Built:
    def function(*parts: Any) -> Any:
        return tg.cat(parts).sum(0), tg.stack([part.mean() for part in parts])

    def arguments(number: int, rng: np.random.Generator) -> Any:
        return tuple([tg.tensor(rng.standard_normal((2, 3)).astype("f")) for _ in range(ROWS[number])])

    return Built(function, arguments)
