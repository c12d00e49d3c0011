"""Optimizers and schedulers: the same trajectories as PyTorch's, no waiting, one instruction per step."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from telegrad._session.sending.send_queue import BATCH_OPERATIONS

STEPS = 50


def _models(tg: Any) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """The same small network on both sides, with inputs and targets."""
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    ours = tg.nn.Sequential(tg.nn.Linear(6, 8), tg.nn.Tanh(), tg.nn.Linear(8, 3))
    ours.load_state_dict({k: tg.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    rng = np.random.default_rng(1)
    return ours, theirs, rng.normal(size=(16, 6)).astype(np.float32), rng.normal(size=(16, 3)).astype(np.float32)


def _train(tg: Any, make_ours: Any, make_theirs: Any, schedulers: Any = None, steps: int = STEPS) -> None:
    ours, theirs, x, y = _models(tg)
    mine, reference = make_ours(ours), make_theirs(theirs)
    paired = schedulers(mine, reference) if schedulers else None
    inputs, targets = tg.tensor(x), tg.tensor(y)
    for _ in range(steps):
        mine.zero_grad()
        tg.nn.functional.mse_loss(ours(inputs), targets).backward()
        mine.step()
        reference.zero_grad()
        torch.nn.functional.mse_loss(theirs(torch.tensor(x)), torch.tensor(y)).backward()
        reference.step()
        for scheduler in paired or ():
            scheduler.step()
        if paired:
            assert paired[0].get_last_lr() == pytest.approx(paired[1].get_last_lr(), rel=1e-9, abs=1e-15)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-4, atol=2e-5)


SGD_OPTIONS = [
    {"lr": 0.1}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    {"lr": 0.1, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.01}, {"lr": 0.1, "weight_decay": 0.1},
    {"lr": 1e-3, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05, "maximize": True}, {"lr": 0.01,
    "maximize": True},
]  # fmt: skip


@pytest.mark.parametrize("options", SGD_OPTIONS, ids=str)
def test_sgd_follows_pytorch_for_fifty_steps(tg: Any, options: dict[str, Any]) -> None:
    _train(tg, lambda m: tg.optim.SGD(m.parameters(), **options), lambda m: torch.optim.SGD(m.parameters(), **options))


ADAM_OPTIONS = [
    {"lr": lr, "weight_decay": decay, "amsgrad": amsgrad, "maximize": maximize}
    for lr, decay, amsgrad, maximize in itertools.product((0.01,), (0.0, 0.1), (False, True), (False, True))
] + [{"betas": (0.8, 0.95), "eps": 1e-3}]


@pytest.mark.parametrize("options", ADAM_OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_adam_follows_pytorch_for_fifty_steps(tg: Any, name: str, options: dict[str, Any]) -> None:
    _train(
        tg, lambda m: getattr(tg.optim, name)(m.parameters(), **options),
        lambda m: getattr(torch.optim, name)(m.parameters(), **options),
    )  # fmt: skip


SCHEDULERS: dict[str, Any] = {
    "StepLR": lambda s, o: s.StepLR(o, 7, 0.5),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [3, 10, 10, 30], 0.3),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.95),
    "ConstantLR": lambda s, o: s.ConstantLR(o, 0.2, 8),
    "LinearLR": lambda s, o: s.LinearLR(o, 0.1, 0.9, 20),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, 30, 2.0),
    "LambdaLR": lambda s, o: s.LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, lambda epoch: 0.9),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 12, 1e-3),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5, 2, 1e-3),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, 0.2, total_steps=60),
    "OneCycleLR-three-phases": lambda s, o: s.OneCycleLR(
        o, 0.2, total_steps=60, three_phase=True, anneal_strategy="linear"
    ),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=5), s.CosineAnnealingLR(o, 45)], [5]
    ),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 4), s.ExponentialLR(o, 0.9)]),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_follows_pytorch(tg: Any, name: str) -> None:
    make = SCHEDULERS[name]
    options = {"lr": 0.05, "momentum": 0.9}
    _train(
        tg, lambda m: tg.optim.SGD(m.parameters(), **options), lambda m: torch.optim.SGD(m.parameters(), **options),
        lambda a, b: (make(tg.optim.lr_scheduler, a), make(torch.optim.lr_scheduler, b)),
    )  # fmt: skip


@pytest.mark.parametrize(
    "options", [{}, {"mode": "max"}, {"threshold_mode": "abs", "threshold": 0.1, "cooldown": 2}], ids=str
)
def test_plateau_scheduler_follows_pytorch(tg: Any, options: dict[str, Any], rng: np.random.Generator) -> None:
    mine = tg.optim.SGD([tg.ones(2, requires_grad=True)], lr=1.0)
    theirs = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=1.0)
    ours = tg.optim.lr_scheduler.ReduceLROnPlateau(mine, factor=0.5, patience=2, **options)
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, factor=0.5, patience=2, **options)
    for metric in rng.normal(size=60).tolist():
        ours.step(metric)
        reference.step(metric)
        assert mine.param_groups[0]["lr"] == theirs.param_groups[0]["lr"]


def test_a_program_may_reduce_rates_itself(tg: Any) -> None:
    """Packages put functions of their own in the place of the scheduler's, such as for one group alone."""
    told = []
    for library in (torch, tg):
        optimizer = library.optim.SGD([library.ones(2, requires_grad=True)], lr=1.0)
        scheduler = library.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
        epochs: list[int] = []
        scheduler._reduce_lr = epochs.append
        for _ in range(6):
            scheduler.step(1.0)
        told.append((epochs, optimizer.param_groups[0]["lr"]))
    assert told[0] == told[1] and told[1][1] == 1.0


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_step_is_one_instruction_and_waits_for_nothing(tg: Any, name: str) -> None:
    ours, _, x, _ = _models(tg)
    optimizer = getattr(tg.optim, name)(ours.parameters(), lr=0.01)
    inputs = tg.tensor(x)
    for _ in range(3):
        ours(inputs).sum().backward()
        before = tg.wire_stats()
        optimizer.step()
        after = tg.wire_stats()
    assert after.round_trips == before.round_trips
    assert after.operations - before.operations == 1


