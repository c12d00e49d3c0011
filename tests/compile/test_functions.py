"""Compiled functions return what they return without ``compile``, to the bit, and ``explain`` names their breaks."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from . import functions as functions
from .harness import CASES, Case, Elements, exactly, outcome


@pytest.fixture(autouse=True)
def _modes(tg: Any) -> Iterator[None]:
    yield
    tg.set_grad_enabled(True)
    tg.set_default_dtype(tg.float32)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(Elements, "tolerance", request.param.tolerance)
    return request.param  # type: ignore[no-any-return]


def _around(tg: Any, case: Case, number: int) -> Any:
    """Return the mode that the case's calls are made in."""
    if case.name == "autocast_outside" and number % 5 != 4:
        return tg.autocast("cpu", dtype=tg.bfloat16)
    return contextlib.nullcontext()


def outcomes_of(tg: Any, case: Case, seed: int, compiled: bool, **options: Any) -> list[Any]:
    tg.set_grad_enabled(True)
    tg.set_default_dtype(tg.float32)
    built, rng = case.build(tg), np.random.default_rng(seed)
    function = tg.compile(built.function, **options) if compiled else built.function
    tg.manual_seed(seed)
    outcomes = []
    for number in range(case.calls):
        arguments = built.arguments(number, rng)
        with _around(tg, case, number):
            outcomes.append(outcome(tg, built, arguments, function))
        outcomes.append([exactly(tg, one) for one in arguments])
    return outcomes


def test_compiled_equals_eager(tg: Any, case: Case, seed: int) -> None:
    expected = outcomes_of(tg, case, seed, compiled=False)
    for number, (one, other) in enumerate(zip(outcomes_of(tg, case, seed, compiled=True), expected, strict=True)):
        assert one == other, f"call {number // 2}"


def _marked_lines(case: Case) -> set[int]:
    """Return the numbers of the lines that what builds the function marks as breaks."""
    lines, first = inspect.getsourcelines(case.build)
    return {first + number for number, line in enumerate(lines) if line.rstrip().endswith("# break")}


def test_explain_names_the_line_of_each_break(tg: Any, case: Case, seed: int) -> None:
    from telegrad.compiler import dynamo

    built, rng = case.build(tg), np.random.default_rng(seed)
    arguments = built.arguments(0, rng)
    explained = dynamo.explain(built.function)(*arguments)
    named = {reason.line.lineno for reason in explained.break_reasons}
    assert named <= _marked_lines(case), str(explained)
    assert bool(named) == bool(_marked_lines(case)), explained
    assert explained.graph_break_count == len(explained.break_reasons)
