"""Conditions of compiled functions notice each change, in C and in Python, and hold again once it is undone."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from types import CellType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from telegrad._native.binding import hold
from telegrad._session.parts.repeating import RepeatingQueue
from telegrad.compiler.guarded import record
from telegrad.compiler.guarded.conditions import Conditions
from telegrad.compiler.guarded.native_rows import KINDS

from ..support.compilers import needs_calls_in_c

CHECKS = 200


class Case(NamedTuple):
    """Something that a call has read: how that is noted, what changes it, and what undoes this."""

    note: Callable[[Conditions], None]
    change: Callable[[], object]
    undo: Callable[[], object]


def _of_dicts() -> Iterator[Case]:
    first: dict[Any, Any] = {"a": []}
    second, absent, whole = {"zero": 0.0, 7: "seven"}, {"a": 1}, {"a": 1, "b": [], "c": 2.5}
    value = first["a"]
    yield Case(lambda c: c.entry(first, "a", value), lambda: first.update(a=[]), lambda: first.update(a=value))
    yield Case(
        lambda c: c.entry(second, "zero", 0.0), lambda: second.update(zero=-0.0), lambda: second.update(zero=0.0)
    )
    yield Case(
        lambda c: c.entry(second, 7, "seven"), lambda: second.update({7: "x"}), lambda: second.update({7: "seven"})
    )
    yield Case(lambda c: c.no_entry(absent, "b"), lambda: absent.update(b=1), lambda: absent.pop("b"))
    last = whole["c"]
    yield Case(lambda c: c.content(whole), lambda: whole.pop("c"), lambda: whole.update(c=last))
    yield Case(lambda c: c.content(whole), lambda: whole.update(d=1), lambda: whole.pop("d"))
    empty: dict[str, int] = {}
    yield Case(lambda c: c.content(empty), lambda: empty.update(a=1), empty.clear)


def _of_lists() -> Iterator[Case]:
    one, inner, other = [1, [], "text"], [[], []], {1, 2}
    last = inner[1]
    yield Case(lambda c: c.element(one, 0, 1), lambda: one.__setitem__(0, True), lambda: one.__setitem__(0, 1))
    yield Case(lambda c: c.element(inner, -1, last), lambda: inner.append([]), inner.pop)
    yield Case(lambda c: c.content(inner), lambda: inner.__setitem__(1, []), lambda: inner.__setitem__(1, last))
    yield Case(lambda c: c.content(other), lambda: other.add(3), lambda: other.discard(3))


def _of_objects() -> Iterator[Case]:
    base, sibling = type("Base", (), {}), type("Sibling", (), {})
    own = type("Own", (base,), {"method": lambda self: None, "number": 3})
    plain, other = own(), type("Other", (base,), {})
    attributes = vars(plain)
    function = vars(own)["method"]
    yield Case(
        lambda c: c.kind(plain), lambda: setattr(plain, "__class__", other), lambda: setattr(plain, "__class__", own)
    )
    yield Case(
        lambda c: c.kind(plain), lambda: setattr(plain, "__dict__", {}), lambda: setattr(plain, "__dict__", attributes)
    )  # fmt: skip
    yield Case(lambda c: c.kind(plain), lambda: setattr(base, "more", 1), lambda: delattr(base, "more"))
    yield Case(lambda c: c.kind(sibling()), lambda: setattr(sibling, "more", 1), lambda: delattr(sibling, "more"))
    yield Case(
        lambda c: c.attribute(plain, "number", 3), lambda: setattr(plain, "number", 4), lambda: delattr(plain, "number")
    )
    yield Case(
        lambda c: c.attribute(plain, "method", plain.method), lambda: setattr(own, "method", len),
        lambda: setattr(own, "method", function),
    )  # fmt: skip


def _of_functions() -> Iterator[Case]:
    cell = CellType(1.5)

    def called(x: int = 1, *, y: Any = None) -> int:
        return x

    code, defaults, by_name = called.__code__, called.__defaults__, called.__kwdefaults__
    yield Case(
        lambda c: c.cell(cell, 1.5),
        lambda: setattr(cell, "cell_contents", 2.5),
        lambda: setattr(cell, "cell_contents", 1.5),
    )
    for name, value, another in (
        ("__code__", code, (lambda x=1, *, y=None: y).__code__), ("__defaults__", defaults, (2,)),
        ("__kwdefaults__", by_name, {"y": None}),
    ):  # fmt: skip
        yield Case(
            lambda c: c.code(called), lambda name=name, another=another: setattr(called, name, another),
            lambda name=name, value=value: setattr(called, name, value),
        )  # fmt: skip


def _of_tensors(tg: Any) -> Iterator[Case]:
    plain, parameter, viewed = tg.ones(2, 3), tg.nn.Parameter(tg.ones(3)), tg.ones(4)
    kept = viewed.view(2, 2)
    meta, other = plain._meta, tg.ones(3, 2)._meta
    yield Case(lambda c: c.tensor(plain), lambda: setattr(plain, "_meta", other), lambda: setattr(plain, "_meta", meta))
    yield Case(lambda c: c.tensor(plain), lambda: plain.requires_grad_(True), lambda: plain.requires_grad_(False))
    yield Case(
        lambda c: c.tensor(parameter), lambda: parameter.requires_grad_(False), lambda: parameter.requires_grad_(True)
    )
    yield Case(
        lambda c: c.tensor(parameter), lambda: setattr(parameter, "_is_inference", True),
        lambda: delattr(parameter, "_is_inference"),
    )  # fmt: skip
    shared, version = kept._aliases, kept._aliases.version
    yield Case(
        lambda c: c.tensor(kept), lambda: setattr(shared, "version", version + 1),
        lambda: setattr(shared, "version", version),
    )  # fmt: skip
    names, add = ("__add__", "__mul__"), vars(tg.Tensor)["__add__"]
    yield Case(
        lambda c: c.operators(tg.Tensor, names), lambda: setattr(tg.Tensor, "__add__", lambda a, b: a),
        lambda: setattr(tg.Tensor, "__add__", add),
    )  # fmt: skip


@pytest.fixture
def cases(tg: Any) -> list[Case]:
    return [*_of_dicts(), *_of_lists(), *_of_objects(), *_of_functions(), *_of_tensors(tg)]


def test_each_change_is_noticed(cases: list[Case], seed: int) -> None:
    rng = random.Random(seed)
    rng.shuffle(cases)
    conditions = Conditions()
    for case in cases:
        case.note(conditions)
    check, whole = conditions.check(), conditions.whole()
    for number, case in enumerate(cases):
        assert check() and whole(), number
        case.change()
        assert not (check() or whole()), number
        assert not check(), number
        case.undo()
    assert check()


def test_equal_numbers_and_texts_hold(tg: Any) -> None:
    holder, items, cell = {"a": 2.5, "b": 1 << 70, "c": "a text", "d": 1 + 2j}, [1 << 70, 0.5], CellType(b"bytes")
    conditions = Conditions()
    for key, value in holder.items():
        conditions.entry(holder, key, value)
    conditions.content(items)
    conditions.cell(cell, cell.cell_contents)
    check = conditions.check()
    holder.update(a=float("2.5"), b=int("1") << 70, c="".join(["a ", "text"]), d=complex("1+2j"))
    items[:] = [int("1") << 70, float("0.5")]
    cell.cell_contents = bytes(bytearray(b"bytes"))
    assert check()
    holder["a"] = 2  # such that the class differs, and in the next place the value
    assert not check()
    holder["a"], items[1] = 2.5, 0.25
    assert not check()


class Own:
    """An object of the program's, whose attributes lie in its dict."""

    a: Any = None


