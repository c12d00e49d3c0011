"""Gradients that calls of compiled functions change, by rows: in C and in Python, whatever else the program does."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from telegrad._native.binding import change_gradients, gradients_hold
from telegrad._tensor.tensor import new_tensor
from telegrad.compiler.guarded import gradients
from telegrad.compiler.guarded.gradients import WIDTH

from ..support.compilers import needs_calls_in_c

Change = Callable[..., None]
FAR: int = 1 << 40
"""The server knows no tensors of such numbers, and is told of none: all that have them die in a change."""


@pytest.fixture(params=["in Python", pytest.param("in C", marks=needs_calls_in_c)])
def change(request: pytest.FixtureRequest) -> Change:
    function = gradients._change_in_python if request.param == "in Python" else change_gradients
    assert function is not None

    def changed(rows: tuple[Any, ...], session: Any, first: int, found: list[Any] | None = None) -> None:
        function(rows, session, first, found or [leaf._grad for leaf in rows[::WIDTH]])

    return changed


def _leaves(tg: Any, count: int) -> list[Any]:
    """Leaves whose gradients nothing else refers to."""
    leaves = [tg.ones(2, requires_grad=True) for _ in range(count)]
    for number, leaf in enumerate(leaves):
        leaf._grad = new_tensor(leaf._session, FAR + number, leaf._meta)
    return leaves


def _dying(leaves: list[Any]) -> tuple[Any, ...]:
    """The rows of a call in which all gradients die."""
    return tuple([part for leaf in leaves for part in (leaf, True, None, 0)])


@needs_calls_in_c
def test_gradients_that_hold_do_so_in_both(tg: Any) -> None:
    assert gradients_hold is not None
    leaves = _leaves(tg, 2)
    rows, session = _dying(leaves), leaves[0]._session
    for find in (gradients_hold, gradients._hold_in_python):
        found = find(rows, session)
        assert found is not None and [one is leaf._grad for one, leaf in zip(found, leaves, strict=True)] == [True] * 2
        found = None
    held = leaves[1]._grad
    assert gradients_hold(rows, session) is gradients._hold_in_python(rows, session) is None
    del held
    found = gradients_hold(rows, session)
    gradients._change_in_python(rows, session, 0, found)
    assert gradients_hold(rows, session) is gradients._hold_in_python(rows, session) is None


def test_who_is_told_of_a_death_may_drop_other_gradients(tg: Any, change: Change) -> None:
    leaves, told = _leaves(tg, 3), []

    def drop(_: object) -> None:
        told.append([leaf._grad for leaf in leaves])
        for leaf in leaves:
            leaf.grad = None

    watched = [weakref.ref(leaf._grad, drop) for leaf in leaves]
    change(_dying(leaves), leaves[0]._session, FAR)
    assert told == [[None] * 3] * 3
    assert [one() for one in watched] == [None] * 3


def test_a_gradient_that_the_program_has_dropped_meanwhile_is_freed_by_the_run_alone(tg: Any, change: Change) -> None:
    first, second = leaves = _leaves(tg, 2)
    found = [leaf._grad for leaf in leaves]
    first._grad = None
    change(_dying(leaves), second._session, FAR, found)
    assert first._grad is second._grad is None
    assert [one._id for one in found] == [0, 0], "whoever drops them would free them again"


def test_a_gradient_that_the_program_has_given_meanwhile_keeps_its_number(tg: Any, change: Change) -> None:
    first, second = leaves = _leaves(tg, 2)
    found, given = [leaf._grad for leaf in leaves], new_tensor(first._session, FAR + 7, first._meta)
    first._grad = given
    change(_dying(leaves), second._session, FAR, found)
    assert first._grad is None and given._id == FAR + 7
    assert [one._id for one in found] == [0, 0]
    given._id = 0


def test_a_number_that_there_is_none_of_leaves_all_as_it_was(tg: Any, change: Change) -> None:
    leaf, other = _leaves(tg, 2)
    rows = (leaf, True, leaf._meta, "one", other, True, None, 0)
    with pytest.raises(TypeError):
        change(rows, leaf._session, FAR)
    assert other._grad._id == FAR + 1
    for one in (leaf, other):
        one._grad._id = 0


def test_new_gradients_have_numbers_at_their_distances(tg: Any, change: Change) -> None:
    leaf, other = tg.ones(2, requires_grad=True), tg.ones(3, requires_grad=True)
    first = 1 << 62
    change((leaf, None, leaf._meta, first, other, None, other._meta, 5), leaf._session, first)
    made = [leaf._grad, other._grad]
    assert [(one._id, one._meta, one._session) for one in made] == [
        (2 * first, leaf._meta, leaf._session), (first + 5, other._meta, leaf._session),
    ]  # fmt: skip
    for one in made:
        one._id = 0
