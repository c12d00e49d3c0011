"""State that a program changes between calls: hooks, layers, weights, buffers, groups of optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..harness import Built, batch, case


def _changing(build: Callable[..., Any], changes: dict[int, Callable[[], Any]]) -> Callable[..., Any]:
    """Return what makes the arguments of each call, and changes something before some of them."""

    def arguments(number: int, rng: np.random.Generator) -> Any:
        changes.get(number, lambda: None)()
        return build(number, rng)

    return arguments


def _model(tg: Any) -> Any:
    tg.manual_seed(5)
    return tg.nn.Sequential(tg.nn.Linear(4, 6), tg.nn.Tanh(), tg.nn.Linear(6, 4))


@case(calls=20)
def hooks_that_come_and_go(tg: Any) -> Built:
    model, handles, told = _model(tg), [], []

    def before(layer: Any, args: Any) -> Any:
        told.append("before")
        return (args[0] * 2,)

    changes = {
        6: lambda: handles.append(model[0].register_forward_pre_hook(before)),
        10: lambda: handles.append(model.register_forward_hook(lambda layer, args, result: result + 1, prepend=True)),
        14: lambda: handles[0].remove(),
        17: lambda: handles[1].remove(),
    }
    return Built(lambda x: model(x).detach(), _changing(batch(tg), changes), lambda: told)


@case(calls=22)
def layers_that_are_replaced(tg: Any) -> Built:
    class Steps(tg.nn.Module):  # type: ignore[misc, name-defined]
        """Goes through lists and dicts of layers by names that may change."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = tg.nn.ModuleList([tg.nn.Linear(4, 4) for _ in range(3)])
            self.kinds = tg.nn.ModuleDict({"relu": tg.nn.ReLU(), "gelu": tg.nn.GELU()})
            self.scales = tg.nn.ParameterList([tg.nn.Parameter(tg.ones(4)) for _ in range(2)])
            self.order = ["relu", "gelu", "relu"]

        def forward(self, x: Any) -> Any:
            for name, layer in zip(self.order, self.layers):
                x = self.kinds[name](layer(x))
            for name, kind in self.kinds.items():
                x = kind(x) + len(name)
            for number, scale in enumerate(self.scales):
                x = x * scale + number
            return x.detach()

    tg.manual_seed(5)
    steps = Steps()
    changes: dict[int, Callable[[], Any]] = {
        7: lambda: steps.order.__setitem__(1, "relu"),
        11: lambda: (steps.layers.append(tg.nn.Identity()), steps.order.append("gelu")),
        15: lambda: steps.kinds.__setitem__("relu", tg.nn.Sigmoid()),
        18: lambda: steps.layers.__delitem__(0),
    }
    return Built(steps, _changing(batch(tg), changes))


@case(calls=18)
def buffers_that_are_replaced(tg: Any) -> Built:
    class Running(tg.nn.Module):  # type: ignore[misc, name-defined]
        """Counts, averages, and keeps the last averages."""

        def __init__(self) -> None:
            super().__init__()
            for name, value in (("mean", tg.zeros(4)), ("count", tg.tensor(0)), ("shift", None)):
                self.register_buffer(name, value)
            self.register_buffer("last", tg.zeros(3, 4), persistent=False)

        def forward(self, x: Any) -> Any:
            self.count += 1
            self.mean = self.mean * 0.9 + x.mean(0) * 0.1
            self.last[self.count % 3] = self.mean
            if self.shift is not None:
                x = x + self.shift
            return (x - self.mean) / self.count + self.last.sum(0)

    running = Running()
    changes = {
        8: lambda: setattr(running, "shift", tg.ones(4)),
        12: lambda: setattr(running, "mean", tg.zeros(4)),
        15: lambda: setattr(running, "shift", None),
    }
    state = lambda: [*running.state_dict().values(), running.last]
    return Built(running, _changing(batch(tg), changes), state)


