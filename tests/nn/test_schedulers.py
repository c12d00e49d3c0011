"""Schedulers beside PyTorch's: resumed, one after the other, chained; what they warn of and refuse."""

from __future__ import annotations

import itertools
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

MADE: dict[str, Callable[..., Any]] = {
    "ConstantLR": lambda s, o, **k: s.ConstantLR(o, 0.1, 5, **k),
    "LinearLR": lambda s, o, **k: s.LinearLR(o, 0.1, total_iters=5, **k),
    "ExponentialLR": lambda s, o, **k: s.ExponentialLR(o, 0.9, **k),
    "MultiplicativeLR": lambda s, o, **k: s.MultiplicativeLR(o, lambda epoch: 0.9, **k),
    "StepLR": lambda s, o, **k: s.StepLR(o, 3, **k),
    "MultiStepLR": lambda s, o, **k: s.MultiStepLR(o, [2, 5], **k),
    "CosineAnnealingLR": lambda s, o, **k: s.CosineAnnealingLR(o, 5, 0.01, **k),
    "PolynomialLR": lambda s, o, **k: s.PolynomialLR(o, 6, 2.0, **k),
    "LambdaLR": lambda s, o, **k: s.LambdaLR(o, lambda epoch: 0.5**epoch, **k),
    "CosineAnnealingWarmRestarts": lambda s, o, **k: s.CosineAnnealingWarmRestarts(o, 3, 2, **k),
    "CyclicLR": lambda s, o, **k: s.CyclicLR(o, 0.01, 0.1, 3, cycle_momentum=False, **k),
    "OneCycleLR": lambda s, o, **k: s.OneCycleLR(o, 0.1, 20, **k),
}
PAIRED = [name for name in MADE if name != "OneCycleLR"]  # which needs what its own first step sets


def _optimizer(t: Any) -> Any:
    groups = [{"params": [t.nn.Parameter(t.ones(2))], "lr": rate} for rate in (0.05, 0.5)]
    return t.optim.SGD(groups, lr=0.1)


