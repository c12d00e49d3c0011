"""Batches that come again with tensors that a program has kept for longer or shorter: found where their bytes say."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from server.session.programs.taken import Taken, places_of
from telegrad.errors import TelegradError
from telegrad_protocol import messages, wire

from .stretches import call_by_call

pytestmark = pytest.mark.usefixtures("gains_by_stretches", "captures")
_FIRST = 1 << 16


def _batches(tg: Any) -> Any:
    return tg.ones(1)._session.transport._session._batches


def test_a_variable_of_one_branch_is_freed_whenever_it_was_set(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]
) -> None:
    """A filter that draws its particles anew now and then: what it has drawn lives until it does so again."""
    tg, device = on
    start = tg.tensor(rng.standard_normal(40), dtype=tg.float32, device=device)
    branches = (rng.random(60) < 0.4).tolist()

    def run() -> list[float]:
        x, read = start, []
        for is_drawn in branches:
            if is_drawn:
                order = x.argsort()
                drawn = x.sin().cos().tanh().exp().neg().exp()
                x = drawn[order] * 0.5
            y = x.neg().exp().sin().cos().abs().sqrt().neg().exp()
            x = y - y.mean() + start * 0.1
            read.append(x.sum().item())
        return read

    with call_by_call(tg):
        expected = run()
    for _ in range(3):
        np.testing.assert_array_equal(run(), expected)
    assert noted["_begin"] > 60
    assert len(_batches(tg).patterns) < 12, "one for each branch, what begins and what ends it"


@pytest.mark.parametrize("turn", range(3))
def test_operands_of_any_age_are_those_that_the_program_names(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str], turn: int
) -> None:
    tg, device = on
    start = [*tg.tensor(rng.uniform(0.5, 1.5, (6, 30)), dtype=tg.float32, device=device)]
    picks = rng.integers(6, size=(40, 2)).tolist()

    def run() -> list[float]:
        kept, read = list(start), []
        for old, older in picks:
            a, b = kept[old], kept[older]
            y = (a.neg().exp() + b.sin()).cos().abs().sqrt() - a * 0.5
            kept[old] = y.tanh() + b * 0.25
            read.append(kept[old].sum().item())
        return read

    with call_by_call(tg):
        expected = run()
    for _ in range(3):
        np.testing.assert_array_equal(run(), expected)
    assert noted["_begin"]


def test_a_tensor_that_is_not_there_is_missed_as_ever(tg: Any, rng: np.random.Generator, noted: Counter[str]) -> None:
    """Also where a batch like it came before."""
    kept = [*tg.tensor(rng.standard_normal((3, 8)), dtype=tg.float32)]

    def step(number: int) -> float:
        y = kept[0]
        for _ in range(9):
            y = y.sin() + kept[number]
        return float(y.sum().item())

    for number in (1, 2) * 6:
        step(number)
    tg.ones(1)._session.free(kept[2]._id)
    with pytest.raises(TelegradError):
        step(2)
    assert noted["_begin"]


def _calls(ids: list[int]) -> list[bytes]:
    return [wire.encoder.encode(messages.Call(3, 1, (_FIRST + 50,), [id, 1.5, None], (id,))) for id in ids]


def test_a_number_is_found_wherever_it_stands(rng: np.random.Generator) -> None:
    ids = (_FIRST + rng.choice(1 << 30, 20, replace=False)).tolist()
    for (here, there), (id, other) in zip(pairwise(_calls(ids)), pairwise(ids), strict=True):
        places = places_of(here, there, id, other)
        changed = bytearray(here)
        for begin, end in places:
            changed[begin:end] = other.to_bytes(end - begin, "big")
        assert len(places) == 2 and bytes(changed) == there
    assert places_of(*_calls([5, 7]), 5, 7) == [], "small numbers are not told from others"
    assert places_of(*_calls([_FIRST, _FIRST << 20]), _FIRST, _FIRST << 20) == [], "they have other widths"


def test_numbers_that_cannot_be_are_told() -> None:
    taken = Taken([_FIRST, _FIRST + 1], [True, False], {1: [(0, 4), (6, 10)]})

    def at(first: int, second: int, last: int = _FIRST + 40) -> list[int] | None:
        body = first.to_bytes(4, "big") + b"--" + second.to_bytes(4, "big")
        return taken.at(20, body, last)

    assert at(_FIRST + 3, _FIRST + 3) == [_FIRST + 20, _FIRST + 3]
    assert at(_FIRST + 3, _FIRST + 4) is None, "one tensor is two"
    assert at(_FIRST + 20, _FIRST + 20) is None, "two tensors are one"
    assert at(_FIRST + 41, _FIRST + 41) is None, "the part makes it itself"