@case(calls=24)
def parameters_that_are_frozen(tg: Any) -> Built:
    model = _model(tg)

    def function(x: Any) -> Any:
        model.zero_grad()
        result = model(x)
        loss = result.square().sum()
        if loss.requires_grad:
            loss.backward()
        return loss.detach(), result.requires_grad

    changes = {
        7: lambda: model[0].weight.requires_grad_(False),
        12: lambda: model.requires_grad_(False),
        16: lambda: model[2].bias.requires_grad_(True),
        20: lambda: model.requires_grad_(True),
    }
    return Built(function, _changing(batch(tg), changes), lambda: [p.grad for p in model.parameters()])


@case(calls=20)
def groups_that_change(tg: Any) -> Built:
    model = _model(tg)
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.01, "momentum": 0.5}]
    optimizer = tg.optim.SGD(groups, lr=0.1)

    def function(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    changes = {
        7: lambda: optimizer.param_groups[0].update(weight_decay=0.1),
        11: lambda: optimizer.param_groups[1]["params"].pop(),
        14: lambda: optimizer.param_groups.pop(0),
        17: lambda: optimizer.param_groups[0].update(nesterov=True),
    }
    return Built(function, _changing(batch(tg), changes), lambda: list(model.parameters()))


@case(calls=18)
def parametrized_until_it_is_not(tg: Any) -> Built:
    from telegrad.nn.utils import parametrize

    class Symmetric(tg.nn.Module):  # type: ignore[misc, name-defined]
        """Mirrors what is above the diagonal."""

        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).T

    tg.manual_seed(5)
    layer = tg.nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())

    def function(x: Any) -> Any:
        layer.zero_grad()
        with parametrize.cached():
            loss = (layer(x) + layer(x * 2)).square().mean()
        loss.backward()
        return loss.detach(), layer.weight.detach()

    changes = {12: lambda: parametrize.remove_parametrizations(layer, "weight")}
    return Built(function, _changing(batch(tg), changes), lambda: [p.grad for p in layer.parameters()])


@case(calls=20)
def two_models_in_turn(tg: Any) -> Built:
    tg.manual_seed(5)
    maker, judge = tg.nn.Linear(4, 4), tg.nn.Linear(4, 1)
    first = tg.optim.Adam(maker.parameters(), lr=0.01)
    second = tg.optim.RMSprop(judge.parameters(), lr=0.01)
    softplus = tg.nn.functional.softplus

    def function(x: Any) -> Any:
        second.zero_grad()
        made = maker(x)
        of_judge = softplus(-judge(x)).mean() + softplus(judge(made.detach())).mean()
        of_judge.backward()
        second.step()
        first.zero_grad()
        judge.requires_grad_(False)
        of_maker = softplus(-judge(made)).mean()
        of_maker.backward()
        first.step()
        judge.requires_grad_(True)
        return of_judge.detach(), of_maker.detach()

    return Built(function, batch(tg), lambda: [*maker.parameters(), *judge.parameters()])


@case(calls=6)
def steps_that_search_along_a_line(tg: Any) -> Built:
    model = _model(tg)
    optimizer = tg.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, line_search_fn="strong_wolfe")
    count = [0]

    def function(x: Any) -> Any:
        def closure() -> Any:
            optimizer.zero_grad()
            count[0] += 1
            loss = (model(x) - x).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()  # break

    return Built(function, batch(tg), lambda: [count, list(model.parameters())])


@case(calls=10)
def sparse_arguments(tg: Any) -> Built:
    kept = tg.eye(3).to_sparse()

    def function(given: Any, x: Any) -> Any:
        return (given @ x).sin() + tg.sparse.mm(kept, x)

    def arguments(number: int, rng: np.random.Generator) -> Any:
        x = tg.tensor(rng.standard_normal((3, 3)).astype("f"))
        return x.relu().to_sparse_csr(), x

    return Built(function, arguments)


@case(calls=12)
def weights_that_are_given(tg: Any) -> Built:
    from telegrad.func import functional_call

    model = _model(tg)
    weights = {name: value.detach() * 2 for name, value in model.named_parameters()}
    changes: dict[int, Callable[[], Any]] = {
        6: lambda: weights.update({"0.weight": tg.zeros(6, 4)}),
        9: lambda: model.__setitem__(1, tg.nn.ReLU()),
    }
    return Built(lambda x: functional_call(model, weights, (x,)) + model(x), _changing(batch(tg), changes))
