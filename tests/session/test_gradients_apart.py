"""Gradients that live beside the next forward pass lie where they lay, so that memory comes to the same states soon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import telegrad
from server.allocator.core.block import apart, stream_of
from server.engine import backward
from server.engine.autograd.apart import DroppedGradients
from telegrad_protocol import dtypes
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta

from .queued import queued_host
from .stretches import call_by_call

SIZES = (3, 11, 7, 20, 5)
PASSES = 6


class Training:
    """Steps of a perceptron on batches of other sizes, in an order that comes again."""

    def __init__(self, tg: Any, seed: int, drops: Callable[[int], bool]) -> None:
        self.tg, self.drops = tg, drops
        rng = np.random.default_rng(seed)
        self.weights = [tg.tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((30, 12), (40, 30))]
        self.batches = [tg.tensor(rng.standard_normal((size, 12))) for size in SIZES]

    def drop(self) -> None:
        """Do what ``zero_grad`` does."""
        self.tg.optim.SGD(self.weights, lr=0.1).zero_grad()

    def step(self, batch: Any) -> Any:
        """Drop gradients before the part of the step that is asked for, and return the loss."""
        for part in range(3):
            if self.drops(part):
                self.drop()
            if part == 0:
                hidden = (batch @ self.weights[0].T).tanh()
            elif part == 1:
                loss = (hidden @ self.weights[1].T).square().mean()
        loss.backward()
        with self.tg.no_grad():
            for weight in self.weights:
                weight -= 0.1 * weight.grad
        return loss.detach()

    def run(self) -> list[Any]:
        """Make one pass over the batches; returns the losses."""
        return [self.step(batch).item() for batch in self.batches]


def _engine(tg: Any) -> Any:
    session = tg._session.current.current_session()
    session.flush()
    return session.transport._session


def _block(tg: Any, tensor: Any) -> Any:
    return _engine(tg).state.value(tensor._id).storage.block


def _backend(tg: Any, tensor: Any) -> Any:
    return _engine(tg).state.value(tensor._id).backend


@pytest.mark.parametrize("part", [1, 2])
def test_gradients_lie_where_they_lay_whatever_the_size_of_the_batch(tg: Any, seed: int, part: int) -> None:
    training = Training(tg, seed, lambda now: now == part)
    training.run()
    places = set()
    for batch in training.batches * 2:
        training.step(batch)
        blocks = [_block(tg, weight.grad) for weight in training.weights]
        assert all(block.stream != stream_of(block.stream) for block in blocks)
        places.add(tuple(block.pointer for block in blocks))
    assert len(places) == 1


def test_gradients_that_are_dropped_first_share_memory_with_the_rest(tg: Any, seed: int) -> None:
    training = Training(tg, seed, lambda now: now == 0)
    training.run()
    training.run()
    blocks = [_block(tg, weight.grad) for weight in training.weights]
    assert all(block.stream == stream_of(block.stream) for block in blocks)


def test_nothing_lies_apart_after_a_pass_that_failed(tg: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(tg, seed, lambda now: now == 2)
    training.run()

    backend, numbers = _backend(tg, training.weights[0]), []

    def fail(*arguments: Any) -> None:
        numbers.append(backend.apart)
        raise AutogradError("the pass fails")

    with monkeypatch.context() as patch, pytest.raises(AutogradError, match="the pass fails"):
        patch.setattr(backward, "_follow", fail)
        training.run()
    assert len(numbers[0]) == len(training.weights) and backend.apart is None


def test_losses_are_those_of_a_training_whose_gradients_lie_with_the_rest(
    tg: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Training(tg, seed, lambda now: now == 0)
    with monkeypatch.context() as patch, call_by_call(tg):
        patch.setattr(backward, "_repeatable_edge", lambda roots: None)
        losses = [expected.run() for _ in range(PASSES)]
    training = Training(tg, seed, lambda now: now == 2)
    assert [training.run() for _ in range(PASSES)] == losses


def test_all_calls_of_the_allocator_are_remembered_in_the_fourth_pass(tg: Any, seed: int) -> None:
    """Where gradients lay with the rest it took as long as it took them to come round to the same places."""
    training = Training(tg, seed, lambda now: now == 2)
    recall = _backend(tg, training.weights[0]).allocator.recall
    recall.expect_repetition()  # other tests may have used up what it may note
    for _ in range(3):
        training.run()
    recall.flush_totals()
    before = recall.replay_policy.misses, recall._left
    training.run()
    assert (recall.replay_policy.misses, recall._left) == before


def test_what_lies_apart_is_asked_for_on_the_stream_of_the_pass() -> None:
    _, backend = queued_host()
    dropped = DroppedGradients()
    for stream, sizes in ((100, (3, 5)), (102, (5, 9))):
        backend.stream = stream
        for size in sizes:
            dropped.note(backend.empty(Meta.of((size,), dtypes.float64, backend.device)))
    for stream in (100, 101, 102, 100):
        backend.stream = stream
        dropped.begin_pass()
        assert backend.apart == dict.fromkeys((24, 40, 72), apart(stream))
        dropped.end_pass()
        assert backend.apart is None


def test_another_stream_ends_what_lies_apart(seed: int) -> None:
    host, backend = queued_host()
    with telegrad.connect(in_process=host):
        telegrad.ones(3).sum().item()
        backend.apart = {12: 1}
        with telegrad.cuda.Stream():
            telegrad.ones(3)
            _engine(telegrad)
            assert backend.apart is None
