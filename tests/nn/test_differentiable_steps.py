"""Steps of optimizers with ``differentiable=True``: gradients flow through them, as with PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

SETTINGS: dict[str, list[dict[str, Any]]] = {
    "SGD": [{}, {"momentum": 0.9, "nesterov": True, "lr": "tensor", "weight_decay": "tensor"}],
    "Adam": [{"weight_decay": 0.1}, {"lr": "tensor", "maximize": True}],
    "AdamW": [{}, {"lr": "tensor", "weight_decay": "tensor"}],
    "Adadelta": [{"weight_decay": 0.1}],
    "Adagrad": [{"lr_decay": 0.2}],
    "ASGD": [{"lambd": 0.1, "maximize": True}],
    "NAdam": [{}, {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "RAdam": [{"weight_decay": 0.1}, {"lr": "tensor"}],
    "RMSprop": [{"weight_decay": 0.1}],
}
CASES = [(name, options) for name, listed in SETTINGS.items() for options in listed]
STEPS = 3


def _outcome(t: Any, name: str, options: dict[str, Any], start: Any, slope: Any) -> list[Any]:
    """The parameter after some steps, and gradients through them: by its start, by its gradients, by settings."""
    first, factor = (t.tensor(values, requires_grad=True) for values in (start, slope))
    settings = {"lr": 0.1, **options}
    tensors = {
        key: t.tensor(0.1, dtype=t.float64, requires_grad=True) for key, value in settings.items() if value == "tensor"
    }
    parameter = first.clone()
    optimizer = getattr(t.optim, name)([parameter], differentiable=True, **{**settings, **tensors})
    for step in range(STEPS):
        parameter.grad = factor * (step + 1) + parameter * 0.1
        optimizer.step()
    return [parameter, *t.autograd.grad((parameter * parameter.conj()).real.sum(), [first, factor, *tensors.values()])]


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_gradients_flow_through_steps_as_with_pytorch(
    tg: Any, rng: np.random.Generator, name: str, options: dict[str, Any]
) -> None:
    start, slope = rng.normal(size=(2, 4)) + 2 * rng.choice([-1, 1], (2, 4))
    kinds = (0,) if "tensor" in options.values() else (0, 1j)
    for imaginary in kinds:
        values = [values * (1 + 0.5 * imaginary) for values in (start, slope)]
        ours, theirs = (_outcome(t, name, options, *values) for t in (tg, torch))
        for mine, reference in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine.detach().numpy(), reference.detach().numpy(), 2e-4, 1e-5)


@pytest.mark.parametrize("name", ["Adamax", "Rprop"])
def test_steps_that_pytorch_cannot_differentiate_twice_follow_differences(
    tg: Any, rng: np.random.Generator, name: str
) -> None:
    start, slope = rng.normal(size=(2, 4)) + 2
    _, by_start, by_slope = _outcome(tg, name, {}, start, slope)

    def loss(*values: Any) -> float:
        return float(_outcome(tg, name, {}, *values)[0].detach().square().sum())

    for own, place in ((by_start, 0), (by_slope, 1)):
        step = np.zeros(4)
        step[1] = 1e-5
        near = [[values + sign * step * (k == place) for k, values in enumerate((start, slope))] for sign in (1, -1)]
        assert own[1].item() == pytest.approx((loss(*near[0]) - loss(*near[1])) / 2e-5, rel=1e-4, abs=1e-6)


def test_muon_refuses_complex_parameters_at_the_step_and_groups_are_copied_as_they_are(tg: Any) -> None:
    weight = tg.ones(2, 2, dtype=tg.complex64, requires_grad=True)
    weight.grad = tg.ones_like(weight)
    with pytest.raises(RuntimeError, match="Muon does not support complex parameters"):
        tg.optim.Muon([weight]).step()
    for t in (tg, torch):
        for name in ("Muon", "Adafactor"):
            optimizer = getattr(t.optim, name)([t.ones(2, 2, requires_grad=True)])
            optimizer.__setstate__(optimizer.__getstate__())
            assert "differentiable" not in optimizer.param_groups[0]
