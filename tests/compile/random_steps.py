"""Random training steps of which something changes between their calls, as text that is executed.

A step is made of parts: what drops gradients, what the loss is, what is done with gradients, what updates parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

CALLS: Final = 22
PROLOGUE: Final = """
import contextlib
nn, F = t.nn, t.nn.functional
model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3), nn.Linear(3, 2))
with t.no_grad():
    for number, p in enumerate(model.parameters()):
        p.copy_(t.linspace(-0.5, 0.5 + 0.1 * number, p.numel()).reshape(p.shape))
groups = [{'params': list(model[0].parameters())}, {'params': list(model[2:].parameters()), 'lr': 0.03}]
held, losses, rates = [], [], []
factor = [1.0]
average = [p.detach().clone() for p in model.parameters()]
total, count = t.zeros(()), t.zeros((), dtype=t.int64)
scaler = t.amp.GradScaler('cpu', init_scale=8.0, growth_interval=3)
average_model = t.optim.swa_utils.AveragedModel
averaged = average_model(model, multi_avg_fn=t.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)
second = t.optim.SGD(model[3].parameters(), lr=0.05, momentum=0.5)
"""
SCHEDULERS: Final = [
    "t.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)",
    "t.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)",
    "t.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))",
    "t.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 99, cycle_momentum=False)",
]
OPTIMIZERS: Final = [
    "t.optim.SGD(model.parameters(), lr=0.1)",
    "t.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01)",
    "t.optim.Adam(groups, lr=0.02, amsgrad=True)",
    "t.optim.AdamW(model.parameters(), lr=0.02)",
    "t.optim.RMSprop(model.parameters(), lr=0.02)",
]
CLEARING: Final = [
    "optimizer.zero_grad()", "optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)", "model.zero_grad()",
    "for p in model.parameters():\n    p.grad = None", "model[0].weight.grad = model[0].bias.grad = None", "pass",
]  # fmt: skip
LOSSES: Final = [
    "loss = F.mse_loss(model(x), y)",
    "loss = F.mse_loss(model(x) * factor[0], y) + model[0].weight.square().mean()",
    "loss = (model[2:](model[1](model[0](x).detach()) + x.sum()) - y).square().mean()",
    "with contextlib.nullcontext():\n    loss = model(x).sub(y).abs().sum()",
]
PASSES: Final = ["loss.backward()", "loss.backward()", "t.autograd.backward(loss)",
                 "loss.backward(retain_graph=True)\n(loss * 0.5).backward()", "scaler.scale(loss).backward()",
                 "(loss / 2).backward()\nF.mse_loss(model(x * 0.5), y).div(2).backward()"]  # fmt: skip
WORK: Final = [
    "pass", "pass", "nn.utils.clip_grad_norm_(model.parameters(), 0.5)",
    "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.mul_(0.5)",
    "norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]",
    "print(end='')", "scaler.scale(loss)\nscaler.unscale_(optimizer)\nscaler.update()",
]  # fmt: skip
UPDATES: Final = [
    "optimizer.step()", "optimizer.step()", "optimizer.step()\noptimizer.zero_grad()",
    "optimizer.step()\nscheduler.step()",
    "scheduler.step()\noptimizer.step()", "optimizer.step()\nsecond.step()\nscheduler.step()\nscheduler.step()",
    "scaler.scale(loss)\nscaler.step(optimizer)\nscaler.update()",
    "scaler.scale(loss)\nscaler.unscale_(optimizer)\nscaler.step(optimizer)\nscaler.step(second)\nscaler.update()",
    "def closure():\n    optimizer.zero_grad()\n    again = F.mse_loss(model(x), y) * factor[0]\n"
    "    again.backward()\n    losses.append(again)\n    return again\nloss = optimizer.step(closure)",
    "with t.no_grad():\n    for p in model.parameters():\n        if p.grad is not None:\n            p -= p.grad / 9",
]  # fmt: skip
AFTERWARDS: Final = [
    "pass", "pass", "losses.append(loss.detach())", "losses.append(loss)", "losses.append(1.5)",
    "with t.no_grad():\n    for a, p in zip(average, model.parameters()):\n        a.lerp_(p, 0.1)",
    "total.add_(loss.detach())\ncount.add_((model(x).argmax(1) == y.argmax(1)).sum())",
    "losses.append(loss.detach())\nheld.append(len(losses))", "rates.append(scheduler.get_last_lr()[0])",
    "losses.append(x)\nlosses.append([1])", "rates.append(optimizer.param_groups[0]['lr'])",
    "scheduler.step()\nlosses.append(loss.detach() * optimizer.param_groups[0]['lr'])",
    "for a, p in zip(average, model.parameters()):\n    a.data.mul_(0.5).add_(p.data, alpha=0.5)",
    "averaged.update_parameters(model)", "averaged.update_parameters(model)\nlosses.append(loss.detach())",
]  # fmt: skip
RESULTS: Final = ["loss", "loss.detach()", "(loss.detach() * 2, {'x': x.sum()})", "None", "model[0].weight.grad"]
CHANGES: Final = [
    "held.append(model[0].weight.grad)", "held.clear()", "model[0].weight.grad = None",
    "model[2].bias.grad = t.ones(3)", "optimizer.param_groups[0]['lr'] *= 0.5", "optimizer.param_groups[0]['lr'] = 0.0",
    "optimizer.param_groups[-1]['weight_decay'] = 0.1",
    "model[0].weight.requires_grad_(not model[0].weight.requires_grad)",
    "hook = model[0].weight.register_hook(lambda g: g * 2)", "'hook' in globals() and hook.remove()",
    "hook = model[2].weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))",
    "hook = optimizer.register_step_pre_hook(lambda o, a, k: o.zero_grad())",
    "optimizer.load_state_dict(optimizer.state_dict())", "optimizer.state.clear()", "optimizer.zero_grad()",
    "model[0].weight.data = model[0].weight.data * 0.5", "model[2].bias.data[0] = 1.0", "factor[0] = 2.0",
    "F.mse_loss(model(t.ones(2, 4)), t.ones(2, 2)).backward()",
    "hook = model[1].register_forward_hook(lambda m, a, o: o * 2)",
    "optimizer.param_groups[0]['params'].pop()", "optimizer.step()", "model[2].weight = nn.Parameter(t.ones(3, 5))",
    "scheduler = t.optim.lr_scheduler.StepLR(optimizer, 1, 0.5); scheduler.step()", "optimizer.step = lambda: None",
    "for p in model.parameters():\n    if p.grad is not None:\n        p.grad = p.grad.clone()",
    "held.append(list(optimizer.state.values())[:1])", "nn.utils.clip_grad_norm_(model.parameters(), 0.01)",
    "optimizer = t.optim.SGD(model.parameters(), lr=0.01)", "model[0].bias.grad = model[0].weight.grad = None",
    "model.bfloat16(); model.float()", "losses.clear()", "losses = list(losses)", "losses.append(2)",
    "scheduler = t.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)", "scheduler.step()", "scheduler.gamma = 0.9",
    "scheduler.get_lr = lambda: [0.01] * len(optimizer.param_groups)",
    "scheduler.load_state_dict(scheduler.state_dict())",
    "scaler = t.amp.GradScaler('cpu', init_scale=2.0)", "scaler.set_growth_factor(4.0)",
    "scaler.scale(t.ones(())); scaler.unscale_(second)", "model[0].weight.data[0, 0] = float('nan')",
    "averaged = average_model(model)", "averaged.n_averaged.zero_(); averaged.load_state_dict(averaged.state_dict())",
    "scheduler = t.optim.lr_scheduler.LambdaLR(optimizer, lambda n: factor[0] * 0.9 ** n)",
    "optimizer.param_groups[0]['lr'] = t.tensor(0.03)",
    "averaged = average_model(model, avg_fn=t.optim.swa_utils.get_ema_avg_fn(0.5))", "factor[0] = 0.25",
    "second.param_groups[0]['momentum'] = 0.1", "total = t.zeros(())", "average = [a.clone() for a in average]",
]  # fmt: skip


class Call(NamedTuple):
    """What one call of a step is given, and the statements that come before it."""

    rows: int
    seed: int
    changes: list[str]


class Step(NamedTuple):
    """The text that defines the function ``f``, and its calls."""

    text: str
    calls: list[Call]


def random_step(rng: np.random.Generator) -> Step:
    """Return a step, with calls that are mostly alike."""

    def one(choices: Sequence[str]) -> str:
        return str(choices[int(rng.integers(len(choices)))])

    parts = [one(kind) for kind in (CLEARING, LOSSES, PASSES, WORK, UPDATES, AFTERWARDS)]
    body = "\n".join([*parts, f"return {one(RESULTS)}"])
    indented = "\n".join([f"    {line}" for line in body.splitlines()])
    made = f"optimizer = {one(OPTIMIZERS)}\nscheduler = {one(SCHEDULERS)}"
    text = f"{PROLOGUE}{made}\ndef f(x, y):\n{indented}\n"
    is_quiet = rng.random() < 0.3
    calls = []
    for number in range(CALLS):
        is_changed = number > 5 and not is_quiet and rng.random() < 0.25
        rows = int(rng.integers(1, 4)) if rng.random() < 0.1 else 3
        calls.append(Call(rows, int(rng.integers(1 << 30)), [one(CHANGES)] if is_changed else []))
    return Step(text, calls)


def state_of(names: dict[str, Any]) -> list[Any]:
    """Return all tensors that a step may change or leave, None where there are none, and which of them are one."""
    model, optimizer = names["model"], names["optimizer"]
    params = list(model.parameters())
    gradients = [p.grad for p in params]
    states = [optimizer.state.get(p, {}) for p in params]
    entries = [
        [name, float(value) if name == "step" else value]
        for state in states for name, value in sorted(state.items()) if value is not None
    ]  # fmt: skip
    same = [[one is other for other in gradients] for one in names["held"]]
    rates = [group["lr"] for group in optimizer.param_groups]
    kept = [names[name] for name in ("held", "losses", "rates", "average", "total", "count")]
    scaler = [scaler._scale, scaler._growth_tracker] if (scaler := names["scaler"])._scale is not None else []
    averaged = [*names["averaged"].parameters(), names["averaged"].n_averaged, names["averaged"]._count]
    return [params, gradients, entries, kept, same, rates, names["scheduler"].last_epoch, scaler, averaged]
