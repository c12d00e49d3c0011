"""Functions that have effects, or read what no condition tells of, through objects and functions of Python's own."""

from __future__ import annotations

from typing import Any

from .guarded import Guarded, builder, guarded


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
