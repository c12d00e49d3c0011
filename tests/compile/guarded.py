"""Functions whose Python is left out, or never is, and what a program changes between their calls."""

from __future__ import annotations

import random
import types
from collections import namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

from telegrad.compiler.guarded.calls import Calls

CALLS = 16
CHANGES = 9
"""The call before which something changes: by then calls are left out."""


class Guarded(NamedTuple):
    """A function, what it is given, and what changes it; ``is_left_out`` tells whether its Python ever is."""

    function: Callable[..., Any]
    arguments: Callable[[Any, int], tuple[Any, ...]]
    change: Callable[[int], Any]
    is_left_out: bool


BUILDERS: list[Callable[[Any], Guarded]] = []
SCALE = 2.0
Pair = namedtuple("Pair", ["first", "second"])


def given(x: Any, number: int) -> tuple[Any, ...]:
    return (x,)


def guarded(
    function: Callable[..., Any], change: Callable[[], Any] = lambda: None, arguments: Any = given,
    is_left_out: bool = True,
) -> Guarded:  # fmt: skip
    """Return a case in which ``change`` happens once."""
    return Guarded(function, arguments, lambda number: change() if number == CHANGES else None, is_left_out)


def builder(build: Callable[[Any], Guarded]) -> Callable[[Any], Guarded]:
    BUILDERS.append(build)
    return build


def calls_of(compiled: Any) -> Calls:
    """Return what a compiled function or module knows of its calls."""
    own = getattr(compiled, "_compiled_calls", None)
    return own if own is not None else compiled.__closure__[0].cell_contents  # type: ignore[no-any-return]


def called_often(function: Any, argument: Any, times: int = 12) -> Any:
    """Call a function often enough that its Python is left out; return its last result."""
    for _ in range(times):
        result = function(argument)
    return result


@builder
def global_number(tg: Any) -> Guarded:
    def function(x: Any) -> Any:
        return (x * SCALE).sin() + (x + SCALE).cos()

    namespace = {"SCALE": 2.0}
    made = types.FunctionType(function.__code__, namespace, "function")
    return guarded(made, lambda: namespace.update(SCALE=3.0))


@builder
def variable_around(tg: Any) -> Guarded:
    factor = 2.0

    def function(x: Any) -> Any:
        return (x * factor).sin() + (x - factor).exp()

    def change() -> None:
        nonlocal factor
        factor = -1.5

    return guarded(function, change)


@builder
def a_helper(tg: Any) -> Guarded:
    namespace: dict[str, Any] = {"helper": lambda x: x.sin() * 2}

    def function(x: Any) -> Any:
        return helper(x) + helper(x.cos()) * 0.5  # type: ignore[name-defined]  # noqa: F821

    made = types.FunctionType(function.__code__, namespace, "function")
    return guarded(made, lambda: namespace.update(helper=lambda x: x.exp()))


@builder
def integer_that_is_given(tg: Any) -> Guarded:
    def function(x: Any, power: int, shift: float = 0.0) -> Any:
        return x**power + (x * power).sin() + shift * x

    return guarded(function, arguments=lambda x, n: (x, 2 if n < CHANGES else 3, 0.0 if n < CHANGES + 3 else -0.0))


@builder
def boolean_and_integer(tg: Any) -> Guarded:
    def function(x: Any, flag: Any) -> Any:
        return (x.sin() + x.cos(), x.exp() + 1)[0 if flag is True else 1]

    return guarded(function, arguments=lambda x, n: (x, True if n < CHANGES else 1))


@builder
def list_that_is_given(tg: Any) -> Guarded:
    def function(xs: Any, weights: Any) -> Any:
        total = sum(x.sin() * w for x, w in zip(xs, weights))
        return {"total": total, "all": [x * 2 for x in xs], "first": xs[0]}

    return guarded(
        function, arguments=lambda x, n: ([x, x + 1] + [x] * (n > CHANGES), [1.0, 0.5, float(n > CHANGES + 3)])
    )


@builder
def the_same_tensor_twice(tg: Any) -> Guarded:
    def function(x: Any, y: Any) -> Any:
        return x * 2 + y.sin() * x.cos()

    return guarded(function, arguments=lambda x, n: (x, x) if n < CHANGES else (x, x * 2))


@builder
def a_global_tensor_is_given(tg: Any) -> Guarded:
    kept = tg.linspace(0, 1, 4)

    def function(x: Any) -> Any:
        return x * kept + kept.sin() - x.cos()

    return guarded(function, arguments=lambda x, n: (kept,) if n < CHANGES else (x,), is_left_out=False)


@builder
def a_kept_tensor_is_given_later(tg: Any) -> Guarded:
    kept = tg.linspace(0, 1, 4)

    def function(x: Any) -> Any:
        return x * kept + kept.sin() - x.cos()

    return guarded(function, arguments=lambda x, n: (x,) if n < CHANGES else (kept,))


@builder
def kept_result(tg: Any) -> Guarded:
    kept = tg.linspace(0, 1, 4)

    def function(x: Any) -> Any:
        kept.add_(0.25)
        return kept, x, (x + kept).sin(), None, "text"

    return guarded(function)


