"""Reads that are answered before their turn: only where nothing that waits before them could make a difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from server.engine.device.cpu_backend import CpuBackend
from server.engine.value import Value
from server.session.session import Session
from telegrad_protocol.messages import Backward

STEPS = 6


class Early:
    """What a session was about to send in the middle of a turn: how often, and a parameter's elements then."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.parameter = self.sent = 0
        self.seen: list[np.ndarray[Any, Any]] = []
        session.send = self._note

    def _note(self) -> None:
        self.sent += 1
        if self.parameter:
            self.seen.append(self.session.state.value(self.parameter).array.copy())


@pytest.fixture
def early(tg: Any, host: Any) -> Iterator[Early]:
    yield Early(list(host.sessions.values())[-1])


def _data(rng: np.random.Generator) -> tuple[Any, Any]:
    return rng.standard_normal((5, 3)), rng.integers(0, 4, 5)


def _loop(lib: Any, x: Any, y: Any, weight: Any) -> tuple[Any, Any]:
    """A step of a linear classifier that returns its loss, and its parameter."""
    inputs, labels = lib.tensor(x), lib.tensor(y)
    parameter = lib.tensor(weight).requires_grad_()
    optimizer = lib.optim.SGD([parameter], lr=0.1)

    def step() -> Any:
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(inputs @ parameter, labels)
        loss.backward()
        optimizer.step()
        return loss

    return step, parameter


def test_a_loss_is_sent_before_the_pass_and_is_right(tg: Any, early: Early, rng: np.random.Generator) -> None:
    x, y = _data(rng)
    weight = rng.standard_normal((3, 4))
    step, parameter = _loop(tg, x, y, weight)
    reference, theirs = _loop(torch, x, y, weight)
    early.parameter = parameter._id
    for number in range(STEPS):
        before, known = theirs.detach().numpy().copy(), len(early.seen)
        assert step().item() == pytest.approx(reference().item(), rel=1e-12)
        if number >= 2:  # passes are recorded when they come again
            assert len(early.seen) == known + 1
            np.testing.assert_allclose(early.seen[-1], before, rtol=1e-12)
        np.testing.assert_allclose(parameter.detach().numpy(), theirs.detach().numpy(), rtol=1e-12)


def test_what_the_step_updates_is_read_after_it(tg: Any, early: Early, rng: np.random.Generator) -> None:
    x, y = _data(rng)
    weight = rng.standard_normal((3, 4))
    step, parameter = _loop(tg, x, y, weight)
    reference, theirs = _loop(torch, x, y, weight)
    for _ in range(STEPS):
        step()
        reference()
        np.testing.assert_allclose(parameter.tolist(), theirs.tolist(), rtol=1e-12)
    assert not early.sent


def test_accumulated_gradients_are_read_after_the_pass(tg: Any, early: Early, rng: np.random.Generator) -> None:
    x = rng.standard_normal(4)
    ours, theirs = (lib.tensor(x).requires_grad_() for lib in (tg, torch))
    for _ in range(STEPS):
        for leaf in (ours, theirs):
            (leaf * leaf).sum().backward()
        np.testing.assert_allclose(ours.grad.tolist(), theirs.grad.tolist(), rtol=1e-12)
    assert not early.sent


def test_a_loss_that_an_update_writes_into_is_read_after_it(tg: Any, early: Early, rng: np.random.Generator) -> None:
    x = rng.standard_normal(4)
    for _ in range(STEPS):
        found = []
        for lib in (tg, torch):
            leaf = lib.tensor(x).requires_grad_()
            loss = (leaf * leaf).sum()
            alias = loss.detach()
            alias.grad = lib.ones_like(alias)
            optimizer = lib.optim.SGD([alias], lr=0.5)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        assert found[0] == pytest.approx(found[1], rel=1e-12)
    assert not early.sent


def test_a_failing_pass_is_told_at_the_read(tg: Any, early: Early, rng: np.random.Generator) -> None:
    leaf = tg.tensor(rng.standard_normal(4)).requires_grad_()
    for number in range(STEPS):
        result = (leaf * 1).exp()
        loss = result.sum()
        if number == STEPS - 1:
            result.detach().add_(1)
            loss.backward()
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.item()
        else:
            loss.backward()
            loss.item()


def test_an_operation_that_may_fail_keeps_a_read_in_its_turn(tg: Any, early: Early, rng: np.random.Generator) -> None:
    leaf = tg.tensor(rng.standard_normal(4)).requires_grad_()
    table = tg.tensor(rng.standard_normal((3, 2)))
    indices = [tg.tensor([number]) for number in range(STEPS)]
    for number in range(STEPS):
        loss = (leaf * leaf).sum()
        loss.backward()
        tg.nn.functional.embedding(indices[number], table)
        if number > 2:
            with pytest.raises(IndexError):
                loss.item()
        else:
            loss.item()
    assert not early.sent


def test_a_read_that_fails_early_is_answered_in_its_turn(
    tg: Any, early: Early, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = _data(rng)
    weight = rng.standard_normal((3, 4))
    step, _ = _loop(tg, x, y, weight)
    reference, _ = _loop(torch, x, y, weight)

    def copied(backend: CpuBackend, value: Value) -> bytes:
        if early.session.state.instruction.__class__ is Backward:
            raise MemoryError
        return value.array.tobytes()  # type: ignore[no-any-return]

    monkeypatch.setattr(CpuBackend, "bytes_at_once", copied)
    for _ in range(STEPS):
        assert step().item() == pytest.approx(reference().item(), rel=1e-12)
    assert not early.sent
