"""Draws by weight: rows that are compared in blocks get what a search in each row finds."""

from __future__ import annotations

import numpy as np
import pytest

from server.engine.ops import random as module

SHAPES = [(1, 1, 1), (3, 5, 4), (4099, 7, 1), (2048, 64, 2), (5, 65, 3), (0, 4, 2), (130, 2, 33)]


@pytest.mark.parametrize(("count", "width", "samples"), SHAPES)
def test_blocks_of_rows_pass_the_limits_that_a_search_finds(
    rng: np.random.Generator, count: int, width: int, samples: int
) -> None:
    weights = rng.random((count, width)) * (rng.random((count, width)) < 0.7)
    weights[:, rng.integers(width)] = 1
    rows = weights.cumsum(axis=1)
    numbers = rng.random((count, samples)) * rows[:, -1:]
    numbers[: count // 2] = rows[: count // 2, :1]  # numbers that are limits themselves
    expected = module._passed_by_rows(np, rows, numbers)
    found = module._passed_in_blocks(np, rows, numbers)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("width", [4, 80])
def test_draws_follow_their_weights_and_leave_zeros_out(rng: np.random.Generator, tg: object, width: int) -> None:
    weights = rng.random((3, width))
    weights[:, ::3] = 0
    draws = tg.multinomial(tg.tensor(weights), 40000, replacement=True).numpy()  # type: ignore[attr-defined]
    for row, drawn in zip(weights, draws, strict=True):
        shares = np.bincount(drawn, minlength=width) / drawn.size
        assert not shares[row == 0].any()
        np.testing.assert_allclose(shares, row / row.sum(), atol=0.02)
