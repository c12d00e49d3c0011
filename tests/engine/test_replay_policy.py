"""The policy of everything that recognises repetition: budgets, cooldowns and sightings."""

from __future__ import annotations

import pytest

from server import replay_policy
from server.replay_policy import LAUNCH_WAITING, Limits, ReplayPolicy, Sightings

LIMITS = Limits(budget=6, cost=2, gain=1, saves=False, largest_budget=12, cooldown=3, longest_cooldown=12, proof=5)
TABLE = [limits for limits in vars(replay_policy).values() if isinstance(limits, Limits)]


def _misses_until_cooldown(policy: ReplayPolicy) -> int:
    count = 1
    while not policy.miss():
        count += 1
    return count


def _end_cooldown(policy: ReplayPolicy) -> int:
    events = 1
    while not policy.cool_down():
        events += 1
    return events


def test_a_budget_without_hits_is_spent_and_a_cooldown_begins() -> None:
    policy = ReplayPolicy(LIMITS)
    assert _misses_until_cooldown(policy) == 3
    assert policy.cooldown == 3 and policy.misses == 3 and policy.cooldowns == 1


def test_hits_earn_budget_back_but_are_not_saved_beyond_a_full_one() -> None:
    policy = ReplayPolicy(LIMITS)
    assert not policy.miss() and not policy.miss()
    policy.hit(2)
    assert policy.can_afford() and not policy.miss()
    policy.hit(4)
    policy.hit(1)
    policy.refund(100)
    assert _misses_until_cooldown(policy) == 3


def test_hits_are_saved_where_the_limits_say_so() -> None:
    policy = ReplayPolicy(LIMITS._replace(saves=True))
    policy.hit(4)
    assert _misses_until_cooldown(policy) == 5 and policy.hits == 4


def test_cooldowns_and_budgets_double_up_to_their_limits_until_hits_prove_repetition() -> None:
    policy = ReplayPolicy(LIMITS)
    seen = []
    for _ in range(4):
        budget = _misses_until_cooldown(policy)
        seen.append((budget, _end_cooldown(policy)))
    assert seen == [(3, 3), (6, 6), (6, 12), (6, 12)]
    policy.hit(4)
    assert _misses_until_cooldown(policy) == 6
    _end_cooldown(policy)
    policy.hit(5)
    assert (_misses_until_cooldown(policy), _end_cooldown(policy)) == (3, 3)


def test_signs_of_repetition_allow_the_largest_budget_and_what_is_new_the_first_one() -> None:
    policy = ReplayPolicy(LIMITS)
    policy.trust()
    assert _misses_until_cooldown(policy) == 6
    policy.begin_anew()
    assert not policy.cooldown
    assert (_misses_until_cooldown(policy), _end_cooldown(policy)) == (3, 3)


def test_without_a_cooldown_a_mechanism_gives_up_until_hits_pay_for_it() -> None:
    policy = ReplayPolicy(LIMITS._replace(cooldown=0))
    assert _misses_until_cooldown(policy) == 3
    assert not policy.can_afford() and not policy.cooldown and not policy.cooldowns
    policy.hit(2)
    assert policy.can_afford()


def test_one_replayed_sequence_pays_for_all_waiting() -> None:
    policy = ReplayPolicy(LAUNCH_WAITING)
    for _ in range(LAUNCH_WAITING.budget - 1):
        assert not policy.miss()
    policy.hit(1)
    assert _misses_until_cooldown(policy) == LAUNCH_WAITING.budget


def test_work_repeats_in_the_same_state_alone() -> None:
    seen, states = Sightings(8), ([], [])
    assert not seen.repeats("work", states[0])
    assert seen.repeats("work", states[0])
    assert not seen.repeats("work", states[1]), "equal, but another one"
    assert seen.repeats("work", states[1])


def test_sightings_beyond_the_limit_start_anew() -> None:
    seen = Sightings(2)
    assert not seen.repeats("a") and not seen.repeats("b") and not seen.repeats("c")
    assert seen.repeats("c") and not seen.repeats("a")


@pytest.mark.parametrize("limits", TABLE)
def test_every_mechanism_can_afford_what_it_learns(limits: Limits) -> None:
    assert 0 < limits.cost <= limits.budget and limits.gain > 0
    assert limits.longest_cooldown >= limits.cooldown
    assert len(TABLE) == 7
