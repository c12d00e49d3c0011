"""Functions that have effects, or read what no condition tells of, through objects and functions of Python's own."""

from __future__ import annotations

import functools
from collections import namedtuple
from typing import Any, NamedTuple

from .guarded import CALLS, CHANGES, Guarded, builder, guarded


@builder
def layers_that_are_mapped(tg: Any) -> Guarded:
    nn = tg.nn
    tg.manual_seed(11)
    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))

    def function(x: Any) -> Any:
        first, second = map(layer, [x, x + 1])
        return first.sin() + second.cos()

    return guarded(function, lambda: layer.eval(), is_left_out=False)


@builder
def attribute_of_a_tensor(tg: Any) -> Guarded:
    kept = tg.linspace(0, 1, 4)

    def function(x: Any) -> Any:
        return (x.sin() if hasattr(kept, "is_special") else x.cos()) * kept + x

    return guarded(function, lambda: setattr(kept, "is_special", True), is_left_out=False)


class Counter:
    """Counts how often it was asked for a product, and what was assigned to its elements."""

    def __init__(self) -> None:
        self.count = 0

    def __rmul__(self, other: Any) -> Any:
        self.count += 1
        return other + self.count

    def __setitem__(self, index: int, value: float) -> None:
        self.count += index

    def __repr__(self) -> str:
        return "*" * self.count


@builder
def operator_of_an_object(tg: Any) -> Guarded:
    counter = Counter()

    def function(x: Any) -> Any:
        return x.sin() + 2.0 * counter - x.cos()

    return guarded(function, is_left_out=False)


@builder
def assignment_to_an_object(tg: Any) -> Guarded:
    counter = Counter()

    def function(x: Any) -> Any:
        counter[1] = 2.0
        return x.sin() * 2 + x.cos() + counter.count

    return guarded(function, is_left_out=False)


@builder
def text_of_an_object(tg: Any) -> Guarded:
    counter = Counter()

    def function(x: Any) -> Any:
        return x.sin() * len(f"{counter}!") + x.cos()

    return guarded(function, lambda: setattr(counter, "count", 3), is_left_out=False)


@builder
def class_that_is_mapped(tg: Any) -> Guarded:
    made: list[Any] = []

    class Noted(float):
        """A number that tells that it was made."""

        def __new__(cls, value: float) -> Any:
            made.append(value)
            return super().__new__(cls, value + len(made))

    def function(x: Any) -> Any:
        return x.sin() * sum(map(Noted, [1.0, 2.0])) + x.cos()

    return guarded(function, is_left_out=False)


@builder
def attributes_that_are_replaced(tg: Any) -> Guarded:
    kept = SimpleObject()

    def function(x: Any) -> Any:
        return x.sin() * kept.number + x.cos() - x

    return guarded(function, lambda: setattr(kept, "__dict__", {"number": 3.0}))


class SimpleObject:
    """Has a number."""

    def __init__(self) -> None:
        self.number = 2.0


@builder
def layers_of_a_list_that_are_replaced(tg: Any) -> Guarded:
    nn = tg.nn
    kept = nn.ModuleList([nn.Tanh(), nn.Sigmoid()])

    def function(x: Any) -> Any:
        for layer in kept:
            x = layer(x * 2) + x
        return x

    return guarded(function, lambda: setattr(kept, "_modules", {"0": nn.ReLU()}))


@builder
def wrapper_of_a_compiled_function(tg: Any) -> Guarded:
    compiled = tg.compile(lambda x: x.sin() * 2 + x.cos() - x)

    @functools.wraps(compiled)
    def wrapper(x: Any) -> Any:
        return compiled(x) * 3

    return guarded(wrapper)


