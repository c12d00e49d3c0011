"""Calls of a compiled function whose sizes come in turn are left out, and do what the function does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .guarded import calls_of
from .harness import exactly

TURNS = 12


def constant_of_the_size(tg: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return (x.sin() * x.shape[0] ** -0.5).exp() + x.cos()

    return function


def same_for_all_sizes(tg: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return (x.sin() * 0.5).exp() + x.cos()

    return function


def range_and_mask(tg: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        rows = tg.arange(x.shape[0])[:, None]
        return tg.where(rows < x.shape[0] // 2, x.sin() * 2, x.cos()).sum(0) + x.size(0)

    return function


def branch(tg: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        if x.shape[0] > 3:
            return (x.sin() + 1).exp() * 3
        return (x.cos() + 2).exp() * 5

    return function


FUNCTIONS = (constant_of_the_size, same_for_all_sizes, range_and_mask, branch)


@pytest.mark.parametrize("sizes", [2, 4, 8])
@pytest.mark.parametrize("build", FUNCTIONS, ids=lambda build: build.__name__)
def test_sizes_in_turn_are_left_out(
    tg: Any, build: Callable[[Any], Callable[[Any], Any]], sizes: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    function = build(tg)
    compiled = tg.compile(function)
    for _ in range(TURNS):
        for rows in range(2, 2 + sizes):
            x = tg.tensor(rng.standard_normal((rows, 3)).astype("f"))
            assert exactly(tg, compiled(x)) == exactly(tg, function(x))
    calls = calls_of(compiled)
    assert calls.replayed >= sizes * TURNS // 2, calls.reason