def _rates(optimizer: Any, scheduler: Any, steps: int = 7) -> list[list[float]]:
    rates = []
    for _ in range(steps):
        rates.append([float(group["lr"]) for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return rates


def _same(tg: Any, run: Callable[[Any], list[list[float]]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of calls with an epoch, and of an optimizer that has not stepped
        ours, theirs = run(tg), run(torch)
    for mine, reference in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(reference, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("last_epoch", [0, 3])
def test_a_resumed_scheduler_goes_on_with_the_rates_that_it_finds(tg: Any, name: str, last_epoch: int) -> None:
    def run(t: Any) -> list[list[float]]:
        optimizer = _optimizer(t)
        MADE[name](t.optim.lr_scheduler, optimizer)
        return _rates(optimizer, MADE[name](t.optim.lr_scheduler, optimizer, last_epoch=last_epoch))

    _same(tg, run)


@pytest.mark.parametrize("name", PAIRED)
def test_schedulers_in_sequence_and_in_chains_follow_pytorchs(tg: Any, name: str) -> None:
    def run(t: Any, other: str, is_nested: bool) -> list[list[float]]:
        schedulers, optimizer = t.optim.lr_scheduler, _optimizer(t)
        parts = [MADE[part](schedulers, optimizer) for part in (name, other)]
        if is_nested:
            parts = [schedulers.ChainedScheduler(parts), MADE["ConstantLR"](schedulers, optimizer)]
        return _rates(optimizer, schedulers.SequentialLR(optimizer, parts, [3]))

    for other, is_nested in itertools.product(PAIRED, (False, True)):
        _same(tg, lambda t, other=other, is_nested=is_nested: run(t, other, is_nested))


WARNING = {
    "not stepped": "s = t.optim.lr_scheduler.StepLR(o, 1)\ns.step()",
    "overridden": "s = t.optim.lr_scheduler.StepLR(o, 1)\nstep = o.step\no.step = lambda: step()\no.step()\ns.step()",
}


@pytest.mark.parametrize("case", WARNING)
def test_a_step_out_of_order_warns_where_to_read_about_it(tg: Any, case: str) -> None:
    for t in (torch, tg):
        with pytest.warns(UserWarning, match=r"optimizer\.step\(\).*optim.html#how-to-adjust-learning-rate"):
            exec(WARNING[case], {"t": t, "o": _optimizer(t)})  # noqa: S102 - the test's own programs


REFUSED = [
    ("s.SequentialLR(o, [], [])", "SequentialLR expects at least one scheduler, but got no scheduler."),
    ("s.SequentialLR(o, [s.StepLR(o, 1)], [1])", "number of schedulers provided to be one more than the number of"),
    ("s.SequentialLR(o, [s.ReduceLROnPlateau(o)], [])", "does not support `ReduceLROnPlateau` scheduler"),
    ("s.ChainedScheduler([])", "expects at least one scheduler to be chained, but got no scheduler."),
    ("s.ChainedScheduler([s.StepLR(o, 1), s.StepLR(p, 1)])", "expects all schedulers to belong to the same optimizer"),
    (
        "s.ChainedScheduler([s.StepLR(o, 1), 1])",
        "ChainedScheduler at index 1 should have `optimizer` as its attribute.",
    ),
    ("s.LambdaLR(o, [abs])", "Expected 2 lr_lambdas, but got 1"),
    ("s.ReduceLROnPlateau(o, min_lr=[0.1])", "expected 2 min_lrs, got 1"),
    ("s.CyclicLR(o, [0.1], 1)", "base_lr must have the same length as optimizer.param_groups. base_lr has 1 values"),
    ("s.OneCycleLR(o, [1.0], 5)", "max_lr must have the same length as optimizer.param_groups. max_lr has 1 values"),
]


@pytest.mark.parametrize(("program", "words"), REFUSED)
def test_schedulers_are_refused_in_pytorchs_words(tg: Any, program: str, words: str) -> None:
    for t in (torch, tg):
        with pytest.raises((ValueError, TypeError)) as error:
            names = {"s": t.optim.lr_scheduler, "o": _optimizer(t), "p": _optimizer(t)}
            eval(program, names)  # noqa: S307 - the test's own expressions
        assert words in str(error.value)


def test_a_plateau_scheduler_notices_groups_that_came_later(tg: Any) -> None:
    for t in (torch, tg):
        optimizer = _optimizer(t)
        schedulers = [t.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=low) for low in (0, [0, 0])]
        optimizer.add_param_group({"params": [t.nn.Parameter(t.ones(1))], "lr": 0.5})
        for scheduler in schedulers:
            scheduler.step(1)
        schedulers[0].step(2)
        assert optimizer.param_groups[2]["lr"] == pytest.approx(0.05)
        with pytest.raises(RuntimeError, match="The number of param groups in the `optimizer`"):
            schedulers[1].step(2)


def test_a_schedulers_state_can_be_pickled(tg: Any) -> None:
    scheduler = tg.optim.lr_scheduler.StepLR(_optimizer(tg), 1)
    assert pickle.loads(pickle.dumps(scheduler.state_dict()))["last_epoch"] == 0


@pytest.mark.parametrize("name", ["StepLR", "CosineAnnealingLR", "LinearLR"])
def test_rates_in_tensors_change_where_they_are(tg: Any, name: str) -> None:
    def run(t: Any) -> list[list[float]]:
        rate = t.tensor(0.5, dtype=t.float64)
        optimizer = t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=rate)
        scheduler = MADE[name](t.optim.lr_scheduler, optimizer)
        held, rates = optimizer.param_groups[0]["lr"], []
        for _ in range(4):
            optimizer.step()
            scheduler.step()
            rates.append([held.item(), scheduler.get_last_lr()[0].item()])
        assert held is rate
        return rates

    _same(tg, run)


def test_settings_in_tensors_are_copied(tg: Any) -> None:
    for t in (torch, tg):
        high = t.tensor(0.9)
        optimizer = t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=0.1)
        t.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 0.2, max_momentum=high)
        high.mul_(0.5)
        assert float(optimizer.param_groups[0]["max_momentum"]) == pytest.approx(0.9)


def test_a_rate_in_a_tensor_leaves_the_initial_one(tg: Any) -> None:
    for t in (torch, tg):
        optimizer = t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=t.tensor(0.1), momentum=0.9)
        scheduler = t.optim.lr_scheduler.OneCycleLR(optimizer, t.tensor(0.2), 5)
        initial = float(optimizer.param_groups[0]["initial_lr"])
        optimizer.step()
        scheduler.step()
        assert float(optimizer.param_groups[0]["initial_lr"]) == initial


@pytest.mark.parametrize("name", MADE)
def test_rates_are_asked_for_within_a_step_or_with_a_warning(tg: Any, name: str) -> None:
    for t in (torch, tg):
        optimizer = t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=0.1)
        scheduler = MADE[name](t.optim.lr_scheduler, optimizer)
        optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            scheduler.step()
        with pytest.warns(UserWarning, match="please use `get_last_lr"):
            scheduler.get_lr()


@pytest.mark.parametrize("name", ["CyclicLR", "OneCycleLR"])
def test_first_rates_are_written_into_the_tensor_that_has_the_rate(tg: Any, name: str) -> None:
    for t in (torch, tg):
        optimizer = t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=t.tensor(0.5))
        rate = optimizer.param_groups[0]["lr"]
        if name == "CyclicLR":
            t.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, 3, cycle_momentum=False)
        else:
            t.optim.lr_scheduler.OneCycleLR(optimizer, 0.25, 20, cycle_momentum=False)
        assert optimizer.param_groups[0]["lr"] is rate
        assert rate.item() == pytest.approx(0.01)


def test_an_optimizer_without_a_step_refuses_to_step(tg: Any) -> None:
    for t in (torch, tg):
        optimizer = t.optim.Optimizer([t.nn.Parameter(t.ones(1))], {})
        with pytest.raises(NotImplementedError):
            optimizer.step()
        scheduler = t.optim.lr_scheduler.ReduceLROnPlateau(t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=0.1))
        with pytest.warns(UserWarning, match="epoch parameter"):
            scheduler.step(1.0, 3)
