"""Every optimizer, and what works on optimizers: 50 steps of PyTorch's trajectory, its state and hooks."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import NotSupportedError

from .pairs import OURS, give_state

OPTIMIZERS: dict[str, list[dict[str, Any]]] = {
    "Adadelta": [{}, {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1, "maximize": True}],
    "Adagrad": [{}, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}],
    "Adamax": [{}, {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1, "maximize": True}],
    "ASGD": [{}, {"lr": 0.05, "lambd": 0.01, "t0": 10, "weight_decay": 0.1}],
    "NAdam": [{}, {"weight_decay": 0.1, "momentum_decay": 0.01}, {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "RAdam": [{}, {"betas": (0.8, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}],
    "RMSprop": [{}, {"momentum": 0.9, "centered": True, "weight_decay": 0.1}, {"centered": True, "maximize": True}],
    "Rprop": [{}, {"lr": 0.05, "etas": (0.4, 1.5), "step_sizes": (1e-3, 0.1), "maximize": True}],
    "Adafactor": [{}, {"lr": 0.1, "weight_decay": 0.1, "d": 1.5}],
    "Muon": [{"lr": 0.01}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.01}],
    "LBFGS": [
        {"lr": 0.5, "max_iter": 4}, {"line_search_fn": "strong_wolfe", "history_size": 5, "max_iter": 6},
        {"line_search_fn": "strong_wolfe", "lr": 1e-3, "max_iter": 6, "max_eval": 2},
    ],
    "SGD": [{"lr": 0.1, "momentum": 0.9}], "Adam": [{"amsgrad": True}], "AdamW": [{}],
}  # fmt: skip
CASES = [(name, options) for name, listed in OPTIMIZERS.items() for options in listed]
DTYPE = torch.float64


def _models(tg: Any) -> tuple[Any, Any]:
    """The same small network on both sides; of matrices alone, as Muon wants it."""

    def make(nn: Any, dtype: Any) -> Any:
        return nn.Sequential(nn.Linear(6, 8, False, dtype=dtype), nn.Tanh(), nn.Linear(8, 3, False, dtype=dtype))

    theirs, ours = make(torch.nn, DTYPE), make(tg.nn, OURS[DTYPE])
    give_state(tg, theirs, ours)
    return theirs, ours


def _run(t: Any, model: Any, optimizer: Any, x: Any, y: Any, steps: int) -> None:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = t.nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_optimizer_follows_pytorch_for_fifty_steps(tg: Any, name: str, options: dict[str, Any], seed: int) -> None:
    torch.manual_seed(seed)
    theirs, ours = _models(tg)
    x, y = torch.randn(16, 6, dtype=DTYPE), torch.randn(16, 3, dtype=DTYPE)
    mine = getattr(tg.optim, name)(ours.parameters(), **options)
    reference = getattr(torch.optim, name)(theirs.parameters(), **options)
    inputs = tg.tensor(x.numpy()), tg.tensor(y.numpy())
    steps = 8 if name == "LBFGS" else 50  # line searches of more differ with the last bit
    _run(tg, ours, mine, *inputs, steps)
    _run(torch, theirs, reference, x, y, steps)
    tolerance = {"Muon": 2e-2, "LBFGS": 1e-6}.get(name, 1e-8)  # Muon computes in bfloat16
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)
    _same_layout(mine.state_dict(), reference.state_dict(), name)
    assert mine.defaults.keys() == reference.defaults.keys()
    assert [line.split(":")[0] for line in repr(mine).splitlines()] == [
        line.split(":")[0] for line in repr(reference).splitlines()
    ]
    _continue(tg, ours, mine, name, options, inputs)


def _same_layout(ours: dict[str, Any], theirs: dict[str, Any], name: str) -> None:
    """Keys, shapes and numbers of a state dictionary are PyTorch's."""
    assert ours["state"].keys() == theirs["state"].keys()
    for number, state in theirs["state"].items():
        mine = ours["state"][number]
        assert set(state) - {"al", "prev_loss", "_step_t"} <= set(mine), f"{name}: {set(state)} is not {set(mine)}"
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and name != "LBFGS":
                assert tuple(mine[key].shape) == tuple(value.shape), key
                if name != "Muon":
                    np.testing.assert_allclose(mine[key].numpy(), value.numpy(), rtol=1e-5, atol=1e-7, err_msg=key)
    for mine, group in zip(ours["param_groups"], theirs["param_groups"], strict=True):
        assert mine.keys() == group.keys()


