"""Inputs and outputs of every structure, exceptions, generators, nested compile, transforms, custom operators."""

from __future__ import annotations

import functools
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..harness import Built, batch, case

Point = namedtuple("Point", "x y")


@dataclass
class Record:
    """A tensor with a name."""

    value: Any
    name: str


@case()
def dicts_and_dataclasses(tg: Any) -> Built:
    def function(inputs: Any) -> Any:
        y = inputs["x"] * inputs["scale"]
        y = y.sigmoid() - inputs["x"]
        return OrderedDict(y=y, sum=y.sum(), record=Record(y.mean(0), inputs["name"]))

    def arguments(number: int, rng: np.random.Generator) -> Any:
        (x,) = batch(tg)(number, rng)
        return ({"x": x, "scale": 2.0, "name": f"call {number}"},)

    return Built(function, arguments)


@case()
def namedtuples_and_defaults(tg: Any) -> Built:
    def function(point: Any, *rest: Any, scale: float = 1.5, **more: Any) -> Any:
        return Point(point.x * scale, point.y + sum(rest)), more

    def arguments(number: int, rng: np.random.Generator) -> Any:
        (x,) = batch(tg)(number, rng)
        return (Point(x, x + 1), 1, x[0])

    return Built(function, arguments)


@case()
def generators(tg: Any) -> Built:
    def parts(x: Any) -> Any:
        total = tg.zeros(4)
        for row in x:
            total = total + row
            yield total

    def function(x: Any) -> Any:
        return [part * 2 for part in parts(x)], sum(row.sum() for row in x), dict(enumerate(x.unbind()))

    return Built(function, batch(tg))


@case()
def exceptions_that_are_caught(tg: Any) -> Built:
    def function(x: Any) -> Any:
        y = x + 1
        try:
            y = y @ tg.ones(7, 7)
        except RuntimeError as error:
            return y * 2, type(error).__name__
        finally:
            y.add_(1)
        return y

    return Built(function, batch(tg))


@case()
def exceptions_that_leave(tg: Any) -> Built:
    total, calls = tg.zeros(4), [0]

    def function(x: Any) -> Any:
        calls[0] += 1
        total.add_(x.sum(0))
        y = x * 2
        if calls[0] % 3 == 0:
            raise KeyError("third")
        return y + total

    return Built(function, batch(tg), lambda: total)


@case(calls=16)
def failures_on_the_server(tg: Any) -> Built:
    total = tg.zeros(4)

    def function(x: Any, index: Any) -> Any:
        total.add_(1)
        y = x.index_select(0, index)
        return y * 2 + 1

    def arguments(number: int, rng: np.random.Generator) -> Any:
        return (*batch(tg)(number, rng), tg.tensor([9 if number % 8 == 6 else 1]))

    return Built(function, arguments, lambda: total)


@case()
def nested_compile(tg: Any) -> Built:
    @tg.compile
    def inner(x: Any) -> Any:
        return x.sin() * 2

    @tg.compile
    def other(x: Any) -> Any:
        return inner(x) + inner(x + 1)

    def function(x: Any) -> Any:
        return other(x) * inner(x)

    return Built(function, batch(tg))


@case()
def compiled_modules_inside(tg: Any) -> Built:
    tg.manual_seed(5)
    model = tg.compile(tg.nn.Sequential(tg.nn.Linear(4, 4), tg.nn.Tanh()))
    layer = tg.nn.Linear(4, 2)
    layer.compile()

    def function(x: Any) -> Any:
        model.zero_grad()
        loss = layer(model(x)).square().sum()
        loss.backward()
        return loss.detach()

    return Built(function, batch(tg), lambda: [p.grad for p in model.parameters()])


@case()
def methods_partials_and_callables(tg: Any) -> Built:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, x: Any) -> Any:
            return x * self.by

    def combined(scale: Any, x: Any) -> Any:
        return scale(x) + functools.reduce(tg.add, x.unbind())

    return Built(functools.partial(combined, Scale(3.0)), batch(tg))


@case()
def transforms(tg: Any) -> Built:
    from telegrad import func

    weight = tg.arange(4.0)

    def loss(w: Any, row: Any) -> Any:
        return (w * row).sin().sum()

    def function(x: Any) -> Any:
        per_row = func.vmap(func.grad(loss), in_dims=(None, 0))(weight, x)
        return per_row, func.jacrev(lambda w: w * x[0])(weight), func.grad(loss)(weight, x[0])

    return Built(function, batch(tg))


