"""Backward passes that stop at the client: what a client may not do is refused, and the session goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from telegrad_protocol.messages import (
    BeginPass,
    ClientNode,
    EndPass,
    ForwardGradient,
    Free,
    GiveGradients,
    SetRequiresGrad,
    TakeGradients,
    Watch,
)

from .driver import Talk, call, fails

X = np.arange(3, dtype=np.float32)
BEGIN = BeginPass(50, 0, (3,), (None,), (40,), None, False, False)


@pytest.fixture
def stopped(open_talk: Callable[..., Talk]) -> Talk:
    """A session whose pass 50 stands at the client's node 40, between the leaf 1 and the loss 3."""
    talk = open_talk()
    talk.upload(1, X)
    talk.send(SetRequiresGrad(1, True), call("detach", 2, 1), ClientNode(40, (1,), (2,)), call("sum", 3, 2), BEGIN)
    return talk


def test_a_pass_goes_on_with_what_the_client_gives(stopped: Talk) -> None:
    stopped.send(TakeGradients(50, 0, 40, (5,)), GiveGradients(50, 0, 40, (5,)), EndPass(50, 0, [(1, 6)], (), True))
    np.testing.assert_array_equal(stopped.read(6), np.ones(3))
    assert not stopped.session.state.passes


REFUSED: list[tuple[Any, str]] = [
    (EndPass(50, 0, [], (), True), "AutogradError"),
    (EndPass(51, 0, [], (), True), "UnknownIdError"),
    (TakeGradients(50, 0, 41, (5,)), "UnknownIdError"),
    (TakeGradients(50, 0, 40, (5, 6)), "ProtocolError"),
    (GiveGradients(50, 0, 40, ()), "ProtocolError"),
    (GiveGradients(50, 0, 40, (3, 3)), "ProtocolError"),
    (ClientNode(42, (1,), ()), "ProtocolError"),
    (ClientNode(42, (1,), (2,), (7,)), "ProtocolError"),
    (Watch(43, 99), "UnknownIdError"),
    (BeginPass(51, 0, (3,), (), (40,), None, False, False), "ProtocolError"),
    (ForwardGradient(0, (3,), (41,), (1,), (60,), False), "UnknownIdError"),
    (ForwardGradient(0, (3,), (40,), (), (60,), False), "ProtocolError"),
    (ForwardGradient(0, (3,), (40,), (1,), (), False), "ProtocolError"),
    (ForwardGradient(0, (3,), (40,), (3,), (60,), False), "ShapeError"),
]


@pytest.mark.parametrize(("message", "code"), REFUSED)
def test_what_does_not_fit_is_refused(stopped: Talk, message: Any, code: str) -> None:
    failure = fails(stopped, message)
    assert failure.code == code, failure.traceback
    stopped.resume()
    np.testing.assert_array_equal(stopped.read(1), X)


def test_freed_nodes_and_passes_are_forgotten(stopped: Talk) -> None:
    stopped.send(Free([40, 50]))
    np.testing.assert_array_equal(stopped.read(1), X)
    assert not stopped.session.state.stops
    assert not stopped.session.state.passes