@builder
def wrapper_that_is_called(tg: Any) -> Guarded:
    compiled = tg.compile(lambda x: x.sin() * 2 + x.cos() - x)
    factors = [3.0]

    @functools.wraps(compiled)
    def wrapper(x: Any) -> Any:
        return compiled(x) * factors[0]

    def function(x: Any) -> Any:
        return wrapper(x) + x

    return guarded(function, lambda: factors.__setitem__(0, 5.0))


@builder
def class_of_a_named_tuple(tg: Any) -> Guarded:
    class Scaled(NamedTuple):
        """A pair with more than its members."""

        first: float
        second: float
        unit = 2.0

        def of(self, x: Any) -> Any:
            return x * self.first + self.second

    kept = Scaled(1.0, 2.0)

    def function(x: Any) -> Any:
        return kept.of(x).sin() * kept.unit - x.cos()

    def change(number: int) -> None:
        if number == CHANGES:
            Scaled.unit = 5.0
        if number == CHANGES + 4:
            Scaled.of = lambda self, x: x

    return Guarded(function, lambda x, number: (x,), change, True)


@builder
def attribute_of_a_named_tuple(tg: Any) -> Guarded:
    kept: Any = type("Open", (namedtuple("Pair", ["first", "second"]),), {})(1.0, 2.0)
    kept.extra = 3.0

    def function(x: Any) -> Any:
        return x.sin() * kept.extra + kept.first - x.cos()

    return guarded(function, lambda: setattr(kept, "extra", 9.0), is_left_out=False)


@builder
def named_tuple_that_counts(tg: Any) -> Guarded:
    made: list[Any] = []

    class Counted(namedtuple("Counted", ["value"])):
        """Notes that it was made."""

        def __new__(cls, value: Any) -> Any:
            made.append(1)
            return super().__new__(cls, value)

    def function(x: Any) -> Any:
        return Counted(x.sin() * 2 - x.cos()).value + x

    case = guarded(function, is_left_out=False)
    return case._replace(arguments=lambda x, number: (x + len(made),))


@builder
def method_of_another_object(tg: Any) -> Guarded:
    class Scale:
        """Multiplies by a number."""

        def __init__(self, by: float) -> None:
            self.by = by

        def apply(self, x: Any) -> Any:
            return x.sin() * self.by + x.cos() - x

    class Holder:
        """Has the method of another object as an attribute."""

        apply = Scale(2.0).apply

    def function(x: Any) -> Any:
        return Holder.apply(x) + x

    return guarded(function, lambda: setattr(Holder, "apply", Scale(5.0).apply))


@builder
def whether_a_view_is_given(tg: Any) -> Guarded:
    kept = tg.ones(3, 4)

    def function(x: Any) -> Any:
        return x.sin() * (2 if x._is_view() else 3) * (2 if x.is_set_to(kept) else 3) + x.cos()

    return guarded(
        function, arguments=lambda x, number: (x if number < CHANGES else kept.view(3, 4),), is_left_out=False
    )


@builder
def setting_of_the_process(tg: Any) -> Guarded:
    before = tg.get_num_threads()

    def function(x: Any) -> Any:
        tg.set_num_threads(before)
        return x.sin() * 2 + x.cos() - x

    def arguments(x: Any, number: int) -> tuple[Any, ...]:
        threads = tg.get_num_threads()  # what the call before has set
        tg.set_num_threads(before + 1 if number < CALLS - 1 else before)
        return (x * (1 if number == 0 else threads),)

    return guarded(function, arguments=arguments, is_left_out=False)


@builder
def type_that_autocast_is_given(tg: Any) -> Guarded:
    weight = tg.linspace(-1, 1, 16).reshape(4, 4)

    def function(x: Any) -> Any:
        with tg.autocast("cpu"):
            return (x @ weight).float() + x - x.cos()

    def change(number: int) -> None:
        if number in (CHANGES, CHANGES + 3):
            tg.set_autocast_dtype("cpu", tg.float16 if number == CHANGES else tg.bfloat16)

    return Guarded(function, lambda x, number: (x,), change, True)