@case()
def custom_operators(tg: Any) -> Built:
    name = "compile_suite::scaled"
    from telegrad import library

    if not hasattr(tg.ops.compile_suite, "scaled"):

        def multiply(x: Any, by: float) -> Any:
            return x * by

        scaled = library.custom_op(name, multiply, mutates_args=(), schema="(Tensor x, float by) -> Tensor")

        scaled.register_fake(lambda x, by: tg.empty_like(x))

        def setup(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.by = inputs[1]

        scaled.register_autograd(lambda ctx, grad: (grad * ctx.by, None), setup_context=setup)
    weight = tg.ones(4, requires_grad=True)

    def function(x: Any) -> Any:
        weight.grad = None
        y = tg.ops.compile_suite.scaled(x * weight, 2.5).relu()
        y.sum().backward()
        return y.detach(), weight.grad

    return Built(function, batch(tg))


@case()
def uploads_inside(tg: Any) -> Built:
    calls = [0]

    def function(x: Any) -> Any:
        calls[0] += 1
        row = tg.tensor([float(calls[0]), 1.0, -2.0, 0.5])
        places = tg.tensor([calls[0] % 2, 1])
        array = tg.from_numpy(np.full((2, 4), calls[0], "f"))
        return x * row, x[places] + array, tg.as_tensor(calls[0])

    return Built(function, batch(tg))


@case()
def cond_and_while_loop(tg: Any) -> Built:
    from telegrad.compiler import cond, while_loop

    def function(x: Any) -> Any:
        y = cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, (x,))  # break
        n, z = while_loop(  # break
            lambda n, _: n < 3,
            lambda n, a: (n + 1, a * 0.5),
            (tg.tensor(0), y),
        )
        return y, n, z

    return Built(function, batch(tg))


@case()
def numbers_that_change(tg: Any) -> Built:
    calls = [0]

    def function(x: Any) -> Any:
        calls[0] += 1
        return x * calls[0] + 1 / calls[0], x.pow(calls[0] % 3), x.roll(calls[0] % 2, 0)

    return Built(function, batch(tg))


@case()
def shapes_in_the_computation(tg: Any) -> Built:
    def function(x: Any) -> Any:
        rows, columns = x.shape
        y = x.view(rows * 2, columns // 2) / rows
        mask = tg.arange(rows)[:, None] >= tg.arange(columns)
        return y, x.masked_fill(mask, 0.0), tg.zeros(rows, 2), x.new_full((rows,), columns), len(x)

    return Built(function, batch(tg))


@case()
def what_is_sorted_and_searched(tg: Any) -> Built:
    def function(x: Any) -> Any:
        values, places = x.sort(dim=1)
        top = x.topk(2, dim=1)
        return values, places, top.values, x.cumsum(0), x.median(), tg.histc(x, 4), x.argmax()  # break

    return Built(function, batch(tg))


@case()
def complex_and_integer_numbers(tg: Any) -> Built:
    def function(x: Any) -> Any:
        z = tg.complex(x, x + 1)
        n = (x * 10).long()
        return z * z.conj(), z.abs(), n // 3, n % 4, n << 1, (n > 0) & (n < 5), tg.fft.fft(x).real

    return Built(function, batch(tg))


@case()
def products_and_einsum(tg: Any) -> Built:
    def function(x: Any) -> Any:
        gram = x.t() @ x + tg.eye(4)
        return tg.einsum("ij,kj->ik", x, x), tg.linalg.inv(gram), tg.linalg.cholesky(gram), x @ gram, gram.det()

    return Built(function, batch(tg))


@case(calls=5)
def long_functions(tg: Any) -> Built:
    def function(x: Any) -> Any:
        for _ in range(520):
            x = x * 0.999 + 0.001
        return x.cumsum(0)

    return Built(function, lambda number, rng: (tg.tensor(rng.standard_normal(3)),))


@case()
def what_leaves_with_nothing(tg: Any) -> Built:
    def function(x: Any) -> Any:
        x.add(1).mul(2)
        return None

    return Built(function, batch(tg))