def test_training_step_costs_no_round_trip_and_reading_the_loss_one(tg: Any) -> None:
    ours, _, x, y = _models(tg)
    optimizer = tg.optim.AdamW(ours.parameters())
    inputs, targets = tg.tensor(x), tg.tensor(y)
    before = tg.wire_stats().round_trips
    for _ in range(3):
        optimizer.zero_grad()
        loss = tg.nn.functional.mse_loss(ours(inputs), targets)
        loss.backward()
        tg.nn.utils.clip_grad_norm_(ours.parameters(), 1.0)
        optimizer.step()
    assert tg.wire_stats().round_trips == before
    loss.item()
    assert tg.wire_stats().round_trips == before + 1


def test_parameter_groups_have_settings_of_their_own(tg: Any) -> None:
    def groups(model: Any) -> list[dict[str, Any]]:
        return [{"params": model[0].parameters(), "lr": 0.3}, {"params": [*model[2].parameters()], "momentum": 0.5}]

    _train(tg, lambda m: tg.optim.SGD(groups(m), lr=0.1), lambda m: torch.optim.SGD(groups(m), lr=0.1))


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_state_dict_continues_a_run_exactly(tg: Any, name: str) -> None:
    options = {"momentum": 0.9} if name == "SGD" else {"amsgrad": True}
    ours, _, x, y = _models(tg)
    inputs, targets = tg.tensor(x), tg.tensor(y)

    def train(model: Any, optimizer: Any, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            tg.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()

    first = getattr(tg.optim, name)(ours.parameters(), lr=0.05, **options)
    train(ours, first, 5)
    twin, _, _, _ = _models(tg)
    second = getattr(tg.optim, name)(twin.parameters(), lr=0.7, **options)
    twin.load_state_dict(ours.state_dict())
    second.load_state_dict(first.state_dict())
    assert second.param_groups[0]["lr"] == 0.05
    train(ours, first, 5)
    train(twin, second, 5)
    for a, b in zip(ours.parameters(), twin.parameters(), strict=True):
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())


