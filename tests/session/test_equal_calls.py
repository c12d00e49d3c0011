"""Equal calls in several places of a program are recorded once, where what was recorded is launched on any memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from server.engine import keys
from server.engine.device.cpu_backend import CpuBackend
from server.engine.programs.captures import Captures
from server.session.programs.stretches import Stretch
from tests.support.reading_numbers import reading_numbers

from .stretches import call_by_call

ROUNDS = 10


@pytest.fixture(autouse=True)
def _reads(gains_by_stretches: None, captures: None, on: tuple[Any, str]) -> Iterator[None]:
    with ExitStack() as stack:
        if on[1] == "cpu":
            stack.enter_context(reading_numbers(keys.CPU))
        yield


def _lies_anywhere(on: tuple[Any, str]) -> bool:
    return on[1] == "cuda" or "relocatable" in vars(CpuBackend)


def _step(tg: Any, place: int, p: Any, m: Any, g: Any, rate: float) -> tuple[Any, Any]:
    """An update as people write it; what is written before it, which is no part of it, differs by its place."""
    with tg.no_grad():
        for _ in range(place):
            g.mul_(1)
        m = 0.9 * m + 0.1 * (g + 0.01 * p)
        root = (m * m + 0.5).sqrt().abs() + 1e-8
        moved = p - rate * m / root
    float(moved[0].item())
    return moved, m


def test_updates_of_all_parameters_are_recorded_once(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]
) -> None:
    tg, device = on
    start = [*tg.tensor(rng.standard_normal((3, 40)), dtype=tg.float32, device=device)]
    rates = rng.uniform(0.011, 0.019, ROUNDS).tolist()

    def run(place: int) -> np.ndarray[Any, Any]:
        p, m, g = start
        for number in range(ROUNDS):
            p, m = _step(tg, place, p, m, g, rates[number])
        return np.asarray(p.numpy())

    with call_by_call(tg):
        expected = [run(place) for place in range(1, 5)]
    recorded = []
    for place in range(1, 5):
        before = noted["_record"]
        np.testing.assert_array_equal(run(place), expected[place - 1])
        recorded.append(noted["_record"] - before)
    assert noted["_begin"] > 10
    if _lies_anywhere(on):
        assert recorded[0] and not sum(recorded[1:]), recorded
    else:
        assert all(recorded[:2]), recorded


def test_what_fails_is_lent_to_nobody(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches that fail are made call by call each time, once in each place."""
    tg, device = on
    start = [*tg.tensor(rng.standard_normal((3, 40)), dtype=tg.float32, device=device)]

    def run(place: int) -> np.ndarray[Any, Any]:
        p, m, g = start
        for _ in range(ROUNDS):
            p, m = _step(tg, place, p, m, g, 0.0125)
        return np.asarray(p.numpy())

    with call_by_call(tg):
        expected = run(2)
    run(1)
    lent = tg.ones(1)._session.transport._session.state.lent_variants
    if not _lies_anywhere(on):
        assert not any([variant.lies_anywhere for variant in lent.values()])
        return
    assert any([variant.lies_anywhere for variant in lent.values()])

    def fails(self: Captures, *_: Any) -> None:
        raise RuntimeError("a launch that fails")

    monkeypatch.setattr(Captures, "launch", fails)
    monkeypatch.setattr(Captures, "launch_anywhere", fails)
    np.testing.assert_array_equal(run(2), expected)
    assert noted["_take_back"] and not any([variant.lies_anywhere for variant in lent.values()])


def test_calls_with_other_attributes_have_other_names(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[bytes] = []
    plain = Stretch.__init__

    def noting(self: Stretch, *args: Any) -> None:
        plain(self, *args)
        names.append(self.name)

    monkeypatch.setattr(Stretch, "__init__", noting)
    x = tg.ones(4, 4)
    for dim in (0, 1, 0):
        for _ in range(4):
            y = x
            for _ in range(9):
                y = y.softmax(dim)
            y.sum().item()
    assert len(names) == 2 and names[0] != names[1], "the third is found as the first"
