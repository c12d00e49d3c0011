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
    Query,
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


@pytest.fixture
def hooked(open_talk: Callable[..., Talk]) -> Talk:
    """A session with a node of ``mul``, stops 10 and 11, two steps behind the loss 4."""
    talk = open_talk()
    talk.upload(1, X)
    talk.send(SetRequiresGrad(1, True), call("mul", 2, 1, 1), call("sin", 3, 2), call("sum", 4, 3))
    outputs, edges, saved = talk.ask("find_node", 10, 11, 4, None, [["sum", 1, 0], ["sin", 1, 0]], "mul")
    assert [len(outputs), len(edges)] == [1, 2]
    assert {name for name, kind, _ in saved if kind == "tensor"} == {"self", "other"}
    return talk


def test_a_pass_stops_before_a_node_and_behind_it(hooked: Talk) -> None:
    hooked.send(
        BeginPass(50, 0, (4,), (None,), (10, 11), None, False, False), TakeGradients(50, 0, 10, (5,)),
        GiveGradients(50, 0, 10, (5,)), TakeGradients(50, 0, 11, (6, 7)), GiveGradients(50, 0, 11, (6, None)),
        EndPass(50, 0, [(1, 8)], (), True),
    )  # fmt: skip
    np.testing.assert_allclose(hooked.read(8), np.cos(X * X) * X, rtol=1e-6)
    assert fails(hooked, Query(1, "saved_tensor", [10, "self", 0, 9])).code == "AutogradError"  # it was freed
    hooked.resume()
    hooked.send(Free([10, 11]))
    assert not hooked.session.state.stops


MISUSED: list[tuple[Any, str]] = [
    (TakeGradients(50, 0, 11, (6, 7)), "ProtocolError"),
    (TakeGradients(50, 0, 10, (6, 7)), "ProtocolError"),
    (GiveGradients(50, 0, 10, (3, 3)), "ProtocolError"),
    (GiveGradients(50, 0, 10, (4,)), "AutogradError"),
    (EndPass(50, 0, [], (), True), "AutogradError"),
]


@pytest.mark.parametrize(("message", "code"), MISUSED)
def test_stops_at_a_node_are_passed_in_their_order(hooked: Talk, message: Any, code: str) -> None:
    hooked.send(BeginPass(50, 0, (4,), (None,), (10, 11), None, False, False))
    hooked.upload(3, np.ones((2, 2), np.float32))
    hooked.upload(4, np.ones((5, 5), np.float32))
    failure = fails(hooked, message)
    assert failure.code == code, failure.traceback
    hooked.resume()
    np.testing.assert_array_equal(hooked.read(1), X)


QUESTIONS: list[tuple[str, list[Any], str]] = [
    ("find_node", [20, 21, 99, None, [], "sum"], "UnknownIdError"),
    ("find_node", [20, 21, 4, 0, [], "sum"], "UnknownIdError"),
    ("find_node", [20, 21, 10, 0, [], "mul"], "UnknownIdError"),
    ("find_node", [20, 21, 4, None, [], "mul"], "NotSupportedError"),
    ("find_node", [20, 21, 4, None, [], ""], "NotSupportedError"),
    ("find_node", [20, 21, 4, None, [["sum", 2, 0]], "sin"], "NotSupportedError"),
    ("find_node", [20, 21, 4, None, [["sum", 1, -1]], "sin"], "NotSupportedError"),
    ("find_node", [20, 21, 4, None, [["sum", 1, 0], ["sin", 1, 0], ["mul", 2, 1]], "mul"], "NotSupportedError"),
    ("find_node", [20, 21, 4, None, [["nonsense", 1, 0]], "sin"], "NotSupportedError"),
    ("saved_tensor", [4, "self", 0, 30], "UnknownIdError"),
    ("saved_tensor", [12, "self", 0, 30], "UnknownIdError"),
    ("pack_saved", [20, 21, 99, "mul", True, [30]], "UnknownIdError"),
    ("pack_one", [12, "self", 0, 30], "UnknownIdError"),
    ("give_saved", [12, []], "UnknownIdError"),
    ("give_saved", [10, [1]], "ProtocolError"),
    ("give_saved", [10, [99]], "UnknownIdError"),
]


@pytest.mark.parametrize(("what", "args", "code"), QUESTIONS)
def test_questions_about_nodes_that_are_not_there_are_refused(
    hooked: Talk, what: str, args: list[Any], code: str
) -> None:
    failure = fails(hooked, Query(1, what, args))
    assert failure.code == code, failure.traceback
    hooked.resume()
    assert hooked.ask("saved_tensor", 10, "nothing", 0, 30) is None
    meta, requires_grad, leaf, edge = hooked.ask("saved_tensor", 10, "self", -1, 31)
    assert (list(meta[0]), requires_grad, leaf, edge) == ([3], True, 1, 0)


def test_what_is_packed_is_needed_again_by_each_pass(hooked: Talk) -> None:
    assert hooked.ask("pack_saved", 20, 21, 3, "sum", True, [30]) is None  # another operation has made the node
    *_, packed = hooked.ask("pack_saved", 20, 21, 3, "sin", True, [30, 31])
    assert [(list(meta[0]), history, name, place) for meta, history, name, place in packed] == [
        ([3], "operand", "self", 0)
    ]
    assert hooked.ask("pack_saved", 20, 21, 3, "sin", True, [32]) is None
    np.testing.assert_allclose(hooked.read(30), X * X, rtol=1e-6)
    hooked.upload(33, np.zeros(3, np.float32))
    hooked.send(BeginPass(50, 0, (4,), (None,), (20,), None, True, False))
    hooked.ask("give_saved", 20, [33])
    hooked.send(GiveGradients(50, 0, 20, None), EndPass(50, 0, [(1, 8)], (), True))
    np.testing.assert_allclose(hooked.read(8), 2 * X, rtol=1e-6)  # the cosine of what was given
    failure = fails(hooked, BeginPass(51, 0, (4,), (None,), (), None, True, False))
    assert failure.code == "AutogradError" and "saved_tensors_hooks" in failure.message
    hooked.resume()
    hooked.upload(34, np.zeros(2, np.float32))
    assert fails(hooked, Query(1, "give_saved", [20, [34]])).code == "ShapeError"
