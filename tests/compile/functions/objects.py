"""Python's own forms and objects of a program's classes: what they do in a call happens once in each."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import itertools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..harness import Built, batch, case


@case()
def generators_that_are_sent_values(tg: Any) -> Built:
    def totals() -> Any:
        total = tg.zeros(4)
        while True:
            row = yield total
            if row is None:
                return
            total = total + row

    def function(x: Any) -> Any:
        running = totals()
        next(running)
        sums = [running.send(row) for row in x]
        running.close()
        return sums

    return Built(function, batch(tg))


@case()
def generators_that_outlive_the_call(tg: Any) -> Built:
    kept: list[Any] = []
    by = [1.0]

    def function(x: Any) -> Any:
        y = x.sin()
        kept[:] = [y * number * by[0] for number in range(2)], (y + number * by[0] for number in range(3))
        by[0] += 1
        return y

    return Built(function, batch(tg), lambda: [kept[0], list(kept[1])])


@dataclasses.dataclass
class State:
    """What is carried from step to step."""

    hidden: Any
    step: int = 0
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def norm(self) -> Any:
        return self.hidden.square().sum()

    def after(self, x: Any) -> State:
        return dataclasses.replace(self, hidden=self.hidden * 0.5 + x.sum(0), step=self.step + 1)


@case()
def dataclasses_that_are_replaced(tg: Any) -> Built:
    last = [State(tg.zeros(4))]

    def function(state: Any, x: Any) -> Any:
        following = state.after(x)
        following.notes["norm"] = following.norm
        last[0] = following
        return following.hidden * following.step

    return Built(function, lambda number, rng: (last[0], *batch(tg)(number, rng)), lambda: [vars(last[0])])


class Rows(enum.IntEnum):
    """How many rows there are."""

    TWO = 2
    FOUR = 4


class Parts(enum.Flag):
    """What is added."""

    SINE = enum.auto()
    COSINE = enum.auto()


@case(calls=15)
def enumerations(tg: Any) -> Built:
    def function(x: Any, rows: Any, parts: Any) -> Any:
        y = x.reshape(rows, -1) * rows
        if parts & Parts.SINE:
            y = y + y.sin()
        if Parts.COSINE in parts:
            y = y * y.cos()
        return {parts: y, rows: tg.zeros(rows, 2)}

    def arguments(number: int, rng: np.random.Generator) -> Any:
        x = tg.tensor(rng.standard_normal((2, 4)).astype("f"))
        return x, Rows.TWO if number < 10 else Rows.FOUR, Parts.SINE if number % 10 < 5 else ~Parts.SINE

    return Built(lambda *given: list(function(*given).values()), arguments)


@case()
def dicts_that_are_changed(tg: Any) -> Built:
    def function(given: Any) -> Any:
        ordered = OrderedDict(given)
        ordered.move_to_end("a")
        key, value = ordered.popitem(last=False)
        ordered[f"{key}_"] = value * 2
        given["sum"] = given["a"] + given["b"] * 2
        given["count"] = given.get("count", 0) + 1
        return ordered, given.pop("b").sin()

    def arguments(number: int, rng: np.random.Generator) -> Any:
        (x,) = batch(tg)(number, rng)
        return ({"a": x, "b": x + 1} if number % 5 else {"b": x, "a": x + 1, "count": number},)

    return Built(function, arguments)


@case()
def other_containers(tg: Any) -> Built:
    recent: deque[Any] = deque(maxlen=3)

    def function(x: Any) -> Any:
        grouped = defaultdict(list)
        for number, row in enumerate(x):
            grouped[number % 2].append(row * 2)
        recent.append(x.sum())
        pairs = [a * b for a, b in itertools.combinations(x.unbind(), 2)]
        return {key: sum(rows) for key, rows in grouped.items()}, sum(recent), pairs, list(itertools.accumulate(x))

    return Built(function, batch(tg), lambda: list(recent))


class Doubled:
    """A descriptor whose value is twice what was assigned."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"_{name}"

    def __get__(self, owner: Any, kind: type) -> Any:
        return getattr(owner, self.name) * 2

    def __set__(self, owner: Any, value: float) -> None:
        setattr(owner, self.name, value)


