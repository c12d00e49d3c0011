"""Programs whose Python numbers change from pass to pass: sessions compute with the numbers that were sent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import keys, plan
from server.engine.operators import OPERATORS
from telegrad_protocol import messages
from tests.support.reading_numbers import ReadingNumbers, reading_numbers

from .driver import F32, Talk, call
from .queued import GPU, QueuedBackend, queued_host

START = np.float32([1.5, -2.0, 0.25, 3e-3, 7.0])


@pytest.fixture
def draw(rng: np.random.Generator) -> random.Random:
    return random.Random(int(rng.integers(1 << 32)))


@pytest.fixture
def reading() -> Iterator[ReadingNumbers]:
    with reading_numbers(keys.CUDA) as factory:
        yield factory


def _opened(host: Any) -> Talk:
    talk = Talk(host)
    talk.send(messages.Upload(1, 0, F32, START.shape, GPU.name, START.tobytes()))
    return talk


def _close(talk: Talk, backend: QueuedBackend) -> None:
    talk.session.close()
    assert backend.allocator.allocated_bytes(talk.number) == 0


def _pass(ids: int, a: float, b: float) -> list[Any]:
    """A pass over tensor 1, which it changes; the numbers are those of an optimizer with bias corrections."""
    return [
        call("mul", ids, 1, [a]), call("div", ids + 1, ids, [1 - a]), call("mul", ids + 2, 1, [0.125]),
        call("add", ids + 3, ids + 1, ids + 2, alpha=b), call("mul_", 1, 1, [b]), call("sub_", 1, 1, ids + 3, alpha=a),
    ]  # fmt: skip


def _expected(value: torch.Tensor, a: float, b: float) -> torch.Tensor:
    return value * b - a * (value * a / (1 - a) + b * (value * 0.125))


def test_each_pass_computes_with_its_own_numbers(reading: ReadingNumbers, draw: random.Random) -> None:
    host, backend = queued_host()
    talk, ids = _opened(host), 100
    kept = [(draw.uniform(0.1, 0.4), draw.uniform(0.6, 0.9)) for _ in range(3)]
    for number in range(60):
        a, b = kept[number % 3] if 20 <= number < 40 else (draw.uniform(0.1, 0.4), draw.uniform(0.6, 0.9))
        before = talk.read(1).copy()
        talk.send(*_pass(ids, a, b), messages.Free(list(range(ids, ids + 4))))
        alone = _opened(host)
        alone.send(messages.Upload(1, 0, F32, START.shape, GPU.name, before.tobytes()), *_pass(ids, a, b))
        assert talk.read(1).tobytes() == alone.read(1).tobytes()
        np.testing.assert_allclose(talk.read(1), _expected(torch.from_numpy(before), a, b).numpy(), rtol=1e-5)
        _close(alone, backend)
        ids += 4
    _close(talk, backend)


def test_new_numbers_are_nothing_new(reading: ReadingNumbers, draw: random.Random) -> None:
    host, backend = queued_host()
    talk, before = _opened(host), None
    for number in range(40):
        a, b, ids = draw.uniform(0.1, 0.4), draw.uniform(0.6, 0.9), 100 + 4 * number
        talk.send(*_pass(ids, a, b), messages.Free(list(range(ids, ids + 4))))
        kept = {name: OPERATORS[name].cache_sizes() for name in ("mul", "div", "add", "mul_", "sub_")}
        now = plan.plans_made(), reading.made, kept
        assert number < 5 or now == before
        before = now
    _close(talk, backend)


def test_losses_have_gradients_by_each_calls_own_weight(reading: ReadingNumbers, draw: random.Random) -> None:
    host, backend = queued_host()
    talk = _opened(host)
    ones = np.ones_like(START).tobytes()
    talk.send(messages.SetRequiresGrad(1, True), messages.Upload(2, 0, F32, START.shape, GPU.name, ones))
    weights = [draw.uniform(0.1, 0.9) for _ in range(6)]
    for number, weight in enumerate([*weights, *weights, weights[0], weights[0], *weights]):
        ids = 100 + 2 * number
        wanted = messages.Gradient(0, (ids,), (2,), (1,), (ids + 1,), False, False, False)
        assert talk.send(call("mul", ids, 1, [weight]), wanted) == []
        assert talk.read(ids + 1).tolist() == [np.float32(weight)] * len(START)
    _close(talk, backend)
