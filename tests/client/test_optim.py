"""Optimizers and schedules of the client follow PyTorch's trajectories, and cost no round trip."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import torch

SGD_OPTIONS = [
    {"lr": 0.1}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    {"lr": 0.1, "momentum": 0.8, "dampening": 0.3}, {"lr": 0.05, "maximize": True, "weight_decay": 0.1},
]  # fmt: skip
ADAM_OPTIONS = [
    {}, {"lr": 0.01, "betas": (0.8, 0.95)}, {"lr": 0.01, "weight_decay": 0.1}, {"lr": 0.01, "amsgrad": True},
    {"lr": 0.01, "maximize": True, "eps": 1e-4},
]  # fmt: skip
CASES = [("SGD", o) for o in SGD_OPTIONS] + [(n, o) for n in ("Adam", "AdamW") for o in ADAM_OPTIONS]


def _pair(tg: Any, rng: np.random.Generator) -> tuple[list[Any], list[torch.Tensor]]:
    arrays = [rng.standard_normal(shape) for shape in ((5, 3), (3,), (2, 2, 2))]
    ours = [tg.tensor(a).requires_grad_() for a in arrays]
    return ours, [torch.tensor(a, requires_grad=True) for a in arrays]


def _loss(params: Any, step: int) -> Any:
    return sum(((p * (step % 3 + 1) - 0.5) ** 2).sum() + p.sin().sum() for p in params)


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)])
def test_trajectories_are_pytorchs(tg: Any, rng: np.random.Generator, name: str, options: dict[str, Any]) -> None:
    ours, theirs = _pair(tg, rng)
    optimizers = getattr(tg.optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    before = tg.wire_stats().round_trips
    for step in range(50):
        for params, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            _loss(params, step).backward()
            optimizer.step()
    assert tg.wire_stats().round_trips == before
    for mine, reference in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), reference.detach().numpy(), rtol=1e-9, atol=1e-10)


def test_state_survives_saving_and_loading(tg: Any, rng: np.random.Generator, tmp_path: Any) -> None:
    ours, _ = _pair(tg, rng)
    optimizer = tg.optim.AdamW(ours, lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        _loss(ours, step).backward()
        optimizer.step()
    tg.save({"optimizer": optimizer.state_dict(), "params": [p.detach() for p in ours]}, tmp_path / "state.safetensors")
    loaded = tg.load(tmp_path / "state.safetensors")
    twins = [p.requires_grad_() for p in loaded["params"]]
    again = tg.optim.AdamW(twins, lr=0.5)
    again.load_state_dict(loaded["optimizer"])
    for params, which in ((ours, optimizer), (twins, again)):
        which.zero_grad()
        _loss(params, 3).backward()
        which.step()
    for mine, twin in zip(ours, twins, strict=True):
        np.testing.assert_array_equal(mine.detach().numpy(), twin.detach().numpy())


SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}), ("MultiStepLR", {"milestones": [2, 5, 5], "gamma": 0.3}),
    ("ExponentialLR", {"gamma": 0.9}), ("CosineAnnealingLR", {"T_max": 7, "eta_min": 0.01}), ("ConstantLR", {}),
    ("LinearLR", {"start_factor": 0.2, "total_iters": 6}), ("LambdaLR", {"lr_lambda": lambda e: 1 / (e + 1)}),
    ("OneCycleLR", {"max_lr": 0.4, "total_steps": 20}), ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("OneCycleLR", {"max_lr": 0.4, "epochs": 4, "steps_per_epoch": 5, "anneal_strategy": "linear"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), SCHEDULES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(SCHEDULES)])
def test_schedules_are_pytorchs(tg: Any, rng: np.random.Generator, name: str, options: dict[str, Any]) -> None:
    ours, theirs = _pair(tg, rng)
    mine = getattr(tg.optim.lr_scheduler, name)(tg.optim.SGD(ours, lr=0.1), **options)
    reference = getattr(torch.optim.lr_scheduler, name)(torch.optim.SGD(theirs, lr=0.1), **options)
    _compare(mine, reference, 18)


def test_schedules_follow_each_other(tg: Any, rng: np.random.Generator) -> None:
    ours, theirs = _pair(tg, rng)
    made = []
    for library, params in ((tg, ours), (torch, theirs)):
        schedules = library.optim.lr_scheduler
        optimizer = library.optim.SGD(params, lr=0.1)
        parts = [schedules.LinearLR(optimizer, total_iters=4), schedules.CosineAnnealingLR(optimizer, T_max=10)]
        made.append(schedules.SequentialLR(optimizer, parts, milestones=[4]))
    _compare(made[0], made[1], 12)


def test_a_plateau_reduces_the_rate(tg: Any, rng: np.random.Generator) -> None:
    ours, theirs = _pair(tg, rng)
    metrics = np.concatenate([np.linspace(1, 0.5, 5), np.full(12, 0.5), [0.1], np.full(8, 0.2)])
    mine = tg.optim.lr_scheduler.ReduceLROnPlateau(tg.optim.SGD(ours, lr=0.1), patience=2, cooldown=1)
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD(theirs, lr=0.1), patience=2, cooldown=1)
    for metric in metrics:
        mine.step(metric)
        reference.step(metric)
        assert mine.get_last_lr() == pytest.approx(reference.get_last_lr(), rel=1e-12)


def _compare(mine: Any, reference: Any, steps: int) -> None:
    for _ in range(steps):
        assert mine.get_last_lr() == pytest.approx(reference.get_last_lr(), rel=1e-9)
        mine.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch misses optimizer.step(), which does not matter here
            reference.step()


def test_bad_options_are_refused(tg: Any) -> None:
    parameter = tg.zeros(2).requires_grad_()
    for name, options in itertools.chain(
        [("SGD", {"lr": -1.0}), ("SGD", {"nesterov": True}), ("Adam", {"betas": (1.0, 0.9)}), ("AdamW", {"eps": -1.0})]
    ):
        with pytest.raises(ValueError, match=r"optimizer: "):
            getattr(tg.optim, name)([parameter], **options)
    with pytest.raises(ValueError, match="empty parameter list"):
        tg.optim.SGD([])
    with pytest.raises(TypeError, match="not a tensor"):
        tg.optim.SGD(parameter)
