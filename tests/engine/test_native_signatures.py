"""Signatures, metas and weights of calls are the same in C and in Python, whatever arguments a call has."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import context, signature
from server.engine.keys import AUTOGRAD, DOMAIN_SHIFT
from server.engine.operators import OPERATORS, Operator
from server.engine.replay import remembered
from server.engine.value import Value
from telegrad_protocol.dtypes import float32, int64
from telegrad_protocol.meta import CPU, Meta
from tests.ops.adapters import EngineAdapter
from tests.support.compilers import needs_calls_in_c

pytestmark = needs_calls_in_c
SCALARS = (0, 1, -1, 2**70, True, False, 0.0, -0.0, 1.0, 2.5, float("inf"), 0j, -0j, 1 + 2j, complex(-0.0, 0.0))
PLAIN = (None, True, False, 0, 3, (), (2, 3), "mean", float32, CPU)


@pytest.fixture
def values() -> list[Value]:
    adapter = EngineAdapter("cpu")
    made = [adapter.tensor(torch.ones(shape)) for shape in ((), (0,), (1,), (3,), (2, 3))]
    made[-1].keys |= AUTOGRAD
    return made


def _argument(rng: random.Random, kind: str, values: list[Value]) -> Any:
    """Something that a parameter of a kind is given, or something else that is as hard to tell."""
    if kind.startswith("tensors"):
        items = [rng.choice(values) for _ in range(rng.randrange(4))]
        return tuple([rng.choice((None, *SCALARS)) if rng.random() < 0.1 else item for item in items])
    if kind.startswith("tensor"):
        return rng.choice(values) if rng.random() < 0.7 else rng.choice((None, *SCALARS))
    return rng.choice(SCALARS) if rng.random() < 0.5 else rng.choice(PLAIN)


def _call(rng: random.Random, operator: Operator, values: list[Value]) -> tuple[Any, ...]:
    args = [_argument(rng, param.kind.name, values) for param in operator.op.params]
    if operator.is_unary:
        args[0] = rng.choice(values)
    return tuple(args)


def _told_apart(item: Any) -> Any:
    """Something that is equal only where the objects are the same, or classes and signs of zeros of numbers are."""
    if item.__class__ is tuple:
        return tuple(map(_told_apart, item))
    if isinstance(item, str):
        return item
    return (item.__class__, repr(item)) if isinstance(item, (bool, int, float, complex)) else id(item)


def test_signatures_are_the_same(
    values: list[Value], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert signature.signature_of is not signature.signature_in_python
    draw = random.Random(int(rng.integers(1 << 30)))
    monkeypatch.setattr(context.current, "included", context.current.included | 5 << DOMAIN_SHIFT)
    for operator in OPERATORS.values():
        for _ in range(4):
            args = _call(draw, operator, values)
            expected = signature.signature_in_python(operator, args)
            found = signature.signature_of(operator, args)
            assert _told_apart(found) == _told_apart(expected), (operator, args)
            assert found == expected and hash(found) == hash(expected)


def test_signatures_tell_signs_and_types_apart(values: list[Value]) -> None:
    add, value = OPERATORS["add"], values[3]
    made = [signature.signature_of(add, (value, number, 1))[1] for number in (0, 0.0, -0.0, False, 1, True, 1.0)]
    assert len(set(made)) == len(made)


def test_metas_stand_in_place_of_values(values: list[Value], rng: np.random.Generator) -> None:
    draw = random.Random(int(rng.integers(1 << 30)))

    def nested(depth: int) -> Any:
        if depth and draw.random() < 0.4:
            return tuple([nested(depth - 1) for _ in range(draw.randrange(4))])
        return draw.choice(values) if draw.random() < 0.5 else draw.choice(PLAIN)

    for _ in range(500):
        args = tuple([nested(3) for _ in range(draw.randrange(5))])
        expected = signature.metas_in_python(args)
        assert _told_apart(signature.metas_of(args)) == _told_apart(expected)


def test_entries_weigh_the_same(rng: np.random.Generator) -> None:
    draw, meta = random.Random(int(rng.integers(1 << 30))), Meta.of((2,), int64)

    def key(depth: int) -> tuple[Any, ...]:
        return tuple([key(depth - 1) if depth and draw.random() < 0.4 else meta for _ in range(draw.randrange(9))])

    for _ in range(500):
        items = key(4)
        assert remembered._items_in(items) == remembered._count(items)


def test_entries_belong_to_the_same_domains(values: list[Value], rng: np.random.Generator) -> None:
    draw = random.Random(int(rng.integers(1 << 30)))
    for _ in range(300):
        operator = draw.choice(list(OPERATORS.values()))
        context.current.domain = domain = draw.randrange(5)
        key_set, signed = signature.signature_of(operator, _call(draw, operator, values))
        context.current.domain = 0
        for key in (signed, (signed, 3), ((signed, None), 7), (float, 2), ("a", 1, key_set), key_set, None, ()):
            assert remembered.domain_of(key) == remembered._domain_of(key), key
        assert remembered.domain_of(signed) == domain


@pytest.mark.parametrize("key", [("a", 1), ("a", 1, "b"), ("a", 1, None)], ids=range(3))
def test_keys_of_no_domain_are_refused_as_in_python(key: tuple[Any, ...]) -> None:
    errors = []
    for domain_of in (remembered.domain_of, remembered._domain_of):
        with pytest.raises((TypeError, ValueError, IndexError)) as caught:
            domain_of(key)
        errors.append(caught.type)
    assert errors[0] is errors[1]


def test_tuples_in_tuples_without_end_are_refused() -> None:
    deep: tuple[Any, ...] = ()
    for _ in range(200_000):
        deep = (deep,)
    for read in (signature.metas_of, remembered._items_in):
        with pytest.raises(RecursionError):
            read((deep,))
    while deep:
        (deep,) = deep


def test_what_is_no_call_is_refused_as_in_python() -> None:
    with pytest.raises(TypeError):
        signature.signature_of(OPERATORS["add"])  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        signature.signature_of(OPERATORS["sin"], (3,))


def _with(**slots: Any) -> Value:
    """A value that has nothing else."""
    value = Value.__new__(Value)
    for name, what in slots.items():
        setattr(value, name, what)
    return value


@pytest.mark.parametrize("in_c", [False, True])
def test_calls_that_are_not_complete_raise_the_same(values: list[Value], in_c: bool) -> None:
    make, value = signature.signature_of if in_c else signature.signature_in_python, values[3]
    with pytest.raises(IndexError):
        make(OPERATORS["full"], ((2,),))
    with pytest.raises(TypeError):
        make(OPERATORS["sin"], (_with(meta=value.meta, keys="all"),))
    for incomplete in (_with(meta=value.meta), _with(keys=value.keys)):
        with pytest.raises(AttributeError):
            make(OPERATORS["cat"], ((value, incomplete), 0))


def test_lists_that_are_refused_leave_no_references(values: list[Value]) -> None:
    meta = values[3].meta
    refused, before = (values[3], _with(meta=meta, keys=1 << 80)), sys.getrefcount(meta)
    for _ in range(100):
        with pytest.raises(OverflowError):
            signature.signature_of(OPERATORS["cat"], (refused, 0))
    assert sys.getrefcount(meta) == before
