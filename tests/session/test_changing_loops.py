"""Random programs with loops compute the same whether their calls are executed as one or not, and what PyTorch does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.draws import drawn

from .changing_loops import Program, Runner, random_program
from .stretches import call_by_call

pytestmark = pytest.mark.filterwarnings("ignore")
TOLERANCE = 1e-6
"""Of the largest element; programs that are compared with PyTorch compute in float64."""
NUDGE, SLACK = 1e-13, 1e-9
"""What numbers are changed by, and what results may differ by then: rounding may change others that come later."""


@pytest.fixture
def tg(captures: None, tg: Any) -> Any:
    """The client library, with a session that was opened after that."""
    return tg


@pytest.mark.parametrize("number", drawn([pytest.param(n, id=f"program_{n}") for n in range(200)], 4))
def test_loops_come_to_what_their_calls_come_to(tg: Any, number: int, seed: int) -> None:
    program = random_program(np.random.default_rng(seed))
    print(program.text, *program.turns, sep="\n")
    with call_by_call(tg):
        expected = _run(tg, program, seed)
    for _ in range(2):
        _require_same(_run(tg, program, seed), expected, 0.0, "as one")
    if program.is_exact:
        theirs, nearby = (_run(torch, program, seed, nudged) for nudged in (0.0, NUDGE))
        stable = [_is_near(one, other) for one, other in zip(theirs, nearby, strict=True)]
        count = stable.index(False) if False in stable else len(stable)  # some programs diverge
        _require_same(expected[:count], theirs[:count], TOLERANCE, "as in PyTorch")


def _run(t: Any, program: Program, seed: int, nudged: float = 0.0) -> list[Any]:
    with np.errstate(all="ignore"):
        return Runner(t, program, seed, nudged=nudged).run()


def _is_near(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_near, one, other))
    if isinstance(one, tuple):
        return bool(one[:2] == other[:2] and np.allclose(one[2], other[2], rtol=SLACK, atol=SLACK, equal_nan=True))
    return bool(one == other)


def _require_same(ours: Any, theirs: Any, tolerance: float, where: str) -> None:
    if isinstance(theirs, list):
        assert isinstance(ours, list) and len(ours) == len(theirs), f"{where}: {ours} and {theirs}"
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            _require_same(one, other, tolerance, f"{where}, {number}")
    elif isinstance(theirs, tuple):
        assert isinstance(ours, tuple) and ours[:2] == theirs[:2], f"{where}: {ours} and {theirs}"
        size = np.abs(theirs[2][np.isfinite(theirs[2])]).max(initial=1.0)
        np.testing.assert_allclose(ours[2], theirs[2], rtol=tolerance, atol=tolerance * size, err_msg=where)
    else:
        assert ours == theirs, where