own = Own()
stored: Any = None


def _set_global(value: Any) -> None:
    global stored
    stored = value


def test_changes_by_instructions_that_python_has_specialised_are_noticed() -> None:
    attributes, entries, first, second = vars(own), {"a": None, "b": 1}, object(), object()

    def set_attribute(value: Any) -> None:
        own.a = value

    def set_item(value: Any) -> None:
        entries["a"] = value

    for owner, name, change in (
        (attributes, "a", set_attribute),
        (entries, "a", set_item),
        (globals(), "stored", _set_global),
    ):
        change(first)
        conditions = Conditions()
        conditions.entry(owner, name, first)
        check = conditions.check()
        for _ in range(100):
            change(first)
            assert check()
        change(second)
        assert not check()
        change(first)
        assert check()


def test_what_attributes_raise_is_raised() -> None:
    kind = type("Raising", (), {"number": 1})
    raising, conditions = kind(), Conditions()
    conditions.attribute(raising, "number", 1)
    check = conditions.check()
    assert check()
    kind.number = property(lambda self: 1 / 0)  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError):
        check()


@needs_calls_in_c
def test_what_usually_holds_is_compared_in_c(cases: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conditions, "whole", lambda self: lambda: False)
    for case in cases:
        conditions = Conditions()
        case.note(conditions)
        if not any("v0) is v1" in text for text in conditions._others):
            assert conditions.check()()


@needs_calls_in_c
def test_comparing_leaves_no_references(cases: list[Case]) -> None:
    conditions = Conditions()
    for case in cases:
        case.note(conditions)
    check = conditions._rows.check(hold)  # type: ignore[arg-type]

    def grown(changed: Callable[[], object]) -> int:
        changed()
        check()
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(CHECKS):
            check()
        return sys.getallocatedblocks() - before

    for case in cases:
        assert grown(case.change) < CHECKS / 4
        case.undo()
    assert grown(lambda: None) < CHECKS / 4


@needs_calls_in_c
def test_c_refuses_what_has_another_form() -> None:
    assert hold is not None
    for arguments in ((), ((), bytearray()), (((),) * len(KINDS), bytearray(8)), (((),) * len(KINDS), b"")):
        with pytest.raises(TypeError):
            hold(*arguments)  # type: ignore[arg-type]
    assert hold(((),) * len(KINDS), bytearray())


def test_numbers_of_inputs_are_those_of_tensors_as_they_are(tg: Any) -> None:
    given, kept = [tg.ones(2), tg.ones(3)], tg.nn.Parameter(tg.ones(4))
    ids_of = record._ids_of
    assert ids_of((1, kept, 0), given) == [given[1]._id, kept._id, given[0]._id]
    assert ids_of((), given) == []
    kept._id, before = given[0]._id, kept._id
    assert ids_of((kept,), []) == [given[0]._id]
    kept._id = before
    with pytest.raises(IndexError):
        ids_of((2,), given)
    with pytest.raises(AttributeError):
        ids_of((SimpleNamespace(),), given)


def test_numbers_are_taken_one_after_the_other() -> None:
    numbers = iter(range(5, 1000))
    assert [RepeatingQueue.take_numbers(numbers, count) for count in (1, 3, 300)] == [5, 6, 9]
    assert list(islice(numbers, 1)) == [309]
    with pytest.raises((ValueError, TypeError)):
        RepeatingQueue.take_numbers(iter(()), 1)
