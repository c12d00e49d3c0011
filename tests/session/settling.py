"""Programs that come again, alone and in turn with others, and what a session does in each of their passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pytest

from server.engine.programs.captures import Captures
from server.engine.replay.backward_capture import BackwardCaptures
from server.session.programs import stretches

SIZES: Final = (3, 11, 7, 20, 5, 16)
WIDTHS: Final = (12, 40, 30, 1)


class Seen:
    """Counts what is executed as one, and what is learnt, in a pass of a program on the CPU's backend of a host."""

    def __init__(self, host: Any, patch: pytest.MonkeyPatch) -> None:
        self.recall = next(iter(host.backends.values())).allocator.recall
        self.counts: Counter[str] = Counter()
        self._count(patch, BackwardCaptures, "run", lambda result: "passes")
        self._count(patch, BackwardCaptures, "replay", lambda result: "launched passes" if result else "")
        self._count(patch, stretches, "_begin", lambda result: "stretches")
        self._count(patch, stretches, "_one_by_one", lambda result: "calls")
        for name in ("launch", "launch_anywhere"):
            self._count(patch, Captures, name, lambda result: "" if result is None else "launched stretches")
        self._count(patch, Captures, "learn", lambda result: "captures")

    def _count(self, patch: pytest.MonkeyPatch, owner: Any, name: str, word_of: Callable[[Any], str]) -> None:
        plain = getattr(owner, name)

        def counting(*args: Any) -> Any:
            result = plain(*args)
            self.counts[word_of(result)] += 1
            return result

        patch.setattr(owner, name, counting)

    def during(self, work: Callable[[], object]) -> Counter[str]:
        """Return the counts of some work, with the allocator's calls that were ``remembered`` and those ``new``."""
        self.counts.clear()
        before = self._calls()
        work()
        hits, misses = (now - then for now, then in zip(self._calls(), before, strict=True))
        return self.counts + Counter({"remembered": hits, "new": misses})

    def _calls(self) -> tuple[int, int]:
        recall = self.recall
        recall.flush_totals()
        policy = recall.replay_policy
        assert not policy.cooldown, "a cooldown counts no misses"
        return policy.hits, policy.misses + recall._count - recall._left


class Training:
    """Steps of a perceptron on batches of other sizes in turn; gradients are dropped after the forward pass."""

    def __init__(self, tg: Any, rng: np.random.Generator, width: int = 0) -> None:
        self.tg, nn = tg, tg.nn
        widths = [one + width for one in WIDTHS]
        layers = [[nn.Linear(here, there), nn.Tanh()] for here, there in pairwise(widths)]
        self.model = nn.Sequential(*[one for pair in layers for one in pair])
        self.optimizer = tg.optim.Adam(self.model.parameters(), lr=1e-3)
        self.batches = [tg.tensor(rng.standard_normal((size, widths[0])), dtype=tg.float32) for size in SIZES]

    def step(self, batch: Any) -> Any:
        loss = self.model(batch).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def __call__(self) -> None:
        for batch in self.batches:
            loss = self.step(batch)
        loss.item()


class Evaluation:
    """The loss of a model on all batches, without gradients."""

    def __init__(self, training: Training) -> None:
        self.training = training

    def __call__(self) -> None:
        training = self.training
        with training.tg.no_grad():
            total = sum([training.model(batch).square().mean() for batch in training.batches])
        total.item()


class Adversaries:
    """Two networks with an optimizer each: what one makes the other one judges, and they are trained in turn."""

    def __init__(self, tg: Any, rng: np.random.Generator) -> None:
        self.maker, self.judge = Training(tg, rng), Training(tg, rng)
        self.tg = tg
        self.maker.model = tg.nn.Sequential(tg.nn.Linear(6, 30), tg.nn.ReLU(), tg.nn.Linear(30, WIDTHS[0]))
        self.maker.optimizer = tg.optim.Adam(self.maker.model.parameters(), lr=1e-3)
        self.noises = [tg.tensor(rng.standard_normal((size, 6)), dtype=tg.float32) for size in SIZES]

    def __call__(self) -> None:
        for batch, noise in zip(self.judge.batches, self.noises, strict=True):
            made = self.maker.model(noise)
            judged = (self.judge.model(batch) - 1).square().mean() + self.judge.model(made.detach()).square().mean()
            self.judge.optimizer.zero_grad()
            judged.backward()
            self.judge.optimizer.step()
            loss = (self.judge.model(made) - 1).square().mean()
            self.maker.optimizer.zero_grad()
            loss.backward()
            self.maker.optimizer.step()
        loss.item()


def small_operations(tg: Any) -> Callable[[], None]:
    """Return a loop of small operations and one read."""
    x = tg.ones(8)

    def work() -> None:
        y = x
        for _ in range(150):
            y = tg.sin(y) * 1.01
        y.sum().item()

    return work
