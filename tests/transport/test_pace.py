"""How many instructions may be ahead: as many as take the allowed time, by what was measured, and few before that."""

from __future__ import annotations

import random
from itertools import pairwise

from telegrad_protocol.pace import FEWEST, GROWTH, Pace


class Simulation:
    """A sender that submits whenever it may, and a receiver that needs ``cost`` seconds for each instruction."""

    def __init__(self, seconds: float, unmeasured: int = 16) -> None:
        self.pace = Pace(seconds, unmeasured)
        self.now = 0.0

    def run(self, cost: float, count: int) -> int:
        """Complete so many instructions, and return the most that were ahead after a submission."""
        most = 0
        for _ in range(count):
            pace = self.pace
            while pace.ahead < pace.limit:
                pace.submit(pace.submitted + 1, self.now)
            most = max(most, pace.ahead)
            self.now += cost
            pace.complete(pace.completed + 1, self.now)
        return most


def test_as_much_is_ahead_as_takes_the_allowed_time(seed: int) -> None:
    for cost in (random.Random(seed).uniform(1e-6, 0.2), 0.01, 1e-4):
        simulation = Simulation(1.0)
        simulation.run(cost, 400)
        assert abs(simulation.pace.limit * cost - 1.0) <= max(0.05, FEWEST * cost)


def test_an_instruction_that_takes_longer_than_allowed_is_still_sent_ahead() -> None:
    simulation = Simulation(1.0)
    simulation.run(3.0, 20)
    assert simulation.pace.limit == FEWEST


def test_few_are_ahead_before_anything_was_measured() -> None:
    assert Simulation(1.0, unmeasured=16).run(10.0, 1) == 16


def test_the_bound_grows_step_by_step() -> None:
    pace = Pace(1.0, 16)
    limits = [pace.limit]
    for _ in range(5):
        pace.submit(pace.submitted + pace.limit, 0.0)
        pace.complete(pace.submitted, 1e-7 * len(limits))
        limits.append(pace.limit)
    assert all(later <= GROWTH * before for before, later in pairwise(limits))
    assert limits[-1] > limits[0]


def test_work_that_becomes_slow_is_measured_anew_once_it_is_announced() -> None:
    simulation = Simulation(1.0)
    simulation.run(1e-4, 2000)
    assert simulation.pace.limit > 5000
    simulation.pace.forget(simulation.pace.submitted)
    assert simulation.pace.limit == 16
    simulation.run(1e-4, simulation.pace.ahead)  # what is announced has not been reached, so nothing is known of it
    assert simulation.pace.limit == 16
    simulation.run(0.25, 12)
    assert simulation.pace.limit <= 8


def test_idle_time_is_not_taken_for_work() -> None:
    pace = Pace(1.0, 16)
    for burst in range(20):
        begin = burst * 100.0
        pace.submit(pace.submitted + 10, begin)
        pace.complete(pace.submitted, begin + 0.01)
    assert pace.limit > 500


def test_silence_lowers_what_is_allowed() -> None:
    simulation = Simulation(1.0)
    simulation.run(1e-4, 2000)
    pace, now = simulation.pace, simulation.now
    expected = pace.completed + 100
    assert pace.allowed(expected, now, now) == pace.limit
    assert pace.allowed(expected, now, now + 10) == 10
    assert pace.allowed(expected, now, now + 1000) == FEWEST
    assert pace.allowed(expected, now + 1000, now + 1000) == pace.limit


def test_completions_are_never_counted_twice_or_beyond_what_was_submitted() -> None:
    pace = Pace(1.0, 16)
    pace.submit(10, 0.0)
    pace.complete(99, 1.0)
    assert (pace.completed, pace.ahead) == (10, 0)
    before = pace.limit
    pace.complete(4, 2.0)
    assert (pace.completed, pace.limit) == (10, before)
