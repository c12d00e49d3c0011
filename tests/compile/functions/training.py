"""Modules, optimizers with schedulers, clipping and scaling, accumulation of gradients, hooks, higher derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..harness import ROWS, Built, batch, case


def _model(tg: Any, *between: Any) -> Any:
    tg.manual_seed(5)
    return tg.nn.Sequential(tg.nn.Linear(4, 8), tg.nn.GELU(), *between, tg.nn.Linear(8, 3))


def _labelled(tg: Any) -> Any:
    def arguments(number: int, rng: np.random.Generator) -> Any:
        rows = ROWS[number % len(ROWS)]
        return tg.tensor(rng.standard_normal((rows, 4)).astype("f")), tg.tensor(rng.integers(0, 3, rows))

    return arguments


def _state_of(model: Any, optimizer: Any) -> Any:
    kept = [value for state in optimizer.state.values() for value in state.values()]
    return lambda: [list(model.state_dict().values()), [p.grad for p in model.parameters()], kept]


@case(calls=10)
def adamw_with_a_scheduler_and_clipping(tg: Any) -> Built:
    model = _model(tg, tg.nn.Dropout(0.2))
    optimizer = tg.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = tg.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

    def function(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        norm = tg.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        return loss.detach(), norm, scheduler.get_last_lr()

    return Built(function, _labelled(tg), _state_of(model, optimizer))


@case()
def sgd_with_momentum_and_accumulation(tg: Any) -> Built:
    model = _model(tg, tg.nn.LayerNorm(8))
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)

    def function(x: Any, y: Any) -> Any:
        for part, labels in zip(x.split(2), y.split(2)):
            (tg.nn.functional.cross_entropy(model(part), labels) / 2).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return model(x).argmax(-1)

    return Built(function, _labelled(tg), _state_of(model, optimizer))


@case(calls=10)
def accumulation_over_calls(tg: Any) -> Built:
    model = _model(tg)
    optimizer = tg.optim.Adam(model.parameters())
    calls = [0]

    def function(x: Any, y: Any) -> Any:
        calls[0] += 1
        tg.nn.functional.cross_entropy(model(x), y).backward()
        if calls[0] % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return calls[0]

    return Built(function, _labelled(tg), _state_of(model, optimizer))


@case()
def a_grad_scaler(tg: Any) -> Built:
    model = _model(tg)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
    scaler = tg.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)

    def function(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        tg.nn.utils.clip_grad_value_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return Built(function, _labelled(tg), lambda: [_state_of(model, optimizer)(), scaler.get_scale()])


@case(calls=10)
def batch_norm_and_convolutions(tg: Any) -> Built:
    tg.manual_seed(5)
    model = tg.nn.Sequential(
        tg.nn.Conv2d(1, 4, 3, padding=1, bias=False), tg.nn.BatchNorm2d(4), tg.nn.ReLU(inplace=True),
        tg.nn.MaxPool2d(2), tg.nn.Flatten(), tg.nn.Linear(16, 3),
    )  # fmt: skip
    optimizer = tg.optim.RMSprop(model.parameters(), lr=1e-3)

    def function(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x.view(x.shape[0], 1, 4, 4)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Built(function, batch(tg, 16), _state_of(model, optimizer))


@case()
def hooks_of_tensors_and_modules(tg: Any) -> Built:
    model, told = _model(tg), []

    def hook(grad: Any) -> Any:
        return grad * 2 + 1

    model[0].register_forward_hook(lambda module, args, result: result * 1.5)
    model[2].register_full_backward_hook(lambda module, grads, outputs: told.append(len(outputs)))
    model[0].weight.register_hook(hook)

    def function(x: Any, y: Any) -> Any:
        model.zero_grad()
        hidden = model[0](x)
        hidden.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
        tg.nn.functional.cross_entropy(model[1:](hidden), y).backward()
        return len(told)

    return Built(function, _labelled(tg), lambda: [p.grad for p in model.parameters()])


@case()
def a_post_accumulate_hook_steps(tg: Any) -> Built:
    model = _model(tg)

    def update(parameter: Any) -> None:
        with tg.no_grad():
            parameter.sub_(parameter.grad, alpha=0.1)
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)

    def function(x: Any, y: Any) -> Any:
        loss = tg.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    return Built(function, _labelled(tg), lambda: list(model.parameters()))


@case()
def second_derivatives(tg: Any) -> Built:
    model = _model(tg)

    def function(x: Any) -> Any:
        x = x.detach().requires_grad_()
        value = model(x).tanh().sum()
        (gradient,) = tg.autograd.grad(value, x, create_graph=True)  # break
        penalty = (gradient.norm(dim=1) - 1).square().mean()
        model.zero_grad()
        penalty.backward()  # break
        return penalty.detach(), x.grad

    return Built(function, batch(tg), lambda: [p.grad for p in model.parameters()])


@case()
def a_graph_that_is_kept(tg: Any) -> Built:
    weight = tg.full((4,), 0.5, requires_grad=True)

    def function(x: Any) -> Any:
        weight.grad = None
        loss = (x * weight).exp().sum()
        loss.backward(retain_graph=True)
        first = weight.grad.clone()
        loss.backward()
        return first, weight.grad, loss.detach()

    return Built(function, batch(tg))


@case()
def a_graph_that_goes_on(tg: Any) -> Built:
    model = _model(tg)

    def function(x: Any) -> Any:
        return model(x), model[0](x).sum()

    outputs: list[Any] = []

    def kept(x: Any) -> Any:
        outputs[:] = function(x)
        return tuple(outputs)

    def state() -> Any:
        model.zero_grad()
        (outputs[0].square().sum() + outputs[1]).backward()
        return [p.grad for p in model.parameters()]

    return Built(kept, batch(tg), state)


@case()
def an_autograd_function(tg: Any) -> Built:
    class Clamp(tg.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, bound: float) -> Any:
            ctx.save_for_backward(x)
            ctx.bound = bound
            return x.clamp(-bound, bound)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * (x.abs() < ctx.bound), None

    weight = tg.ones(4, requires_grad=True)

    def function(x: Any) -> Any:
        weight.grad = None
        y = Clamp.apply(x * weight, 0.5)
        y.square().sum().backward()
        return y.detach(), weight.grad

    return Built(function, batch(tg))


@case()
def checkpoints(tg: Any) -> Built:
    from telegrad.utils.checkpoint import checkpoint

    model = _model(tg, tg.nn.Dropout(0.5))

    def function(x: Any, y: Any) -> Any:
        model.zero_grad()
        hidden = checkpoint(model[:3], x, use_reentrant=False)
        loss = tg.nn.functional.cross_entropy(model[3](hidden), y)
        loss.backward()
        return loss.detach()

    return Built(function, _labelled(tg), lambda: [p.grad for p in model.parameters()])


@case(calls=10)
def learning_rates_by_group(tg: Any) -> Built:
    model = _model(tg)
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "lr": 0.01}]
    optimizer = tg.optim.SGD(groups)
    scheduler = tg.optim.lr_scheduler.OneCycleLR(optimizer, [0.1, 0.01], total_steps=40)

    def function(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def arguments(number: int, rng: np.random.Generator) -> Any:
        if number:
            scheduler.step()
        return _labelled(tg)(number, rng)

    return Built(function, arguments, _state_of(model, optimizer))


@case()
def recurrent_layers(tg: Any) -> Built:
    tg.manual_seed(5)
    layer = tg.nn.LSTM(4, 5, batch_first=True)
    attention = tg.nn.MultiheadAttention(4, 2, batch_first=True)

    def function(x: Any) -> Any:
        layer.zero_grad()
        attended, _ = attention(x[None], x[None], x[None], need_weights=False)
        output, (hidden, cell) = layer(attended)
        (output.sum() + cell.sum()).backward()
        return output.detach(), hidden.detach(), layer.weight_hh_l0.grad

    return Built(function, batch(tg))


@case()
def ema_of_weights(tg: Any) -> Built:
    model = _model(tg)
    average = tg.optim.swa_utils.AveragedModel(model, multi_avg_fn=tg.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    def function(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        tg.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        average.update_parameters(model)
        return average(x).detach()

    return Built(function, _labelled(tg), lambda: list(average.parameters()))


@case()
def parametrized_and_tied_weights(tg: Any) -> Built:
    tg.manual_seed(5)
    first = tg.nn.utils.parametrizations.weight_norm(tg.nn.Linear(4, 4))
    second = tg.nn.Linear(4, 4)
    second.weight = tg.nn.Parameter(tg.eye(4))
    tied = tg.nn.Linear(4, 4)
    tied.weight = second.weight
    parameters = [*first.parameters(), *second.parameters(), tied.bias]

    def function(x: Any) -> Any:
        for parameter in parameters:
            parameter.grad = None
        loss = tied(second(first(x)).relu()).square().sum()
        loss.backward()
        return loss.detach()

    return Built(function, batch(tg), lambda: [p.grad for p in parameters])
