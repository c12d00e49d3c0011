"""Generators of a program's own: their numbers, their state, and that the session's generators go on untouched."""

from __future__ import annotations

from typing import Any

import pytest

DRAWS = [
    "tg.rand(5, generator=g)",
    "tg.randn(3, generator=g)",
    "tg.randint(0, 1000, (5,), generator=g)",
    "tg.randperm(20, generator=g)",
    "tg.bernoulli(tg.full((50,), 0.5), generator=g)",
    "tg.bernoulli(tg.ones(50), 0.5, generator=g)",
    "tg.multinomial(tg.ones(20), 5, generator=g)",
    "tg.normal(tg.zeros(5), 1.0, generator=g)",
    "tg.normal(0.0, 1.0, (5,), generator=g)",
    "tg.empty(5).normal_(generator=g)",
    "tg.empty(5).uniform_(-1, 1, generator=g)",
    "tg.empty(5).uniform_(**{'from': -1}, to=1, generator=g)",
    "tg.empty(5).exponential_(generator=g)",
    "tg.empty(5).cauchy_(generator=g)",
    "tg.empty(5).log_normal_(generator=g)",
    "tg.empty(50).geometric_(0.2, generator=g)",
    "tg.empty(5).random_(generator=g)",
    "tg.empty(50).bernoulli_(0.5, generator=g)",
]


@pytest.mark.parametrize("draw", DRAWS)
def test_a_generator_repeats_after_its_seed_and_leaves_the_session_s_alone(tg: Any, draw: str) -> None:
    g = tg.Generator().manual_seed(7)
    tg.manual_seed(1)
    before = tg.get_rng_state()
    first, second = (eval(draw, {"tg": tg, "g": g}) for _ in range(2))  # noqa: S307 - the tests' own programs
    assert tg.equal(tg.get_rng_state(), before)
    assert not tg.equal(first, second)
    g.manual_seed(7)
    assert tg.equal(eval(draw, {"tg": tg, "g": g}), first)  # noqa: S307
    tg.manual_seed(7)
    assert tg.equal(eval(draw, {"tg": tg, "g": None}), first)  # noqa: S307


def test_a_state_is_gone_back_to(tg: Any) -> None:
    g = tg.Generator().manual_seed(-3)
    tg.rand(3, generator=g)
    state = g.get_state()
    expected = tg.rand(3, generator=g)
    other = tg.Generator().set_state(state)
    assert tg.equal(tg.rand(3, generator=other), expected)
    assert other.initial_seed() == g.initial_seed() == 2**64 - 3
    copy = g.clone_state()
    assert tg.equal(tg.rand(3, generator=copy), tg.rand(3, generator=g))


def test_a_refused_draw_leaves_both_streams_where_they_were(tg: Any) -> None:
    g = tg.Generator().manual_seed(7)
    before, own = g.get_state(), tg.get_rng_state()
    with pytest.raises(tg.errors.ArgumentError):
        tg.empty(3).uniform_(2, 1, generator=g)
    assert tg.equal(g.get_state(), before)
    assert tg.equal(tg.get_rng_state(), own)


def test_what_is_no_generator_is_refused(tg: Any) -> None:
    with pytest.raises(tg.errors.ArgumentTypeError, match=r"generator must be a telegrad\.Generator, not int 3"):
        tg.rand(3, generator=3)
    with pytest.raises(tg.errors.DTypeError, match="the uint8 tensor that get_state gave"):
        tg.Generator().set_state(tg.ones(3))


def test_samplers_and_initialization_take_a_generator(tg: Any) -> None:
    parts = [
        [list(part) for part in tg.utils.data.random_split(range(10), [4, 6], generator=tg.Generator().manual_seed(5))]
        for _ in range(2)
    ]
    assert parts[0] == parts[1]
    weights = [tg.nn.init.normal_(tg.empty(3, 3), generator=tg.Generator().manual_seed(5)) for _ in range(2)]
    assert tg.equal(*weights)


def test_seeding_returns_the_generator_that_it_seeds(tg: Any, seed: int) -> None:
    generator = tg.manual_seed(seed)
    assert generator is tg.random.default_generator
    assert generator.initial_seed() == seed
    drawn = tg.randn(3, generator=tg.manual_seed(seed)).tolist()
    tg.manual_seed(seed)
    assert tg.randn(3).tolist() == drawn
