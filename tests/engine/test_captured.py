"""Passes that a device has noted: the same numbers, memory and errors as those that are made operation by operation.

A host notes nothing, so here it pretends to (``tests/support/captures.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from server.engine.device.cpu_backend import CpuBackend
from server.engine.devices import open_device
from server.engine.replay.backward_capture import BackwardCaptures
from telegrad_protocol.meta import CPU
from tests.engine.repeated_gradients import check_gradients_again, differentiable
from tests.engine.test_replay import MODELS, train
from tests.ops.adapters import EngineAdapter
from tests.support.captures import Again, simulate_captures
from tests.support.draws import drawn

pytestmark = pytest.mark.filterwarnings("ignore")
STEPS = 40
PASSES = 8


@pytest.fixture
def adapter(loaded_loops: None) -> EngineAdapter:
    """The engine as it is while a session makes a pass: all indices were checked before."""
    made = EngineAdapter()
    made.context.checks.covered = True
    return made


@pytest.fixture
def launched(counted: list[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The same, where the host notes passes."""
    simulate_captures(monkeypatch)
    return counted


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each pass that was launched."""
    launches: list[int] = []
    launch = BackwardCaptures.replay

    def noted(self: Any, *args: Any) -> bool:
        is_made = launch(self, *args)
        launches.extend([1] if is_made else [])
        return is_made

    monkeypatch.setattr(BackwardCaptures, "replay", noted)
    return launches


@pytest.mark.parametrize("kind", MODELS)
def test_training_is_the_same_to_the_bit_and_byte(
    kind: str, launched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = train(kind, STEPS)
    assert len(launched) >= STEPS // 3
    monkeypatch.setattr(CpuBackend, "can_capture", False)
    assert captured == train(kind, STEPS)


@pytest.mark.parametrize("info", drawn(differentiable(), 40))
def test_every_operation_gives_the_same_gradients_again(info: Any, launched: list[int], adapter: EngineAdapter) -> None:
    check_gradients_again(info, adapter, PASSES)


# -- on a GPU, which really notes them


def _assert_close(gradients: list[Any], expected: list[Any]) -> None:
    for mine, other in zip(gradients, expected, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)


@pytest.mark.gpu
@pytest.mark.parametrize("info", differentiable())
def test_every_operation_gives_the_same_gradients_again_on_a_gpu(
    info: Any, counted: list[int], cuda_device: str
) -> None:
    adapter = EngineAdapter(cuda_device)
    adapter.context.checks.covered = True
    check_gradients_again(info, adapter, 2 * PASSES, _assert_close, PASSES)  # captures take a few passes to settle
    for backend in adapter.backends.values():
        backend.leave(adapter.context)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", MODELS)
def test_training_on_a_gpu_is_the_same(
    kind: str, cuda_host: Any, counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, memory = train(kind, STEPS, cuda_host)
    assert len(counted) >= STEPS // 3
    monkeypatch.setattr(type(cuda_host.backends[cuda_host.default_device]), "can_capture", False)
    expected, usual = train(kind, STEPS, cuda_host)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert memory[1:] == usual[1:]  # the first step finds libraries without their workspace


@pytest.mark.gpu
def test_what_somebody_holds_outlives_the_pass_on_a_gpu(
    cuda_tg: Any, counted: list[int], rng: np.random.Generator
) -> None:
    _hold_some(cuda_tg, counted, rng)


# -- what may differ from one pass to the next


def _repeat(tg: Any, rng: np.random.Generator, steps: int, between: Callable[[int, Any, Any], None]) -> list[Any]:
    """Gradients of the same small function, after each of some passes; ``between`` sees what it computes."""
    x = rng.standard_normal((3, 4))
    leaf = tg.tensor(x).requires_grad_()
    gradients = []
    for step in range(steps):
        leaf.grad = None
        hidden = (leaf * 2).exp()
        loss = (hidden * hidden.sin()).sum()
        between(step, leaf, hidden)
        del hidden
        loss.backward()
        del loss
        gradients.append(leaf.grad.numpy().copy())
    inner = torch.tensor(x, requires_grad=True)
    hidden = (inner * 2).exp()
    (hidden * hidden.sin()).sum().backward()
    for gradient in gradients:
        np.testing.assert_allclose(gradient, inner.grad.numpy(), rtol=1e-12)
    return gradients


def _hold_some(tg: Any, counted: list[int], rng: np.random.Generator) -> None:
    kept: dict[int, tuple[Any, Any]] = {}

    def keep(step: int, leaf: Any, hidden: Any) -> None:
        if step in (20, 21, 30):
            kept[step] = hidden.detach(), hidden.detach().numpy().copy()

    _repeat(tg, rng, 40, keep)
    assert len(counted) >= 10
    for tensor, expected in kept.values():
        np.testing.assert_array_equal(tensor.numpy(), expected)


def test_what_somebody_holds_outlives_the_pass(tg: Any, launched: list[int], rng: np.random.Generator) -> None:
    _hold_some(tg, launched, rng)


def test_a_pass_that_cannot_be_launched_is_made(
    tg: Any, launched: list[int], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Again, "launch", lambda self: False)
    _repeat(tg, rng, 24, lambda *_: None)
    assert not launched


def test_gradients_that_are_there_are_added_to(tg: Any, launched: list[int], rng: np.random.Generator) -> None:
    x = rng.standard_normal(4)
    leaf = tg.tensor(x).requires_grad_()
    for step in range(24):
        if step % 3 == 0:
            leaf.grad = None
        (leaf * leaf).sum().backward()
        np.testing.assert_allclose(leaf.grad.numpy(), 2 * x * (step % 3 + 1), rtol=1e-12)
    assert launched


def test_a_saved_value_that_was_modified_is_found(tg: Any, launched: list[int], rng: np.random.Generator) -> None:
    def modify(step: int, leaf: Any, hidden: Any) -> None:
        if step == 19:
            hidden.detach().add_(1)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _repeat(tg, rng, 20, modify)
    assert launched


def test_sessions_take_turns(tg: Any, host: Any, launched: list[int], rng: np.random.Generator) -> None:
    import telegrad

    def turn(step: int, leaf: Any, hidden: Any) -> None:
        if step in (20, 30):
            with telegrad.connect(in_process=host):
                _repeat(telegrad, rng, 20, lambda *_: None)

    _repeat(tg, rng, 50, turn)
    assert len(launched) >= 20


def test_memory_that_is_gone_is_not_used_again(tg: Any, launched: list[int], rng: np.random.Generator) -> None:
    def empty(step: int, leaf: Any, hidden: Any) -> None:
        if step in (12, 25):
            open_device(CPU).allocator.empty_cache()

    _repeat(tg, rng, 40, empty)
    assert len(launched) >= 8
