"""What decides how a program runs, and what its executable takes of the inputs of a run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from server.engine.context import Context
from server.engine.programs.analysis import shared_memory
from server.engine.programs.described import modifications, versions_of
from server.engine.value import AutogradMeta, Value
from server.session.programs.compiled import Given, Number, Taken
from server.session.programs.situations import situation
from telegrad_protocol.dtypes import float32
from telegrad_protocol.meta import Device, Meta

from .queued import GPU, queued_host

CPU = Device("cpu")


@pytest.fixture
def state() -> Any:
    return SimpleNamespace(context=Context(queued_host()[0].backends), histories={})


def _value(device: Device = GPU, shape: tuple[int, ...] = (2, 3)) -> Value:
    backend: Any = queued_host()[0].backends[device]
    value: Value = backend.empty(Meta.of(shape, float32, backend.device))
    return value


def _leaf(gradient: Value | None = None, node: Any = None) -> Value:
    value = _value()
    value.autograd = AutogradMeta(True, node)
    value.autograd.grad = gradient
    return value


def test_a_situation_is_the_same_for_inputs_of_the_same_kinds(state: Any) -> None:
    makers: list[Callable[[], Value]] = [_value, _leaf, lambda: _leaf(_value())]
    for make in makers:
        assert situation(state, [make(), _value()], True) == situation(state, [make(), _value()], True)


def test_situations_tell_apart_what_decides_how_a_program_runs(state: Any) -> None:
    shared = _value()
    kinds = [
        [_value(), _value()], [_value(), _value(shape=(3, 2))], [shared, shared.alias()], [_leaf(), _value()],
        [_value(), _leaf()], [_leaf(), _leaf()], [_leaf(_value()), _leaf()], [_leaf(), _leaf(_value())],
        [_leaf(_value(shape=(3, 2))), _leaf()], [_leaf(node=object()), _leaf()], [_leaf(shared), shared],
    ]  # fmt: skip
    found = [situation(state, values, False) for values in kinds]
    assert None not in found and len(set(found)) == len(kinds)


def test_instructions_are_executed_where_a_run_as_one_would_be_another(state: Any) -> None:
    view = _leaf()
    view.base = _value()
    assert situation(state, [_leaf(node=object())], False) is not None
    refused: list[tuple[list[Any], bool]] = [
        ([_leaf(node=object())], True), ([view], False), ([_value(), None], False), ([_value(), _value(CPU)], False)
    ]  # fmt: skip
    for values, has_passes in refused:
        assert situation(state, values, has_passes) is None


def test_memory_is_shared_by_views_of_it_and_not_by_empty_tensors() -> None:
    one, empty, other_empty = _value(), _value(shape=(0,)), _value(shape=(0,))
    assert shared_memory([one, empty, 1.5, one.alias(), other_empty]) == (0, 1, 2, 0, 3)


def test_modifications_are_counted_by_the_first_input_in_their_memory() -> None:
    one, other = _value(), _value()
    values = [1.5, one, other, one.alias()]
    before = versions_of(values)
    one.storage.version += 2
    assert modifications(values, before) == [(1, 2)]


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_taken_of_a_run(count: int) -> None:
    gradient = _value()
    values = [_leaf(gradient), *[_value() for _ in range(count)]]
    template: Any = SimpleNamespace(argument=lambda row, position: [row + position])
    given = [*[Given(place, False) for place in range(count, 0, -1)], Given(0, True), None, Number(2, 3)]
    taken = Taken(given).of(values, template)
    assert [id(one) for one in taken[:-1]] == [*[id(value) for value in values[:0:-1]], id(gradient), id(None)]
    assert taken[-1] == 5
    assert Taken([Number(2, 3)]).of([], template) == [5]
