"""Programs whose fused kernels have to be compiled first: they run unfused meanwhile, and fused from then on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from server.engine import keys
from server.engine.programs.fused import FUSERS, Kernel
from server.engine.value import Backend
from telegrad.compiler import dynamo
from tests.support.captures import simulate_captures

from . import functions as functions
from .harness import Case, Elements, drawn_cases
from .test_functions import outcomes_of

POLLS = 4
TOO_MANY = 6


class Slow:
    """Kernels that are compiled when somebody has asked a few times; those of so many computations never are."""

    def __init__(self, backend: Backend, kernels: Sequence[Kernel]) -> None:
        self._polls = 0
        self.kernels = kernels

    def is_over(self) -> bool:
        self._polls += 1
        return self._polls > POLLS

    def has_failed(self, kernel: Kernel) -> bool:
        assert kernel in self.kernels and self.is_over()
        return len(kernel.computes) == TOO_MANY


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FUSERS, keys.CPU, FUSERS[keys.CPU]._replace(awaits=Slow))


@pytest.fixture(params=drawn_cases(12))
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(Elements, "tolerance", request.param.tolerance)
    return request.param._replace(calls=max(12, request.param.calls))  # type: ignore[no-any-return]


@pytest.mark.usefixtures("slowly")
def test_compiled_equals_eager(tg: Any, case: Case, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = outcomes_of(tg, case, seed, compiled=False)
    simulate_captures(monkeypatch)
    for number, (one, other) in enumerate(zip(outcomes_of(tg, case, seed, compiled=True), expected, strict=True)):
        assert one == other, f"call {number // 2}"


@pytest.mark.usefixtures("slowly")
def test_kernels_are_used_once_they_are_there(tg: Any) -> None:
    def function(x: Any) -> Any:
        y = (x * 2 + 1).tanh()
        z = y.sum() + x
        return ((((z * 3) - y) * y) + 1).sin()

    compiled = tg.compile(function)
    x = tg.randn(5, 7)
    expected = function(x).numpy()
    fused: list[list[int]] = []
    for _ in range(POLLS + 6):
        np.testing.assert_array_equal(compiled(x).numpy(), expected)
        told = dynamo.explain(compiled)(x).programs
        fused += [[len(names) for names in one.fused] for program in told for one in program.specialisations]
    assert [] in fused, "unfused at first"
    assert fused[-1] == [3], "the longer chain could not be compiled"
