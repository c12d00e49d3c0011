"""Leaves that others take the place of, as instructions: in the graph, for what it has saved, and in programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from telegrad_protocol import messages
from telegrad_protocol.messages import DropGrads, Free, SetRequiresGrad, TakePlace
from telegrad_protocol.programs.messages import DefineProgram, RunProgram
from telegrad_protocol.programs.rows import Flat

from .driver import ONES, Talk, backward, call, fails


def _graph(talk: Talk) -> None:
    """Tensor 3 = sum(1 * 1), where 1 is a leaf."""
    talk.upload(1, ONES)
    talk.send(SetRequiresGrad(1, True), call("mul", 4, 1, 1), call("sum", 3, 4), Free([4]))


def test_a_graph_goes_on_with_what_has_taken_the_place(talk: Talk) -> None:
    _graph(talk)
    for id in (5, 6):
        talk.upload(id, id * ONES)
    talk.send(TakePlace(5, 1), Free([1]), TakePlace(6, 5), Free([5]))
    assert talk.send(backward(leaves=((6, 9),))) == []
    np.testing.assert_array_equal(talk.read(9), 12 * ONES)
    np.testing.assert_array_equal(talk.read(6), 6 * ONES)


def test_what_lies_otherwise_gets_gradients_of_the_form_that_the_graph_has(talk: Talk) -> None:
    _graph(talk)
    talk.upload(5, np.ones(7, np.float32))
    talk.send(TakePlace(5, 1), Free([1]))
    assert talk.send(backward(leaves=((5, 9),))) == []
    np.testing.assert_array_equal(talk.read(9), 2 * ONES)


def test_the_gradient_goes_with_the_place(talk: Talk) -> None:
    _graph(talk)
    talk.upload(5, ONES)
    talk.send(backward(), TakePlace(5, 1), Free([1]))
    talk.send(call("mul", 7, 5, 5), call("sum", 8, 7), backward((8,), ((5, 9),)))
    np.testing.assert_array_equal(talk.read(9), 4 * ONES)


@pytest.mark.parametrize("pair", [(3, 1), (5, 3)])
def test_results_take_no_places(talk: Talk, pair: tuple[int, int]) -> None:
    _graph(talk)
    talk.upload(5, ONES)
    assert fails(talk, TakePlace(*pair)).code == "AutogradError"


def _step(first: int, leaf: int) -> list[Any]:
    """A step of descent that puts a new leaf, number first + 4, into the place of the one before."""
    product, loss, gradient, new = range(first + 1, first + 5)
    return [
        call("mul", product, leaf, leaf), call("sum", loss, product),
        messages.Backward(0, (loss,), (None,), [(leaf, gradient)], False, False),
        messages.Mode("grad", False), call("mul", new, leaf, [0.5]), messages.Mode("grad", True),
        TakePlace(new, leaf), DropGrads([new]), Free([leaf, product, gradient]),
    ]  # fmt: skip


def test_runs_of_programs_leave_places_to_others(talk: Talk) -> None:
    """The graph of an earlier leaf has its gradient where runs that are executed as one have put another leaf."""
    _graph(talk)
    leaf, runs = 1, 6
    for run in range(runs):
        first = 100 * (run + 1)
        flat = Flat(_step(first, leaf), first)
        if not run:
            talk.send(DefineProgram(1, len(flat.inputs), flat.rows, flat.constants))
        assert talk.send(RunProgram(1, first, list(enumerate(flat.inputs)))) == []
        leaf = first + 4
    (program,) = talk.session.state.programs.values()
    assert any(program.variants.values()), f"no run was executed as one: {program.reasons}"
    np.testing.assert_array_equal(talk.read(leaf), ONES * 0.5**runs)
    assert talk.send(backward(leaves=((leaf, 9),))) == []
    np.testing.assert_array_equal(talk.read(9), 2 * ONES * 0.5**runs)