def _continue(tg: Any, model: Any, optimizer: Any, name: str, options: Any, inputs: Any) -> None:
    """A copy that takes over the state goes on as the first one does."""
    twin = copy.deepcopy(model)
    second = getattr(tg.optim, name)(twin.parameters(), **options)
    second.load_state_dict(optimizer.state_dict())
    for a, o in ((model, optimizer), (twin, second)):
        _run(tg, a, o, *inputs, 2)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n != "LBFGS"])
def test_a_step_waits_for_nothing(tg: Any, name: str) -> None:
    _, ours = _models(tg)
    optimizer = getattr(tg.optim, name)(ours.parameters())
    for _ in range(2):
        ours(tg.randn(4, 6, dtype=tg.float64)).sum().backward()
        before = tg.wire_stats().round_trips
        optimizer.step()
        assert tg.wire_stats().round_trips == before


_COMPLEX = {
    **{name: {} for name in ("Adadelta", "Adagrad", "Adamax", "NAdam", "RMSprop", "Rprop", "ASGD")},
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "AdamW": {"maximize": True},
    "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
}


@pytest.mark.parametrize("name", _COMPLEX)
def test_complex_parameters(tg: Any, name: str, seed: int) -> None:
    torch.manual_seed(seed)
    start, target = (torch.randn(5, dtype=torch.complex128) for _ in range(2))
    theirs, ours = start.clone().requires_grad_(), tg.tensor(start.numpy(), requires_grad=True)
    reference, mine = (
        getattr(library.optim, name)([parameter], **_COMPLEX[name])
        for library, parameter in ((torch, theirs), (tg, ours))
    )
    aim = tg.tensor(target.numpy())
    for _ in range(10):
        for parameter, optimizer, wanted in ((theirs, reference, target), (ours, mine, aim)):
            optimizer.zero_grad()
            (parameter - wanted).abs().pow(2).sum().backward()
            optimizer.step()
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-8, atol=1e-8)


def test_sparse_adam_says_that_gradients_are_dense(tg: Any) -> None:
    weight = tg.ones(2, requires_grad=True)
    optimizer = tg.optim.SparseAdam([weight])
    weight.sum().backward()
    with pytest.raises(NotSupportedError, match="does not support dense gradients, please consider Adam"):
        optimizer.step()


def test_hooks_run_around_steps_and_state(tg: Any) -> None:
    from telegrad.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    class Own(tg.optim.Optimizer):
        def step(self, closure: Any = None) -> None:
            seen.append("step")

    seen: list[str] = []
    optimizer = Own([tg.ones(1, requires_grad=True)], {})
    handles = [
        optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before")),
        optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after")),
        register_optimizer_step_pre_hook(lambda o, args, kwargs: seen.append("every before")),
        register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append("every after")),
        optimizer.register_state_dict_pre_hook(lambda o: seen.append("saving")),
        optimizer.register_state_dict_post_hook(lambda o, state: {**state, "extra": 1}),
        optimizer.register_load_state_dict_pre_hook(lambda o, state: state if state.pop("extra") else None),
        optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded")),
    ]
    optimizer.step()
    state = optimizer.state_dict()
    assert state["extra"] == 1
    optimizer.load_state_dict(state)
    assert seen == ["every before", "before", "step", "after", "every after", "saving", "loaded"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert seen[7:] == ["step"]


def test_hooks_are_given_the_arguments_of_step_with_the_optimizer_first(tg: Any) -> None:
    for t in (torch, tg):
        optimizer = t.optim.SGD([t.ones(1, requires_grad=True)], 0.1)
        seen: list[Any] = []
        optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append(args) or ((o, lambda: 3), {}))  # noqa: B023
        optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(args[0]))  # noqa: B023
        assert optimizer.step(None) == 3
        assert seen == [(optimizer, None), optimizer]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "Adamax", "NAdam", "RAdam"])
