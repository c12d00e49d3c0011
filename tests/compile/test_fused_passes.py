"""Passes outside of compiled functions over what these have left: fused, equal to eager ones, freed as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from server.engine.programs.fused_pass import FusedPass
from tests.support.captures import simulate_captures

STEPS = 24


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each pass that was made by fused kernels."""
    counted: list[int] = []
    run = FusedPass.run

    def noted(self: FusedPass, *args: Any) -> bool:
        is_made = run(self, *args)
        counted.extend([1] if is_made else [])
        return is_made

    monkeypatch.setattr(FusedPass, "run", noted)
    return counted


def _trained(tg: Any, seed: int, compiled: bool, device: str) -> list[Any]:
    """Losses and gradients of a compiled model, trained by a loss, a pass and an optimizer outside of it."""
    rng = np.random.default_rng(seed)
    tg.manual_seed(seed)
    first, second = tg.nn.Linear(8, 16).to(device), tg.nn.Linear(16, 4).to(device)
    scale = tg.ones(16, device=device).requires_grad_()
    parameters = [*first.parameters(), *second.parameters(), scale]
    optimizer = tg.optim.SGD(parameters, lr=0.05, momentum=0.9)

    def forward(x: Any) -> Any:
        hidden = first(x)
        hidden = hidden * (hidden * 1.7).sigmoid() * scale
        return second(hidden.tanh() + hidden * 0.5)

    model = tg.compile(forward) if compiled else forward
    told: list[Any] = []
    for number in range(STEPS):
        optimizer.zero_grad(set_to_none=number % 5 != 4)
        x, y = (tg.tensor(rng.standard_normal((6, n)).astype("f"), device=device) for n in (8, 4))
        if number % 4 == 3:
            x.requires_grad_()
        loss = (model(x) - y).square().mean()
        loss.backward(retain_graph=number % 6 == 5)
        if number % 6 == 5:
            loss.backward()
        told += [loss.item(), *[p.grad.tolist() for p in parameters]]
        told += [x.grad.tolist()] if x.requires_grad else []
        optimizer.step()
    return told


@pytest.mark.parametrize("captured", [False, True], ids=["executed", "captured"])
def test_passes_are_equal_to_the_bit(
    tg: Any, seed: int, captured: bool, fused: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _trained(tg, seed, False, "cpu")
    assert not fused, "eager passes are not fused"
    if captured:
        simulate_captures(monkeypatch)
    assert _trained(tg, seed, True, "cpu") == expected
    assert fused


@pytest.mark.gpu
def test_passes_on_a_gpu(cuda_tg: Any, seed: int) -> None:
    expected = _trained(cuda_tg, seed, False, "cuda")
    for mine, other in zip(_trained(cuda_tg, seed, True, "cuda"), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-5)


def test_what_was_saved_and_modified_is_found(tg: Any, fused: list[int]) -> None:
    weight = tg.randn(5, 5).requires_grad_()

    @tg.compile
    def forward(x: Any) -> Any:
        hidden = x * weight
        return hidden.sigmoid() * hidden

    for _ in range(STEPS):
        weight.grad = None
        forward(tg.randn(5, 5)).sum().backward()
    weight.tolist()
    assert fused
    x = tg.ones(5, 5)
    loss = forward(x).sum()
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
        weight.tolist()