@builder
def views(tg: Any) -> Guarded:
    def function(x: Any) -> Any:
        y = x.sin() * 2
        return y, y.T, x.view(-1)[2:], y[0], y[0]

    def looked_at(x: Any) -> Any:
        y, transposed, part, first, again = function(x)
        first.mul_(3)
        return y, transposed, part, again

    del looked_at
    return guarded(function)


@builder
def argument_that_is_written(tg: Any) -> Guarded:
    def function(x: Any, cache: Any, at: Any) -> Any:
        cache.index_copy_(0, at, x[:1] * 2)
        cache[1:] += 0.5
        return (cache * x.sum()).sum(0)

    cache = tg.zeros(5, 4)
    return guarded(function, arguments=lambda x, n: (x, cache, tg.tensor([n % 5])))


@builder
def list_that_grows(tg: Any) -> Guarded:
    seen: list[Any] = []

    def function(x: Any) -> Any:
        seen.append(1)
        return x.sin() * len(seen) + x.cos()

    return guarded(function, is_left_out=False)


@builder
def attribute_that_counts(tg: Any) -> Guarded:
    class Counting(tg.nn.Module):
        """Counts its calls."""

        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x.sin() * self.count + x.cos()

    return guarded(Counting(), is_left_out=False)


@builder
def numbers_of_python(tg: Any) -> Guarded:
    own = random.Random(3)

    def function(x: Any) -> Any:
        return x.sin() * own.random() + x.cos()

    return guarded(function, is_left_out=False)


@builder
def iterator_around(tg: Any) -> Guarded:
    numbers = iter(range(1000))

    def function(x: Any) -> Any:
        for _, n in zip(range(2), numbers):
            x = x * 0.5 + n
        return x.sin()

    return guarded(function, is_left_out=False)


@builder
def iterator_that_is_given(tg: Any) -> Guarded:
    def function(x: Any, numbers: Any) -> Any:
        for n in numbers:
            x = x * 0.5 + n
        return x.sin()

    return guarded(function, arguments=lambda x, n: (x, iter([1, 2, 3])), is_left_out=False)


@builder
def list_that_is_kept_is_returned(tg: Any) -> Guarded:
    kept = [1, 2]

    def function(x: Any) -> Any:
        return x.sin() * 2 + x.cos(), kept

    return guarded(function, is_left_out=False)


@builder
def drawn_numbers(tg: Any) -> Guarded:
    def function(x: Any) -> Any:
        noise = tg.rand(4) + tg.randn_like(x)
        return tg.nn.functional.dropout(x * noise, 0.5), noise

    return guarded(function)


@builder
def blocks_of_modes(tg: Any) -> Guarded:
    weight = tg.ones(4, 4, requires_grad=True)

    def function(x: Any) -> Any:
        with tg.no_grad():
            scale = (x @ weight).abs().mean()
        with tg.autocast("cpu", dtype=tg.bfloat16):
            y = x @ weight
        return (y * scale).sum(), tg.is_grad_enabled()

    return guarded(function)


@builder
def forms_of_python(tg: Any) -> Guarded:
    config = {"depth": 3, "names": ("sin", "cos"), "pair": Pair(1, 2.0)}

    class Base(tg.nn.Module):
        """What the layer inherits."""

        def forward(self, x: Any, *, bias: float = 0.0) -> Any:
            return x + bias

    class Layer(Base):
        """Calls its parent."""

        @staticmethod
        def halved(x: Any) -> Any:
            return x / 2

        @classmethod
        def doubled(cls, x: Any) -> Any:
            return x * 2

        def forward(self, x: Any, *, bias: float = 0.0) -> Any:
            return self.doubled(super().forward(x, bias=bias)) + Layer.halved(x)

    layer = Layer()

    def function(x: Any, *rest: Any, **options: Any) -> Any:
        values = [getattr(x, name)() for name in config["names"]]
        values += [value * i for i, value in enumerate(values) if i % 2 == 0]
        named = {f"v{i}": value for i, value in enumerate(values)}
        (first, *others), depth = values, config["depth"]
        total: Any = first
        while depth > 0 and total is not None:
            total = total + others[depth % len(others)] if depth > 1 else total
            depth -= 1
        inner = lambda value, by=2: value * by

        def outer(value: Any) -> Any:
            return inner(value) + total

        if 0 < len(named) <= 5 and not options.get("negated") and hasattr(x, "sin") and not hasattr(layer, "missing"):
            total = outer(total)
        total[..., 1:3] += named["v0"][..., 1:3]
        total[0] = max(config["names"], key=lambda name: len(name)) == "sin"
        i = (half := len(values) // 2) + 1
        pair = config["pair"]._replace(first=half)
        return layer(total, bias=pair.second), [*values[1:i], x.shape[-1]], Pair(total.mean(), options.get("k", 1))

    return guarded(function, arguments=lambda x, n: (x, 1, "two"), change=lambda: config.update(depth=2))


@builder
def attention(tg: Any) -> Guarded:
    nn = tg.nn
    tg.manual_seed(7)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def function(x: Any) -> Any:
        return layer(x[None])

    return guarded(function, lambda: layer.eval())


@builder
def error_of_the_program(tg: Any) -> Guarded:
    limits = {"most": 10.0}

    def function(x: Any, size: float) -> Any:
        if size > limits["most"]:
            raise ValueError(f"size {size} is too large")
        return x.sin() * size + x.cos()

    return guarded(function, lambda: limits.update(most=1.0), arguments=lambda x, n: (x, 2.0))