def test_parameters_without_gradient_are_left_alone(tg: Any) -> None:
    used, unused = tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
    optimizer = tg.optim.AdamW([used, unused], lr=0.1)
    used.sum().backward()
    optimizer.step()
    assert unused.tolist() == [1.0, 1.0]
    assert used.tolist() != [1.0, 1.0]
    assert optimizer.state_dict()["state"].keys() == {0}


def test_closure_runs_with_gradients_and_gives_the_loss(tg: Any) -> None:
    weight = tg.full((1,), 3.0, requires_grad=True)
    optimizer = tg.optim.SGD([weight], lr=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (weight**2).sum()
        loss.backward()
        return loss

    with tg.no_grad():
        assert optimizer.step(closure).item() == 9.0
    assert weight.item() == 0.0


def test_half_precision_parameters_are_trained(tg: Any) -> None:
    for dtype in (tg.float16, tg.bfloat16):
        weight = tg.full((300,), 1.0, dtype=dtype, requires_grad=True)
        optimizer = tg.optim.AdamW([weight], lr=0.125, weight_decay=0.0)
        weight.sum().backward()
        optimizer.step()
        assert set(weight.detach().float().tolist()) == {0.875}


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_may_be_of_another_type_than_its_parameter(tg: Any, rng: np.random.Generator, nesterov: bool) -> None:
    first, *grads = rng.standard_normal((4, 2, 5)).astype(np.float32)
    results = []
    for t in (tg, torch):
        weights = [t.nn.Parameter(t.tensor(row).to(t.bfloat16)) for row in first]
        optimizer = t.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=nesterov)
        optimizer.state[weights[0]]["momentum_buffer"] = t.zeros(5)
        for rows in grads:
            for weight, row in zip(weights, rows, strict=True):
                weight.grad = t.tensor(row).to(t.bfloat16)
            optimizer.step()
        assert optimizer.state[weights[0]]["momentum_buffer"].dtype is t.float32
        results.append([weight.detach().float().numpy() for weight in weights])
    np.testing.assert_allclose(*results, rtol=0.01, atol=0.01)


def test_zero_grad_forgets_or_zeroes(tg: Any) -> None:
    weight = tg.ones(2, requires_grad=True)
    optimizer = tg.optim.SGD([weight], lr=0.1)
    weight.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert weight.grad.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert weight.grad is None


def test_forgetting_all_gradients_is_one_instruction(tg: Any) -> None:
    model = tg.nn.Sequential(tg.nn.Linear(2, 3), tg.nn.Linear(3, 1))
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
    for forget in (optimizer.zero_grad, model.zero_grad):
        model(tg.ones(2)).sum().backward()
        wanted = [parameter.grad.tolist() for parameter in model.parameters()]
        before = tg.wire_stats().operations
        forget()
        assert tg.wire_stats().operations == before + 1
        assert all(parameter.grad is None for parameter in model.parameters())
        forget()
        assert tg.wire_stats().operations == before + 1
        model(tg.ones(2)).sum().backward()
        assert [parameter.grad.tolist() for parameter in model.parameters()] == wanted
        forget()


def _is_raised_in_zero_grad(tg: Any, weight: Any) -> bool:
    """Have a failure raised by what is called when it is known, and return whether that is ``zero_grad``."""
    is_in_zero_grad = False
    tg.ones(3).take(tg.tensor([99]))
    with pytest.raises(tg.TelegradError):
        for _ in range(BATCH_OPERATIONS):
            is_in_zero_grad = False
            weight.grad = weight.grad if weight.grad is not None else tg.ones(2)
            is_in_zero_grad = True
            tg.optim.SGD([weight], lr=0.1).zero_grad()
    return is_in_zero_grad


