"""How many passes a loop takes until it is executed as one: new, or back after another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import telegrad
from server.worker.host import Host

from ..support.captures import simulate_captures
from .settling import SIZES, Adversaries, Evaluation, Seen, Training, small_operations

pytestmark = pytest.mark.usefixtures("gains_by_stretches")

STEPS = len(SIZES)
SETTLED = 7
"""After so many passes loops of small operations have settled, whose first batches the client cuts elsewhere."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A host of its own that pretends to capture work: nobody has used up what may be learnt."""
    simulate_captures(monkeypatch)
    return Host(["cpu"])


@pytest.fixture
def seen(host: Any, monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(host, monkeypatch)


@pytest.fixture
def tg(host: Any) -> Iterator[Any]:
    with telegrad.connect(in_process=host):
        yield telegrad


def _first(seen: Seen, work: Callable[[], object], is_so: Callable[[Counter[str]], bool], most: int = 8) -> int:
    """Return from which pass on all up to ``most`` are as is asked for."""
    passes = [seen.during(work) for _ in range(most)]
    print(*passes, sep="\n")
    return 1 + max([number for number, counts in enumerate(passes, 1) if not is_so(counts)], default=0)


def _is_remembered(counts: Counter[str]) -> bool:
    """Whether the allocator knew where its calls led, but for one of a hundred, where one program follows another."""
    return 100 * counts["new"] < counts["remembered"]


def _is_launched(passes: int) -> Callable[[Counter[str]], bool]:
    """Whether all calls of the allocator were remembered, and so many backward passes were one launch each."""
    return lambda counts: _is_remembered(counts) and counts["launched passes"] == passes


def test_a_new_training_settles(tg: Any, seen: Seen, rng: np.random.Generator) -> None:
    """Its states come in the second pass, and again in the third: the fourth finds where all calls lead."""
    training = Training(tg, rng)
    assert _first(seen, training, _is_remembered) <= 4
    assert _first(seen, training, _is_launched(STEPS), 3) <= 2


def test_a_training_settles_as_soon_after_another_one(tg: Any, seen: Seen, rng: np.random.Generator) -> None:
    """What the first one has dropped, learnt and used up says nothing of the second one."""
    first, second = Training(tg, rng), Training(tg, rng, 3)
    for _ in range(6):
        first()
    assert _first(seen, second, _is_remembered) <= 4
    assert _first(seen, second, _is_launched(STEPS), 3) <= 2


def test_a_training_settles_after_others_have_spent_what_may_be_learnt(
    tg: Any, seen: Seen, rng: np.random.Generator
) -> None:
    first, second = Training(tg, rng), Training(tg, rng, 3)
    for _ in range(6):
        first()
    policy = seen.recall.replay_policy
    policy.miss(policy.room())
    seen.recall._begin_cooldown()
    assert policy.cooldown > 10_000
    for _ in range(2):  # there is nothing to drop in the first step
        second.step(second.batches[0]).item()
    assert _first(seen, second, _is_remembered) <= 4


def test_a_training_that_comes_back_settles_in_two_passes(tg: Any, seen: Seen, rng: np.random.Generator) -> None:
    """In the first of them memory is in states that are new, since there is another training now."""
    first, second = Training(tg, rng), Training(tg, rng, 3)
    for work in (first, second):
        for _ in range(6):
            work()
    seen.during(first)
    assert _first(seen, first, _is_remembered, 4) <= 2
    assert _first(seen, first, _is_launched(STEPS), 3) == 1


def test_two_trainings_in_turn_settle(tg: Any, seen: Seen, rng: np.random.Generator) -> None:
    """Their gradients do not take each other's places."""
    first, second = Training(tg, rng), Training(tg, rng, 3)

    def both() -> None:
        first()
        second()

    assert _first(seen, both, _is_remembered) <= 4
    assert _first(seen, both, _is_launched(2 * STEPS), 3) <= 2


def test_an_evaluation_after_each_pass_changes_nothing(tg: Any, seen: Seen, rng: np.random.Generator) -> None:
    training = Training(tg, rng)
    evaluation = Evaluation(training)

    def epoch() -> None:
        training()
        evaluation()

    assert _first(seen, epoch, lambda counts: counts["launched passes"] == STEPS) <= 5


def test_an_evaluation_now_and_then_leaves_a_training_settled(tg: Any, seen: Seen, rng: np.random.Generator) -> None:
    training = Training(tg, rng)
    evaluation = Evaluation(training)
    for _ in range(6):
        training()
    for _ in range(3):
        evaluation()
        assert _is_launched(STEPS)(seen.during(training))


def test_a_new_optimizer_of_the_same_model_settles(tg: Any, seen: Seen, rng: np.random.Generator) -> None:
    """A learning rate is looked for in a short training, and then the training begins with another optimizer."""
    training = Training(tg, rng)
    training.optimizer = tg.optim.SGD(training.model.parameters(), lr=1e-4)
    for rate in (1e-4, 1e-3, 1e-2):
        training.optimizer.param_groups[0]["lr"] = rate
        training()
    training.optimizer = tg.optim.Adam(training.model.parameters(), lr=1e-3)
    assert _first(seen, training, _is_remembered) <= 4
    assert _first(seen, training, _is_launched(STEPS), 3) <= 2


def test_two_networks_that_judge_each_other_settle(tg: Any, seen: Seen, rng: np.random.Generator) -> None:
    """The passes of the one that makes add to gradients of the one that judges, and cannot be captured."""
    adversaries = Adversaries(tg, rng)
    assert _first(seen, adversaries, _is_remembered) <= 4
    assert _first(seen, adversaries, _is_launched(STEPS), 3) <= 2


def test_a_loop_that_comes_back_is_executed_as_one_at_once(tg: Any, seen: Seen, rng: np.random.Generator) -> None:
    """Its inputs lie elsewhere, and memory is in states that are new: it is launched on memory that is shared."""
    loop, training = small_operations(tg), Training(tg, rng)
    for _ in range(SETTLED):
        loop()
    for _ in range(3):
        for _ in range(3):
            training()
        counts = seen.during(loop)
        assert counts["launched stretches"] == counts["stretches"] > 0
        assert not counts["captures"] and not counts["calls"]


def test_a_loop_of_small_operations_is_captured_a_few_times(tg: Any, seen: Seen) -> None:
    """Once a stretch can be launched anywhere, each other capture is paid for by many launches."""
    loop, captures, launches = small_operations(tg), 0, 0
    for _ in range(40):
        counts = seen.during(loop)
        captures += counts["captures"]
        launches += counts["launched stretches"]
    assert launches > 100
    assert captures <= 12 + launches // 64