class Gauge:
    """Has a property that counts its assignments, and a descriptor."""

    by = Doubled()

    def __init__(self) -> None:
        self.by, self.sets, self.kept = 1.5, 0, 0.0

    @property
    def level(self) -> float:
        return self.kept + 1

    @level.setter
    def level(self, value: float) -> None:
        self.kept, self.sets = value, self.sets + 1

    def __call__(self, x: Any, *, more: float = 0.0) -> Any:
        self.level = self.level + more
        return x * self.by + self.level

    def __len__(self) -> int:
        return self.sets + 1

    def __getitem__(self, place: int) -> float:
        return self.kept * place


@case(calls=10)
def properties_and_descriptors(tg: Any) -> Built:
    gauge = Gauge()

    def function(x: Any, by: float) -> Any:
        gauge.by = by
        return gauge(x).sin() + gauge(x, more=0.5) * len(gauge) + gauge[2]

    return Built(function, lambda number, rng: (*batch(tg)(number, rng), 1.5 + number // 5), lambda: vars(gauge))


@case(calls=12)
def blocks_of_the_program(tg: Any) -> Built:
    told: list[Any] = []

    @contextlib.contextmanager
    def scaled(by: float) -> Iterator[float]:
        told.append(by)
        try:
            yield by * 2
        except ValueError as error:
            told.append(str(error))
        finally:
            told.append("left")

    def function(x: Any, fails: int) -> Any:
        with scaled(1.5) as by:
            y = x * by
            if fails == 1:
                raise ValueError("swallowed")
            if fails == 2:
                raise KeyError("passed on")
            return y.sin()
        return x - 1

    return Built(function, lambda number, rng: (*batch(tg)(number, rng), number % 3 if number > 5 else 0), lambda: told)


@case(calls=12)
def loops_that_are_left(tg: Any) -> Built:
    told: list[int] = []

    def function(x: Any, last: int) -> Any:
        for number in range(4):
            try:
                if number == last:
                    break
                if number == 1:
                    continue
                x = x * 1.5 + number
            finally:
                told.append(number)
                x = x + 0.25
        else:
            x = x.sin()
        while (last := last + 1) < 4:
            x = x * 0.9
        return x, last

    return Built(function, lambda number, rng: (*batch(tg)(number, rng), 9 if number < 6 else number % 4), lambda: told)


@case(calls=12)
def errors_with_causes(tg: Any) -> Built:
    def seen_as(x: Any, rows: int) -> Any:
        try:
            return x.view(rows, -1) * 2
        except RuntimeError as error:
            raise LookupError(f"{rows} rows") from error

    def function(x: Any, rows: int) -> Any:
        try:
            return seen_as(x, rows).sin()
        except LookupError as error:
            return str(error), isinstance(error.__cause__, RuntimeError)

    return Built(function, lambda number, rng: (tg.tensor(rng.standard_normal(6)), (2, 3, 4)[number % 3]))


@case(calls=10)
def patterns(tg: Any) -> Built:
    def function(x: Any, command: Any) -> Any:
        match command:
            case ("scale", by):
                return x * by + x.sin()
            case {"shift": by, **others}:
                return x + by + len(others)
            case int(number) if number > 3:
                return x**number
            case _:
                return -x

    commands = ("scale", 2.0), {"shift": 3, "more": 1}, 4, 2, None
    return Built(function, lambda number, rng: (*batch(tg)(number, rng), commands[number % 5]))


@case(calls=10)
def tables_that_are_kept(tg: Any) -> Built:
    made: list[int] = []

    @functools.cache
    def table(size: int, base: float = 10.0) -> Any:
        made.append(size)
        return base ** (-tg.arange(size) / size)

    def function(x: Any) -> Any:
        return x.sin() * table(x.shape[1]) + x.cos() * table(x.shape[1], base=5.0)

    return Built(function, batch(tg), lambda: made)


@case()
def nested_arguments(tg: Any) -> Built:
    from telegrad.utils import _pytree

    def doubled(one: Any) -> Any:
        return one.sin() * 2 if isinstance(one, tg.Tensor) else one * 2

    def arguments(number: int, rng: np.random.Generator) -> Any:
        (x,) = batch(tg)(number, rng)
        return ({"a": [x, (x + 1, 4)], "b": {"c": x * 2, "d": "text", "e": number // 5}},)

    return Built(lambda tree: _pytree.tree_map(doubled, tree), arguments)
