"""A training step costs no round trip, whatever the network does between."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad import Tensor
from tests.transport.fault_proxy import FaultProxy

from .server_process import ServerProcess

FEATURES, HIDDEN, CLASSES, BATCH = 20, 32, 5, 16


class Training:
    """A small network on made-up data, without modules: operations, gradients, fused updates."""

    def __init__(self) -> None:
        tg.manual_seed(7)
        self.weights = [
            tg.randn(*shape, requires_grad=True)
            for shape in ((FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
        ]
        self.optimizer = tg.optim.Adam(self.weights, lr=1e-2)
        self.data = np.random.default_rng(7)

    def step(self) -> Tensor:
        """Forward, backward, update."""
        x = tg.from_numpy(self.data.standard_normal((BATCH, FEATURES)).astype(np.float32))
        y = tg.from_numpy(self.data.integers(0, CLASSES, BATCH))
        w1, b1, w2, b2 = self.weights
        loss: Tensor = tg.nn.functional.cross_entropy((x @ w1 + b1).relu() @ w2 + b2, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self, steps: int, read_every: int = 10) -> list[np.ndarray[Any, Any]]:
        """The weights afterwards."""
        for number in range(steps):
            loss = self.step()
            if number % read_every == 0:
                loss.item()
        return [weight.detach().numpy() for weight in self.weights]


def test_a_training_step_costs_no_round_trip_and_reading_the_loss_one(tg: Any) -> None:
    training = Training()
    training.step()
    before = tg.wire_stats().round_trips
    for _ in range(5):
        loss = training.step()
    assert all(weight.grad is not None for weight in training.weights)
    assert tg.wire_stats().round_trips == before
    loss.item()
    assert tg.wire_stats().round_trips == before + 1


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_a_step_of_modules_costs_no_round_trip(tg: Any, kind: str) -> None:
    nn = tg.nn
    model = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.LayerNorm(HIDDEN), nn.GELU(), nn.Dropout(0.1), nn.Linear(HIDDEN, CLASSES)
    )
    options = {"momentum": 0.9} if kind == "SGD" else {}
    optimizer = getattr(tg.optim, kind)(model.parameters(), lr=1e-3, weight_decay=0.01, **options)
    schedule = tg.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    data, labels = np.ones((BATCH, FEATURES), np.float32), np.arange(BATCH) % CLASSES

    def step() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = nn.CrossEntropyLoss()(model(tg.from_numpy(data)), tg.from_numpy(labels))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss

    first = step().item()
    before = tg.wire_stats().round_trips
    for _ in range(5):
        loss = step()
    assert tg.wire_stats().round_trips == before
    assert np.isfinite([first, loss.item()]).all()
    assert tg.wire_stats().round_trips == before + 1


def _undisturbed(server: ServerProcess, steps: int) -> tuple[list[np.ndarray[Any, Any]], int, int]:
    """The weights, how many operations the worker ran, and how many bytes went over the wire."""
    with tg.connect(server.url):
        before = server.operations
        weights = Training().run(steps)
        stats = tg.wire_stats()
        return weights, server.operations - before, stats.bytes_sent + stats.bytes_received


def test_weights_are_bit_identical_through_a_bad_network(server: ServerProcess, seed: int) -> None:
    steps, cuts = 120, 50
    wanted, operations, traffic = _undisturbed(server, steps)
    draw = random.Random(seed)
    with FaultProxy(server.port, delay=0.03) as proxy:
        before = server.operations
        with tg.connect(f"http://127.0.0.1:{proxy.port}") as connection:
            training = Training()
            proxy.cut_after([draw.randrange(1, 2 * traffic // cuts) for _ in range(cuts)])
            found = training.run(steps)
            while proxy.cuts < cuts:
                tg.tensor(found[0])
                tg.cuda.synchronize()
            reconnects = connection.session.transport.stats.reconnects
    assert server.operations - before == operations, "operations were lost, or ran twice"
    assert reconnects >= cuts / 2
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
