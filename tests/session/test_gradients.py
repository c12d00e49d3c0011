"""Backward passes and gradients as instructions of a session."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from telegrad_protocol.messages import (
    Backward,
    DropGrads,
    Free,
    Gradient,
    SetGrad,
    SetRequiresGrad,
)

from .driver import ONES, Talk, backward, call, fails


def _graph(talk: Talk) -> None:
    """Tensor 3 = sum(1 * 2), where 1 is a leaf."""
    talk.upload(1, ONES)
    talk.upload(2, 2 * ONES)
    talk.send(SetRequiresGrad(1, True), call("mul", 4, 1, 2), call("sum", 3, 4), Free([4]))


def test_gradients_get_the_clients_numbers(talk: Talk) -> None:
    _graph(talk)
    assert talk.send(backward()) == []
    np.testing.assert_array_equal(talk.read(9), 2 * ONES)


def test_a_backward_that_fails_leaves_the_gradients_that_are_there(talk: Talk) -> None:
    _graph(talk)
    talk.send(backward())
    assert fails(talk, backward()).code == "AutogradError"
    talk.resume()
    np.testing.assert_array_equal(talk.read(9), 2 * ONES)


def test_a_gradient_that_nothing_reached_is_absent(talk: Talk) -> None:
    _graph(talk)
    talk.upload(5, ONES)
    talk.send(SetRequiresGrad(5, True), backward(leaves=((1, 9), (5, 10))))
    assert talk.read(10).code == "NotComputedError"


def test_grad_names_its_results(talk: Talk) -> None:
    _graph(talk)
    talk.upload(5, ONES)
    talk.send(SetRequiresGrad(5, True), Gradient(0, (3,), (None,), (1, 5), (20, 21), False, False, True))
    np.testing.assert_array_equal(talk.read(20), 2 * ONES)
    assert talk.read(21).code == "NotComputedError"


@pytest.mark.parametrize(
    "message",
    [
        Backward(0, (3,), (), [(1, 9)], False, False),
        Backward(0, (3,), (None, None), [(1, 9)], False, False),
        Gradient(0, (3,), (None,), (1,), (), False, False, True),
        Gradient(0, (3,), (), (1,), (9,), False, False, True),
    ],
)
def test_counts_that_do_not_fit_are_malformed(talk: Talk, message: Any) -> None:
    _graph(talk)
    assert fails(talk, message).code == "ProtocolError"


def test_only_leaves_of_floating_type_can_be_told_to_require_grad(talk: Talk) -> None:
    _graph(talk)
    talk.upload(6, np.array([1]))
    assert fails(talk, SetRequiresGrad(6, True)).code == "DTypeError"
    talk.resume()
    assert fails(talk, SetRequiresGrad(3, False)).code == "AutogradError"
    talk.resume()
    assert talk.send(SetRequiresGrad(3, True), SetRequiresGrad(6, False)) == []


def test_gradients_can_be_set_and_dropped(talk: Talk) -> None:
    _graph(talk)
    talk.upload(5, 7 * ONES)
    talk.send(SetGrad(1, 5), backward(leaves=((1, 5),)))
    np.testing.assert_array_equal(talk.read(5), 9 * ONES)
    talk.upload(6, ONES[0])
    assert fails(talk, SetGrad(1, 6)).code == "ShapeError"


def test_gradients_of_many_can_be_dropped_at_once(talk: Talk) -> None:
    _graph(talk)
    talk.upload(5, ONES)
    talk.send(backward(), DropGrads([1, 5]), Free([9]))
    assert _gradient(talk, 1) is None
    assert set(talk.session.state.values) == {1, 2, 3, 5}


def test_all_gradients_that_are_there_are_dropped_also_in_a_session_that_failed(talk: Talk) -> None:
    _graph(talk)
    talk.upload(5, ONES)
    talk.send(SetGrad(5, 2), backward())
    assert fails(talk, DropGrads([99, 1])).code == "UnknownIdError"
    assert _gradient(talk, 1) is None
    assert _gradient(talk, 5) is not None
    talk.send(DropGrads([98, 5]))
    assert _gradient(talk, 5) is None


def _gradient(talk: Talk, id: int) -> Any:
    return talk.session.state.value(id).autograd.grad  # type: ignore[union-attr]