def test_states_that_an_older_pytorch_wrote_are_continued(tg: Any, name: str, seed: int) -> None:
    later = ("maximize", "foreach", "differentiable", "capturable", "fused", "nesterov", "amsgrad", "centered")
    values = np.random.default_rng(seed).standard_normal((2, 3))
    found = []
    for t in (torch, tg):
        weight = t.tensor(values, requires_grad=True)
        weight.square().sum().backward()
        optimizer = getattr(t.optim, name)([weight], lr=0.1)
        optimizer.step()
        state = optimizer.state_dict()
        kept = {k: v for k, v in state["param_groups"][0].items() if k not in (*later, "decoupled_weight_decay")}
        entry = state["state"].get(0, {})
        if "step" in entry and name != "Adagrad":
            entry["step"] = int(entry["step"])
        again = getattr(t.optim, name)([weight], lr=0.5)
        again.load_state_dict({"state": state["state"], "param_groups": [kept]})
        again.step()
        found.append((weight, again.param_groups[0]))
    (expected, group), (mine, ours) = found
    np.testing.assert_allclose(mine.detach().numpy(), expected.detach().numpy(), rtol=1e-6)
    assert {k: v for k, v in ours.items() if k != "params"} == {k: v for k, v in group.items() if k != "params"}


def test_loading_and_copying_ask_the_setstate_of_a_subclass(tg: Any) -> None:
    class Own(tg.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 0.1})

        def __setstate__(self, state: Any) -> None:
            super().__setstate__(state)
            for group in self.param_groups:
                group.setdefault("trust", 2.0)

    optimizer = Own([tg.ones(1, requires_grad=True)])
    assert "trust" not in optimizer.param_groups[0]
    assert copy.deepcopy(optimizer).param_groups[0]["trust"] == 2.0
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.param_groups[0]["trust"] == 2.0


SCHEDULERS: dict[str, Any] = {
    "triangular": lambda s, u, o: s.CyclicLR(o, 0.01, 0.1, 5),
    "triangular2": lambda s, u, o: s.CyclicLR(o, [0.01], [0.1], 4, 7, "triangular2", base_momentum=0.5),
    "exp_range": lambda s, u, o: s.CyclicLR(o, 0.01, 0.1, 3, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "own function": lambda s, u, o: s.CyclicLR(o, 0.01, 0.1, 3, scale_fn=lambda x: 1 / x, scale_mode="cycle"),
    "swa": lambda s, u, o: u.SWALR(o, 0.5, 8),
    "swa linear": lambda s, u, o: u.SWALR(o, 0.001, 5, "linear"),
    "swa at once": lambda s, u, o: u.SWALR(o, 0.001, 0),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_follows_pytorch(tg: Any, name: str) -> None:
    optimizers = [t.optim.SGD([t.ones(2, requires_grad=True)], lr=0.3, momentum=0.9) for t in (tg, torch)]
    ours, theirs = (
        SCHEDULERS[name](t.optim.lr_scheduler, t.optim.swa_utils, o)
        for t, o in zip((tg, torch), optimizers, strict=True)
    )
    for _ in range(40):
        for scheduler, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.step()
            scheduler.step()
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-9)
        momenta = [o.param_groups[0]["momentum"] for o in optimizers]
        assert momenta[0] == pytest.approx(momenta[1], rel=1e-9)


def test_schedulers_of_other_people(tg: Any) -> None:
    class Halving(tg.optim.lr_scheduler._LRScheduler):
        def get_lr(self) -> list[float]:
            assert self._get_lr_called_within_step
            if self._is_initial:
                return [group["lr"] for group in self.optimizer.param_groups]
            return [base * 0.5**self.last_epoch for base in self.base_lrs]

        def _get_closed_form_lr(self) -> list[float]:
            return [base * 0.25 for base in self.base_lrs]

    optimizer = tg.optim.SGD([tg.ones(1, requires_grad=True)], lr=0.8)
    scheduler = Halving(optimizer)
    optimizer.step()
    rates = [scheduler.get_last_lr()[0]]
    for _ in range(2):
        scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
    with pytest.warns(UserWarning, match="epoch parameter"):
        scheduler.step(7)
    assert [*rates, scheduler.get_last_lr()[0]] == [0.8, 0.4, 0.2, 0.2]


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_parameters_that_are_named_twice_are_updated_twice(tg: Any, name: str) -> None:
    results = []
    for library in (torch, tg):
        a, b = (library.nn.Parameter(library.tensor([start, 2.0])) for start in (1.0, 3.0))
        optimizer = getattr(library.optim, name)([a, b, a], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (a * a * b).sum().backward()
            optimizer.step()
        results.append([*a.tolist(), *b.tolist()])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)


def test_states_of_schedulers_go_from_pytorch_to_telegrad_and_back(tg: Any) -> None:
    def made(library: Any) -> Any:
        parameters = [library.nn.Parameter(library.ones(1))]
        optimizer = library.optim.SGD(parameters, lr=0.5)
        return optimizer, [
            library.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
            library.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.8),
            library.optim.lr_scheduler.StepLR(optimizer, 2),
        ]

    for source, target in ((torch, tg), (tg, torch)):
        optimizer, schedulers = made(source)
        for _ in range(3):
            optimizer.step()
            for scheduler in schedulers:
                scheduler.step()
        other, others = made(target)
        for scheduler, twin in zip(schedulers, others, strict=True):
            twin.load_state_dict(scheduler.state_dict())
        other.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"]
        for scheduler, twin in zip(schedulers, others, strict=True):
            scheduler.step()
            twin.step()
            assert twin.get_last_lr() == pytest.approx(scheduler.get_last_lr())