def test_gradients_are_forgotten_on_both_sides_where_an_earlier_failure_is_raised(tg: Any) -> None:
    weight = tg.ones(2, requires_grad=True)
    (weight * 3).sum().backward()
    for number in range(100):
        if _is_raised_in_zero_grad(tg, weight):
            break
        weight.grad = None
        for _ in range(number % 3):  # the batch ends at another call then
            tg.ones(2)
    else:
        pytest.fail("no failure was raised in zero_grad")
    assert weight.grad is None
    (weight * 3).sum().backward()
    assert weight.grad.tolist() == [3.0, 3.0]


def test_settings_that_are_no_numbers_are_refused_by_name(tg: Any) -> None:
    weight = tg.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match="learning rate must be a number, not 'a'"):
        tg.optim.Adam([weight], lr="a")
    with pytest.raises(TypeError, match="momentum must be a number, not None"):
        tg.optim.SGD([weight], momentum=None)
    for betas in (0.9, (0.9,), ("a", "b")):
        with pytest.raises(TypeError, match="betas must be two numbers"):
            tg.optim.AdamW([weight], betas=betas)
    with pytest.raises(TypeError, match="dropout probability has to be a number, not 'a'"):
        tg.nn.Dropout("a")


def test_mistakes_are_refused_as_pytorch_refuses_them(tg: Any) -> None:
    weight = tg.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        tg.optim.SGD([weight], lr=-1)
    with pytest.raises(ValueError, match="Nesterov momentum requires a momentum and zero dampening"):
        tg.optim.SGD([weight], nesterov=True)
    with pytest.raises(ValueError, match=r"Invalid beta parameter at index 1: 1.0"):
        tg.optim.Adam([weight], betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
        tg.optim.AdamW([])
    with pytest.raises(TypeError, match="an iterable of Tensors or dicts, but got"):
        tg.optim.AdamW(weight)
    with pytest.raises(TypeError, match="can only optimize Tensors, but one of the params is int"):
        tg.optim.SGD([1])
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        tg.optim.SGD([weight * 2])
    with pytest.raises(ValueError, match="cannot be `True` together"):
        tg.optim.Adam([weight], fused=True, foreach=True)
    with pytest.raises(RuntimeError, match="`fused` does not support `differentiable`"):
        tg.optim.SGD([weight], fused=True, differentiable=True)
    with pytest.raises(ValueError, match="Tensor lr must be 1-element"):
        tg.optim.SparseAdam([weight], lr=tg.ones(2))
    with pytest.raises(ValueError, match=r"Sparse params at indices \[\[0, 0\]\]: SparseAdam requires dense"):
        tg.optim.SparseAdam([tg.eye(2).to_sparse().requires_grad_()])
    with pytest.raises(ValueError, match=r"Complex params at indices \[\[0, 1\]\]: SparseAdam does not support"):
        tg.optim.SparseAdam([weight, tg.ones(2, dtype=tg.complex64, requires_grad=True)])
    with pytest.raises(ValueError, match="more than one parameter group"):
        tg.optim.SGD([{"params": [weight]}, {"params": [weight]}])
    with pytest.raises(ValueError, match="different number of parameter groups"):
        tg.optim.SGD([weight]).load_state_dict({"state": {}, "param_groups": []})


def test_backward_after_a_step_finds_its_saved_values_changed(tg: Any) -> None:
    weight = tg.ones(2, requires_grad=True)
    optimizer = tg.optim.SGD([weight], lr=0.1)
    loss = (weight * weight).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
        loss.item()


def test_repr_is_pytorchs(tg: Any) -> None:
    mine, theirs = tg.optim.SGD([tg.ones(1)], lr=0.1), torch.optim.SGD([torch.ones(1)], lr=0.1)
    assert repr(mine) == repr(theirs)
    assert repr(tg.optim.AdamW([tg.ones(1)])) == repr(torch.optim.AdamW([torch.ones(1)]))


@pytest.mark.parametrize(("name", "arguments"), [("StepLR", (1,)), ("ReduceLROnPlateau", ())])
def test_a_scheduler_of_anything_but_an_optimizer_is_refused(tg: Any, name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="str is not an Optimizer"):
        getattr(tg.optim.lr_scheduler, name)("sgd", *arguments)
