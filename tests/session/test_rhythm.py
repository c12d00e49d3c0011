"""The cooldown of what an allocator learns ends when a session's passes and reads show a rhythm, and not otherwise."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from server.engine.replay.rhythm import FIRST_STREAK, LONGEST_STREAK, SETTLED, Rhythm, Settling
from server.session import state
from telegrad_protocol.messages import Free

from .driver import ONES, Talk, call

LONG = 1 << 40


@pytest.fixture
def policy(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The policy of the allocator, which has just given up; all that is computed is taken to be new."""
    monkeypatch.setattr(state, "plans_made", count().__next__)
    backend = next(iter(talk.session.state.backends.values()))
    policy = backend.allocator.recall.replay_policy
    policy.cooldown = LONG
    yield policy
    backend.allocator.end_cooldown()


def _steps(talk: Talk, lengths: list[int]) -> None:
    """A loop whose steps have so many operations and one read each."""
    number = 1
    talk.upload(number, ONES)
    for length in lengths:
        made = list(range(number + 1, number + 1 + length))
        talk.send(*[call("add", id, id - 1, [0.0]) for id in made], Free([number, *made[:-1]]))
        np.testing.assert_array_equal(talk.read(made[-1]), ONES)
        number = made[-1]
    talk.send(Free([number]))


def test_cooldowns_end_when_steps_are_alike(talk: Talk, policy: Any) -> None:
    _steps(talk, [5] * (FIRST_STREAK + 3))
    assert policy.cooldown == 0


def test_cooldowns_go_on_while_steps_differ(talk: Talk, policy: Any) -> None:
    _steps(talk, list(range(2, 60)))
    assert policy.cooldown > LONG // 2


def test_each_end_takes_twice_as_long(talk: Talk, policy: Any) -> None:
    _steps(talk, [5] * (FIRST_STREAK + 3))
    policy.cooldown = LONG
    _steps(talk, [5] * (FIRST_STREAK + 3))
    assert policy.cooldown
    _steps(talk, [5] * (2 * FIRST_STREAK + 3))
    assert not policy.cooldown


def test_some_kinds_of_steps_in_turn_are_a_rhythm_too() -> None:
    rhythm, number, ended = Rhythm(), 0, 0
    for step in range(400):
        number += (3, 7, 7, 20)[step % 4]
        if rhythm.beat(number, 10):
            rhythm.spend(True)
            ended += 1
    assert ended == 4  # after 16, 32, 64 and 128 beats
    for _ in range(20 * LONGEST_STREAK):
        number += 5
        if rhythm.beat(number, 10):
            rhythm.spend(True)
    assert rhythm.wanted == LONGEST_STREAK


def test_what_has_ended_nothing_costs_nothing() -> None:
    rhythm = Rhythm()
    for step in range(100):
        if rhythm.beat(step, 1):
            rhythm.spend(False)
    assert rhythm.wanted == FIRST_STREAK


def test_a_program_has_settled_once_it_computes_nothing_new() -> None:
    settling, number = Settling(), 0
    for plans in (3, 5):  # the second ones are new shapes
        told = []
        for _ in range(3 * SETTLED // 10):
            number += 10
            told.append(settling.is_settled(number, plans))
        assert told.index(True) * 10 >= SETTLED and told.count(True) == 1


def test_a_program_that_computes_something_new_in_each_step_does_not_settle() -> None:
    settling = Settling()
    assert not any([settling.is_settled(10 * step, step) for step in range(1, 10 * SETTLED)])
