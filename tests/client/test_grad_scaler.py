"""GradScaler: PyTorch's scales and parameters step by step, overflow included, without waiting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import ArgumentError, AutogradError, StateDictError

OPTIMIZERS = {
    "SGD": {"lr": 0.1}, "SGD-momentum": {"lr": 0.1, "momentum": 0.9}, "SGD-damped": {"lr": 0.1, "momentum": 0.9,
    "dampening": 0.5}, "Adam": {"lr": 0.01}, "AdamW": {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True},
    "Adam-fused": {"lr": 0.01, "fused": True},
}  # fmt: skip
OVERFLOWS = (0, 4, 5)
"""Steps in which a gradient is infinite."""


class _Side:
    """One of the two sides: a weight, its optimizer, and a scaler."""

    def __init__(self, t: Any, name: str, start: np.ndarray, **options: Any) -> None:
        self.t = t
        self.weight = t.tensor(start.copy(), requires_grad=True)
        self.optimizer = getattr(t.optim, name.split("-")[0])([self.weight], **OPTIMIZERS[name])
        settings = {"init_scale": 2.0**10, "growth_interval": 3, **options}
        self.scaler = t.amp.GradScaler("cpu", **settings)

    def backward(self, x: np.ndarray, overflows: bool) -> None:
        self.optimizer.zero_grad()
        loss = (self.weight * self.t.tensor(x)).sum()
        if overflows:
            loss = loss + self.weight[0] * float("inf")
        self.scaler.scale(loss).backward()

    def step(self, x: np.ndarray, overflows: bool, clips: bool = False) -> None:
        self.backward(x, overflows)
        if clips:
            self.scaler.unscale_(self.optimizer)
            self.t.nn.utils.clip_grad_norm_([self.weight], 0.5)
        self.scaler.step(self.optimizer)
        self.scaler.update()


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_scale_and_parameters_follow_pytorch(tg: Any, rng: np.random.Generator, name: str, clips: bool) -> None:
    start = rng.normal(size=(7,)).astype(np.float32)
    ours, theirs = (_Side(t, name, start) for t in (tg, torch))
    for number in range(12):
        x = rng.normal(size=(7,)).astype(np.float32)
        for side in (ours, theirs):
            side.step(x, number in OVERFLOWS, clips)
        assert ours.scaler.get_scale() == theirs.scaler.get_scale(), f"step {number}"
        assert ours.scaler.state_dict() == theirs.scaler.state_dict()
        np.testing.assert_allclose(
            ours.weight.detach().numpy(), theirs.weight.detach().numpy(), rtol=1e-5, atol=1e-6, err_msg=f"step {number}"
        )
        np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["SGD", "SGD-momentum", "Adam", "AdamW"])
@pytest.mark.parametrize("clips", [False, True])
def test_a_step_waits_for_nothing(tg: Any, name: str, clips: bool) -> None:
    side = _Side(tg, name, np.ones(4, np.float32))
    session = tg._session.current.current_session()
    side.step(np.ones(4, np.float32), False)
    trips = session.round_trips
    for overflows in (True, False):
        side.step(np.ones(4, np.float32), overflows, clips)
    assert session.round_trips == trips


def test_an_optimizer_that_is_a_program_is_skipped_with_one_round_trip(tg: Any) -> None:
    steps = []

    class Plain(tg.optim.Optimizer):  # type: ignore[misc,name-defined]
        def step(self, closure: Any = None) -> None:
            steps.append(self)

    side = _Side(tg, "SGD", np.ones(4, np.float32))
    side.optimizer = Plain([side.weight], {})
    session = tg._session.current.current_session()
    for overflows in (False, True):
        trips = session.round_trips
        side.step(np.ones(4, np.float32), overflows)
        assert session.round_trips == trips + 1
    assert len(steps) == 1
    assert side.weight.grad.tolist() == [np.inf, 1, 1, 1]


def test_two_optimizers_share_a_scale_and_only_one_is_skipped(tg: Any) -> None:
    first, second = (_Side(tg, "SGD", np.ones(3, np.float32)) for _ in range(2))
    second.scaler = first.scaler
    first.backward(np.ones(3, np.float32), True)
    second.backward(np.ones(3, np.float32), False)
    for side in (first, second):
        first.scaler.step(side.optimizer)
    first.scaler.update()
    assert first.scaler.get_scale() == 2.0**9
    np.testing.assert_array_equal(first.weight.detach().numpy(), np.ones(3, np.float32))
    np.testing.assert_allclose(second.weight.detach().numpy(), np.full(3, 0.9, np.float32), rtol=1e-6)


@pytest.mark.parametrize("outputs", ["list", "tuple", "nested", "generator"])
def test_outputs_come_back_in_their_containers(tg: Any, outputs: str) -> None:
    scaler = tg.amp.GradScaler("cpu", init_scale=4.0)
    one, two = tg.ones(2), tg.ones(3)
    given = {"list": [one, two], "tuple": (one, two), "nested": [one, (two,)], "generator": iter((one, two))}[outputs]
    scaled = scaler.scale(given)
    assert outputs == "generator" or type(scaled) is type(given)
    first, second = scaled
    second = second[0] if outputs == "nested" else second
    np.testing.assert_array_equal(first.numpy(), np.full(2, 4, np.float32))
    np.testing.assert_array_equal(second.numpy(), np.full(3, 4, np.float32))


def test_what_comes_in_a_wrong_order_is_refused(tg: Any) -> None:
    side = _Side(tg, "SGD", np.ones(3, np.float32))
    scaler, optimizer = side.scaler, side.optimizer
    for name, attempt in (("unscale_", scaler.unscale_), ("step", scaler.step)):
        with pytest.raises(AutogradError, match=f"{name}: there is no scale yet"):
            attempt(optimizer)
    side.backward(np.ones(3, np.float32), False)
    with pytest.raises(AutogradError, match="no gradients were checked"):
        scaler.update()
    scaler.unscale_(optimizer)
    with pytest.raises(AutogradError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(AutogradError, match="already been called"):
        scaler.step(optimizer)
    with pytest.raises(AutogradError, match="after step"):
        scaler.unscale_(optimizer)
    with pytest.raises(AutogradError, match="closure"):
        scaler.step(optimizer, closure=lambda: None)
    scaler.update()


@pytest.mark.parametrize(
    "attempt",
    [
        lambda t, scaler, optimizer: scaler.unscale_(optimizer),
        lambda t, scaler, optimizer: scaler.step(optimizer),
        lambda t, scaler, optimizer: (scaler.scale(t.ones(1)), scaler.step(optimizer)),
        lambda t, scaler, optimizer: (scaler.scale(t.ones(1)), scaler.update()),
        lambda t, scaler, optimizer: (scaler.scale(t.ones(1)), scaler.update(t.ones(2))),
        lambda t, scaler, optimizer: t.amp.GradScaler("cpu", growth_factor=0.5),
        lambda t, scaler, optimizer: t.amp.GradScaler("cpu", backoff_factor=2.0),
    ],
)
def test_what_pytorch_asserts_of_a_scaler(tg: Any, attempt: Any) -> None:
    for t in (torch, tg):
        optimizer = t.optim.SGD([t.ones(1, requires_grad=True)], lr=0.1)
        with pytest.raises(AssertionError):
            attempt(t, t.amp.GradScaler("cpu"), optimizer)


def test_half_gradients_are_not_unscaled_in_advance(tg: Any) -> None:
    weight = tg.ones(3, dtype=tg.float16, requires_grad=True)
    optimizer, scaler = tg.optim.SGD([weight], lr=0.1), tg.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(weight.sum()).backward()
    for unscales in (scaler.unscale_, scaler.step):
        with pytest.raises(ValueError, match="FP16 gradients"):
            unscales(optimizer)
    scaler.step(tg.optim.SGD([weight], lr=0.1, fused=True))
    assert weight.tolist() == [pytest.approx(0.9, abs=1e-3)] * 3


@pytest.mark.parametrize("value", [8.0, "tensor"])
def test_the_scale_can_be_set(tg: Any, value: Any) -> None:
    side = _Side(tg, "SGD", np.ones(3, np.float32))
    side.backward(np.ones(3, np.float32), False)
    side.scaler.step(side.optimizer)
    side.scaler.update(tg.tensor([8.0]) if value == "tensor" else value)
    assert side.scaler.get_scale() == 8.0
    with pytest.raises(ArgumentError, match="one element"):
        side.scaler.update(tg.ones(2))


def test_states_are_saved_and_loaded(tg: Any) -> None:
    side = _Side(tg, "SGD", np.ones(3, np.float32))
    side.step(np.ones(3, np.float32), False)
    saved = side.scaler.state_dict()
    assert saved == {
        "scale": 2.0**10, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3, "_growth_tracker": 1,
    }  # fmt: skip
    fresh = tg.amp.GradScaler("cpu")
    fresh.load_state_dict(saved)
    assert fresh.state_dict() == saved
    assert fresh.scale(tg.ones(1)).item() == 2.0**10
    assert fresh.state_dict() == saved
    with pytest.raises(StateDictError):
        fresh.load_state_dict({})


def test_growth_stops_before_infinity(tg: Any) -> None:
    ours, theirs = (_Side(t, "SGD", np.ones(3, np.float32), init_scale=3e38, growth_interval=1) for t in (tg, torch))
    for side in (ours, theirs):
        side.backward(np.zeros(3, np.float32), False)
        side.scaler.step(side.optimizer)
        side.scaler.update()
    assert ours.scaler.get_scale() == theirs.scaler.get_scale()


def test_a_disabled_scaler_does_nothing(tg: Any) -> None:
    side = _Side(tg, "SGD", np.ones(3, np.float32), enabled=False)
    side.step(np.ones(3, np.float32), False)
    assert side.scaler.get_scale() == 1.0
    assert side.scaler.state_dict() == {}
    assert not side.scaler.is_enabled()
    np.testing.assert_allclose(side.weight.detach().numpy(), np.full(3, 0.9, np.float32), rtol=1e-6)
    with pytest.warns(UserWarning, match="CUDA is not available"):
        assert not tg.cuda.amp.GradScaler().is_enabled()
    for device in ("tpu", 3):
        with pytest.raises(ArgumentError, match="device"):
            tg.amp.GradScaler(device)
    assert tg.amp.GradScaler(tg.device("cpu")).is_enabled()
    with pytest.raises(StateDictError, match="lacks growth_factor, backoff_factor"):
        tg.amp.GradScaler("cpu").load_state_dict({"scale": 2.0})
    for options in ({"growth_factor": 1.0}, {"backoff_factor": 1.0}):
        with pytest.raises(ArgumentError, match="factor"):
            tg.amp.GradScaler("cpu", **options)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("bad", [None, "inf", "-inf", "nan"])
def test_gradients_are_checked_and_unscaled_together(tg: Any, dtype: str, bad: str | None) -> None:
    kind = getattr(tg, dtype)
    grads = [tg.ones(3, 2, dtype=kind), tg.full((5,), 3.0, dtype=kind).t(), tg.ones(0, dtype=kind)]
    if bad is not None:
        grads[1][2] = float(bad)
    found, inverse = tg.zeros(()), tg.tensor(0.25)
    tg._ops.functions.function("_amp_foreach_non_finite_check_and_unscale_")(grads, found, inverse)
    assert found.item() == (bad is not None)
    np.testing.assert_array_equal(grads[0].float().numpy(), np.full((3, 2), 0.25, np.float32))
    assert grads[1][0].item() == 0.75
