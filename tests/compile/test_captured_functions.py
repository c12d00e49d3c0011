"""Compiled functions whose executions are captured and launched as one, on a host that pretends to and on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from server.engine.programs.captures import Captures
from tests.support.captures import simulate_captures

from . import functions as functions
from .harness import CASES, Case, Elements
from .test_functions import outcomes_of

CALLS = 13
"""Executions of a loop are launched from about the sixth on."""


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each execution that was launched."""
    counted: list[int] = []
    launch = Captures.launch

    def noted(self: Captures, *args: Any) -> Any:
        results = launch(self, *args)
        counted.extend([1] if results is not None else [])
        return results

    monkeypatch.setattr(Captures, "launch", noted)
    return counted


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(Elements, "tolerance", request.param.tolerance)
    return request.param._replace(calls=max(CALLS, request.param.calls))  # type: ignore[no-any-return]


def test_captured_equals_eager(
    tg: Any, case: Case, seed: int, launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = outcomes_of(tg, case, seed, compiled=False)
    simulate_captures(monkeypatch)
    for number, (one, other) in enumerate(zip(outcomes_of(tg, case, seed, compiled=True), expected, strict=True)):
        assert one == other, f"call {number // 2}, {len(launches)} launches"


def _trained(tg: Any, seed: int, compiled: bool, device: str) -> list[Any]:
    """Losses, gradients and parameters of a small classifier whose rate changes, on new batches from the host."""
    rng = np.random.default_rng(seed)
    tg.manual_seed(seed)
    model = tg.nn.Sequential(
        tg.nn.Embedding(7, 6), tg.nn.Flatten(), tg.nn.Linear(18, 9), tg.nn.GELU(), tg.nn.Linear(9, 4)
    )
    model.to(device)
    optimizer = tg.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = tg.compile(step) if compiled else step
    losses = []
    for number in range(4 * CALLS):
        optimizer.param_groups[0]["lr"] = 0.01 / (1 + number)
        x = tg.tensor(rng.integers(0, 7, (5, 3)), device=device)
        y = tg.tensor(np.where(rng.random(5) < 0.2, -100, rng.integers(0, 4, 5)), device=device)
        losses.append(run(x, y).item())
    parameters = list(model.parameters())
    return [losses, *[p.grad.tolist() for p in parameters], *[p.tolist() for p in parameters]]


def test_training_is_equal_to_the_bit(tg: Any, seed: int, launches: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _trained(tg, seed, False, "cpu")
    simulate_captures(monkeypatch)
    assert _trained(tg, seed, True, "cpu") == expected
    assert len(launches) >= CALLS, "steps are launched as one"


# -- on a GPU, which really captures them


@pytest.fixture
def on_gpu(cuda_tg: Any) -> Iterator[Any]:
    """The client, which makes tensors on the GPU."""
    cuda_tg.set_default_device("cuda")
    yield cuda_tg
    cuda_tg.set_default_device("cpu")


@pytest.mark.gpu
def test_captured_equals_eager_on_a_gpu(
    on_gpu: Any, case: Case, seed: int, launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Elements, "tolerance", max(case.tolerance, 1e-5))  # sums by atomics have no order
    expected = outcomes_of(on_gpu, case, seed, compiled=False)
    for number, (one, other) in enumerate(zip(outcomes_of(on_gpu, case, seed, compiled=True), expected, strict=True)):
        assert one == other, f"call {number // 2}, {len(launches)} launches"


@pytest.mark.gpu
def test_training_on_a_gpu_is_the_same(cuda_tg: Any, seed: int, launches: list[int]) -> None:
    expected = _trained(cuda_tg, seed, False, "cuda")
    for mine, other in zip(_trained(cuda_tg, seed, True, "cuda"), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
    assert len(launches) >= CALLS // 2, "steps are launched as one"


@pytest.mark.gpu
def test_an_index_out_of_range_fails_at_its_line_on_a_gpu(cuda_tg: Any, launches: list[int]) -> None:
    weight = cuda_tg.randn(5, 3, device="cuda").requires_grad_()

    @cuda_tg.compile
    def step(at: Any) -> Any:
        loss = cuda_tg.nn.functional.embedding(at, weight).square().sum()
        loss.backward()
        with cuda_tg.no_grad():
            weight.sub_(weight.grad * 0.1)
        weight.grad = None
        return loss

    for _ in range(CALLS):
        step(cuda_tg.tensor([0, 1, 4], device="cuda"))
    before = weight.tolist()
    assert launches
    step(cuda_tg.tensor([0, 5, 4], device="cuda"))
    with pytest.raises(IndexError, match="index 5 is out of range"):
        weight.tolist()
    assert weight.tolist() == before
    count = len(launches)
    for _ in range(CALLS):
        step(cuda_tg.tensor([0, 1, 4], device="cuda"))
    assert weight.tolist() != before and len(launches) > count
