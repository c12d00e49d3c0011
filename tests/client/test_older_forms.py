"""Forms of older PyTorch, whose numbers stand before the tensors, against PyTorch's own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from telegrad._ops import warned_calls

from .twins import assert_same, evaluate

CALLS = [
    "t.ones(2, 2).add(2, t.eye(2))",
    "t.add(t.ones(2, 2), -0.5, t.eye(2))",
    "t.ones(2, 2).add_(-0.5, t.eye(2))",
    "t.ones(2, 2).sub(2, t.eye(2))",
    "t.ones(2, 2).sub_(2, t.eye(2))",
    "t.addcmul(t.ones(2), 2, t.arange(2.), t.arange(2.))",
    "t.ones(2).addcmul_(2, t.arange(2.), t.arange(2.))",
    "t.addcdiv(t.ones(2), 2, t.arange(2.), t.ones(2))",
    "t.ones(2).addcdiv_(-0.25, t.arange(2.), t.ones(2))",
    "t.addmm(0.5, t.ones(2, 2), 2, t.eye(2), t.eye(2))",
    "t.addmm(0.5, t.ones(2, 2), t.eye(2), t.eye(2))",
    "t.ones(2, 2).addmm(0.5, 2, t.eye(2), t.eye(2))",
    "t.ones(2, 2).addmm_(0.5, t.eye(2), t.eye(2))",
    "t.addmv(0.5, t.ones(2), 2, t.eye(2), t.ones(2))",
    "t.addr(0.5, t.ones(2, 2), 2, t.ones(2), t.ones(2))",
    "t.baddbmm(0.5, t.ones(1, 2, 2), 2, t.ones(1, 2, 2), t.ones(1, 2, 2))",
    "t.addbmm(0.5, t.ones(2, 2), 2, t.ones(1, 2, 2), t.ones(1, 2, 2))",
]


@pytest.fixture(autouse=True)
def _told() -> Iterator[None]:
    """The warning comes once in a process: have it come here, and not in the tests that follow."""
    before = warned_calls._told[:]
    yield
    warned_calls._told[:] = before


@pytest.mark.filterwarnings("ignore:This overload of")
@pytest.mark.parametrize("call", CALLS)
def test_numbers_may_stand_before_the_tensors(tg: Any, call: str) -> None:
    assert_same(*evaluate(call, tg))


def test_the_first_older_form_is_warned_of_once(tg: Any) -> None:
    warned_calls._told.clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tg.ones(2).add_(2, tg.ones(2))
        tg.ones(2).addcmul_(2, tg.ones(2), tg.ones(2))
    assert [str(warning.message).partition("\n")[0] for warning in told] == ["This overload of add_ is deprecated:"]
    assert told[0].filename == __file__


def test_gradients_flow_through_older_forms(tg: Any) -> None:
    warned_calls._told.append("add")
    x, y = (tg.ones(2, requires_grad=True) for _ in range(2))
    tg.add(x, 3, y).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([1.0, 1.0], [3.0, 3.0])
