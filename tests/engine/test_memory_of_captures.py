"""When programs that are captured have the allocator learn, and when they take memory of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import functional as F
from server.engine.programs import captures as module
from server.engine.programs.captures import Captures
from server.engine.programs.expansion import traced
from server.engine.programs.specialise import specialise
from server.engine.replay.captures import CaptureTable
from server.engine.value import Value

from ..ops.adapters import EngineAdapter
from ..support.captures import simulate_captures


def _layers(x: Value, weight: Value) -> Value:
    return F.mm(F.mm(x, weight), weight)


def _drawn(adapter: EngineAdapter, seed: int) -> list[Value]:
    torch.manual_seed(seed)
    return [adapter.tensor(torch.randn(24, 24) / 5) for _ in range(2)]


def _captures(values: Sequence[Value]) -> Captures:
    metas = [value.meta for value in values]
    return Captures(specialise(traced(_layers, metas), metas), values[0].backend)


def _run(captures: Captures, values: Sequence[Value]) -> Any:
    execution = captures.begin(values)
    assert execution.advance()
    return execution.outputs()[0]


def test_a_program_that_comes_again_has_the_allocator_remember(
    adapter: EngineAdapter, seed: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """What was never the same before had made the allocator give up for some thousand calls."""
    simulate_captures(monkeypatch)
    values = _drawn(adapter, seed)
    allocator = values[0].backend.allocator
    policy = allocator.recall.replay_policy
    held = []
    while not policy.cooldown:
        held.append(allocator.allocate(int(rng.integers(1, 1 << 16)), 0, 0))
        if len(held) > 64:
            allocator.free(held.pop(int(rng.integers(len(held)))))
    captures = _captures(values)
    _run(captures, values)
    assert policy.cooldown
    for _ in range(2):
        _run(captures, values)
    assert not policy.cooldown
    for block in held:
        allocator.free(block)


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch) -> None:
    """No state of memory comes again, and after two executions one is captured on memory of its own."""
    simulate_captures(monkeypatch)
    monkeypatch.setattr(CaptureTable, "repeats", lambda *_: False)
    monkeypatch.setattr(module, "FEWEST_MISSES", 2)


@pytest.mark.usefixtures("moving")
@pytest.mark.parametrize(("large", "executions"), [(1 << 40, 2), (0, 6)])
def test_large_memory_of_its_own_is_taken_later(
    adapter: EngineAdapter, seed: int, monkeypatch: pytest.MonkeyPatch, large: int, executions: int
) -> None:
    monkeypatch.setattr(module, "LARGE_BYTES", large)
    values = _drawn(adapter, seed)
    captures = _captures(values)
    for number in range(1, 8):
        _run(captures, values)
        assert (captures._private is not None) == (number >= executions), f"execution {number}"


@pytest.mark.usefixtures("moving")
@pytest.mark.parametrize(("large", "is_given_back"), [(1 << 40, False), (0, True)])
def test_large_memory_of_its_own_is_given_back_before_other_memory_is_taken(
    adapter: EngineAdapter, seed: int, monkeypatch: pytest.MonkeyPatch, large: int, is_given_back: bool
) -> None:
    monkeypatch.setattr(module, "LARGE_BYTES", large)
    values = _drawn(adapter, seed)
    captures = _captures(values)
    for _ in range(7):
        _run(captures, values)
    assert captures._private is not None
    elsewhere = [values[0], _drawn(adapter, seed + 1)[1]]
    begin, during = captures.executable.begin, []

    def noted(given: Any) -> Any:
        during.append(captures._private is None)
        return begin(given)

    monkeypatch.setattr(type(captures.executable), "begin", lambda self, given: noted(given))
    expected = adapter.numpy(elsewhere[0]) @ adapter.numpy(elsewhere[1]) @ adapter.numpy(elsewhere[1])
    np.testing.assert_allclose(adapter.numpy(_run(captures, elsewhere)), expected, rtol=1e-4, atol=1e-5)
    assert during == [is_given_back]
    captures._private = None
