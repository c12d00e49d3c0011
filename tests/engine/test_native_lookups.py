"""Lookups in C and in Python read calls in the same way: arguments, keys, and what cannot be read."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import context
from server.engine.keys import AUTOGRAD
from server.engine.lookup import Layout, make_lookup, make_lookup_in_python
from server.engine.operators import OPERATORS
from server.engine.value import Value
from tests.ops.adapters import EngineAdapter
from tests.support.compilers import needs_calls_in_c

pytestmark = needs_calls_in_c
NUMBERS = (0, 1, True, False, 0.0, -0.0, 2.5, float("nan"), 1 + 2j, 0j, complex(-0.0, 0.0), 1 << 70)
PLAIN = (None, 0, 3, "mean", (2, 3), ())


class _Noted:
    """What a lookup did with each call: what it could not read, or dispatched by a key that it had not met."""

    def __init__(self, make: Any, layout: Layout) -> None:
        self.operator = OPERATORS["add"]
        self.done: list[Any] = []
        self.lookup = make(self.operator, layout, self._uncached, self._dispatch)
        self.keys: list[Any] = []

    def _uncached(self, items: Any, table: Any = None) -> str:
        self.done = ["uncached", items, table]
        return "uncached"

    def _dispatch(self, operator: Any, args: Any, key: Any) -> str:
        self.done = ["dispatched", operator, args]
        self.keys.append(key)
        return "dispatched"


def _same(one: Any, other: Any) -> bool:
    """Whether two things are the same, as objects where they are values."""
    if one.__class__ is not other.__class__:
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return one is other or repr(one) == repr(other)


def _decode(item: Any) -> Any:
    if item == 3:
        raise ValueError("three")
    return -item if isinstance(item, (int, float)) else item


@pytest.fixture
def values() -> list[Value]:
    adapter = EngineAdapter("cpu")
    made = [adapter.tensor(torch.ones(shape)) for shape in ((), (1,), (3,), (2, 3), (2, 3))]
    made[-1].keys |= AUTOGRAD
    return made


def _layout(rng: random.Random, kinds: list[str], on_wire: bool) -> Layout:
    def of(name: str) -> tuple[int, ...]:
        return tuple([place for place, kind in enumerate(kinds) if kind == name])

    decoded = tuple([(place, _decode) for place in of("decoded")]) if on_wire else ()
    return Layout(
        of("tensor"), of("signed"), decoded, of("decoded") if on_wire and rng.random() < 0.5 else (), of("list")
    )


def _items(rng: random.Random, kinds: list[str], values: list[Value], on_wire: bool) -> Any:
    def tensor() -> Any:
        if rng.random() < 0.03:
            return rng.choice((None, 99, "x", 1.5))
        return rng.randrange(len(values)) if on_wire else rng.choice(values)

    items: list[Any] = []
    for kind in kinds:
        if kind == "list":
            held = [tensor() for _ in range(rng.choice((0, 1, 3, 64, 65)) if rng.random() < 0.3 else 2)]
            items.append(held if on_wire else tuple(held))
        else:
            items.append(tensor() if kind == "tensor" else rng.choice(NUMBERS if kind != "plain" else PLAIN))
    return items if on_wire else tuple(items)


@pytest.mark.parametrize("on_wire", [False, True])
def test_lookups_read_calls_in_the_same_way(values: list[Value], rng: np.random.Generator, on_wire: bool) -> None:
    choose = random.Random(int(rng.integers(1 << 31)))
    table = SimpleNamespace(values=dict(enumerate(values)))
    for _ in range(150):
        kinds = choose.choices(["tensor", "tensor", "signed", "decoded", "list", "plain"], k=choose.randrange(6))
        layout = _layout(choose, kinds, on_wire)
        in_c, in_python = _Noted(make_lookup, layout), _Noted(make_lookup_in_python, layout)
        for _ in range(30):
            items = _items(choose, kinds, values, on_wire)
            given = (items, table) if on_wire else (items,)
            before = repr(items)
            assert in_c.lookup(*given) == in_python.lookup(*given)
            assert _same(in_c.done, in_python.done), items
            assert repr(items) == before
        for one in range(len(in_c.keys)):
            for other in range(one):
                is_one = in_python.keys[one] == in_python.keys[other]
                assert (in_c.keys[one] == in_c.keys[other]) == is_one


def test_what_is_kept_by_a_key_executes_the_call_unless_steps_are_traced(values: list[Value]) -> None:
    noted = _Noted(make_lookup, Layout((0, 1)))
    args = (values[2], values[3], 1)
    assert noted.lookup(args) == "dispatched"
    noted.operator.runs[noted.keys[0]] = lambda args: ("run", args)
    try:
        assert noted.lookup(args) == ("run", args)
        assert noted.lookup((*args[:2], 2)) == "dispatched"
        context.current.trace = []
        assert noted.lookup(args) == "dispatched"
    finally:
        context.current.trace = None
        del noted.operator.runs[noted.keys[0]]


def test_an_error_of_what_executes_a_call_is_the_callers(values: list[Value]) -> None:
    def fail(operator: Any, args: Any, key: Any) -> None:
        raise ZeroDivisionError

    lookup = make_lookup(OPERATORS["add"], Layout((0,)), lambda items, table: pytest.fail("it can be read"), fail)
    with pytest.raises(ZeroDivisionError):
        lookup((values[0],))
    with pytest.raises(TypeError, match="unhashable"):
        lookup((values[0], []))