@pytest.mark.parametrize("name", ["Adadelta", "Adagrad", "RMSprop", "Rprop"])
@pytest.mark.parametrize(("before", "after"), [("float32", "float64"), ("float64", "float32"), ("float32", "bfloat16")])
def test_models_that_become_of_another_type_keep_their_states(
    tg: Any, name: str, before: str, after: str, rng: np.random.Generator
) -> None:  # fmt: skip
    """What was accumulated stays of the type that it has."""
    start, grads = rng.standard_normal(5), rng.standard_normal((4, 5))
    found = []
    for library in (tg, torch):
        weight = library.nn.Parameter(library.tensor(start, dtype=getattr(library, before)))
        optimizer = getattr(library.optim, name)([weight], lr=0.1)
        for step, grad in enumerate(grads):
            if step == 2:
                weight.grad = None
                weight.data = weight.data.to(getattr(library, after))
            weight.grad = library.tensor(grad, dtype=weight.dtype)
            optimizer.step()
        state = {key: value for key, value in optimizer.state[weight].items() if key != "step"}
        assert {str(value.dtype).rpartition(".")[2] for value in state.values()} == {before}
        found.append([value.double().tolist() for value in (weight.detach(), *state.values())])
    tolerance = 2e-2 if after == "bfloat16" else 1e-5
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_groups_are_the_dictionaries_that_were_given(tg: Any) -> None:
    for t in (torch, tg):
        group: dict[str, Any] = {"params": t.nn.Parameter(t.ones(1))}
        optimizer = t.optim.SGD([group], lr=0.1)
        assert optimizer.param_groups[0] is group
        assert group["lr"] == 0.1


def test_names_of_parameters_stay_where_the_loaded_state_has_none(tg: Any) -> None:
    for t in (torch, tg):
        named = t.optim.SGD([("a", t.nn.Parameter(t.ones(1)))], lr=0.1)
        named.load_state_dict(t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=0.2).state_dict())
        assert named.param_groups[0]["param_names"] == ["a"]
        assert "    param_names: ['a']\n" in repr(named)
        assert named.param_groups[0]["lr"] == 0.2


def test_a_copied_optimizer_has_the_attributes_of_the_first(tg: Any) -> None:
    parameter = tg.nn.Parameter(tg.ones(1))
    optimizer = tg.optim.SGD([parameter], lr=0.1)
    parameter.sum().backward()
    optimizer.step()
    public = [{name for name in vars(o) if name[0] != "_"} for o in (optimizer, copy.deepcopy(optimizer))]
    assert public[0] == public[1]


def test_tensors_that_retain_their_gradient_are_optimized(tg: Any) -> None:
    for t in (torch, tg):
        inner = t.ones(2, requires_grad=True) * 2
        inner.retain_grad()
        optimizer = t.optim.SGD([inner], lr=0.5)
        (inner * inner).sum().backward()
        optimizer.step()
        assert inner.tolist() == [0.0, 0.0]


def test_parameters_are_refused_in_pytorchs_words(tg: Any) -> None:
    for t in (torch, tg):
        with pytest.raises(TypeError, match=r"iterable of Tensors or dicts, but got \w+.FloatTensor"):
            t.optim.SGD(t.ones(1))
        with pytest.raises(TypeError, match="need to be organized in ordered collections"):
            t.optim.SGD([{"params": {t.ones(1)}}])
        with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
            t.optim.SGD([t.ones(1, requires_grad=True) * 2])
