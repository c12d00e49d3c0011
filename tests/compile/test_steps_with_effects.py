"""Steps that append to lists, take new rates, scale losses or have closures are left out, and do what they do else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from .guarded import calls_of
from .harness import exactly

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
CALLS = 16


class Case(NamedTuple):
    """The text of a step of ``model`` and ``optimizer`` on ``x``, what is made for it, and what changes later."""

    body: str
    before: str = ""
    changes: str = ""


_COMPUTING = "optimizer.zero_grad()\nloss = model(x).square().mean()\n"
_STEP = _COMPUTING + "loss.backward()\noptimizer.step()\n"
_SCALER = "scaler = tg.amp.GradScaler('cpu', init_scale=8.0, growth_interval=3)\n"
_SCALED = _COMPUTING + "scaler.scale(loss).backward()\n"
_SCHEDULER = "scheduler = tg.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)\n"
_CLOSURE = """def closure():
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    return loss
"""
LEFT_OUT = {
    "losses in a list": Case(_STEP + "kept.append(loss.detach())"),
    "losses with a history": Case(_STEP + "kept.append(loss)\nreturn loss"),
    "results and numbers, of which one is returned, too": Case(
        _STEP + "kept.append(1)\nkept.append(loss)\nkept.append(x)\nreturn loss"
    ),
    "a list that is cleared between steps": Case(_STEP + "kept.append(loss.detach())", changes="kept.clear()"),
    "a list that is another one later": Case(_STEP + "kept.append(loss.detach())", changes="kept = []"),
    "a schedule": Case(_STEP + "scheduler.step()", _SCHEDULER),
    "a schedule of one cycle": Case(
        _STEP + "scheduler.step()",
        "scheduler = tg.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 99, cycle_momentum=False)",
    ),
    "a schedule that changes": Case(_STEP + "scheduler.step()", _SCHEDULER, "scheduler.gamma = 0.9"),
    "two schedules": Case(
        _STEP + "scheduler.step()\nother.step()",
        _SCHEDULER + "other = tg.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)",
    ),
    "a scaled loss": Case(_SCALED + "scaler.step(optimizer)\nscaler.update()", _SCALER),
    "a scaled loss and clipping": Case(
        _SCALED + "scaler.unscale_(optimizer)\ntg.nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n"
        "scaler.step(optimizer)\nscaler.update()", _SCALER,
    ),
    "a scaled loss that overflows": Case(
        _SCALED + "scaler.step(optimizer)\nscaler.update()", _SCALER, "model[0].weight.data.mul_(1e30)"
    ),
    "a scaler that is turned off": Case(
        _SCALED + "scaler.step(optimizer)\nscaler.update()", "scaler = tg.amp.GradScaler('cpu', enabled=False)"
    ),
    "another factor of growth": Case(
        _SCALED + "scaler.step(optimizer)\nscaler.update()", _SCALER, "scaler.set_growth_factor(4.0)"
    ),
    "a closure": Case(_CLOSURE + "kept.append(optimizer.step(closure))"),
    "averages": Case(
        _STEP + "with tg.no_grad():\n    for a, p in zip(averages, model.parameters()):\n        a.lerp_(p, 0.1)",
        "averages = [p.detach().clone() for p in model.parameters()]\nkept.extend(averages)",
    ),
    "a schedule by a function": Case(
        _STEP + "scheduler.step()",
        "warm = 5\nscheduler = tg.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / warm))",
        "warm = 20",
    ),
    "a schedule by a bound function": Case(
        _STEP + "scheduler.step()",
        "import functools, math\ndef rate(n, *, total):\n    return 1 + math.cos(math.pi * min(n, total) / total)\n"
        "scheduler = tg.optim.lr_scheduler.LambdaLR(optimizer, functools.partial(rate, total=9))",
    ),
    "a schedule by factors": Case(
        _STEP + "scheduler.step()\nkept.append(loss)",
        "scheduler = tg.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda n: 0.9 if n % 3 else 1.1)",
    ),
    "moving averages of a model": Case(
        _STEP + "averaged.update_parameters(model)",
        "from telegrad.optim import swa_utils\n"
        "averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))\n"
        "kept.extend(averaged.parameters())\nkept.append(averaged.n_averaged)",
    ),
    "moving averages by a function of one tensor, which begin again": Case(
        _STEP + "averaged.update_parameters(model)",
        "averaged = tg.optim.swa_utils.AveragedModel(model, avg_fn=tg.optim.swa_utils.get_ema_avg_fn(0.9))\n"
        "kept.extend(averaged.parameters())\nfresh = averaged.state_dict()\n"
        "fresh = {name: value.clone() for name, value in fresh.items()}",
        "averaged.load_state_dict(fresh)",
    ),
    "a rate that is a tensor": Case(
        _STEP, "optimizer.param_groups[0]['lr'] = tg.tensor(0.05)", "optimizer.param_groups[0]['lr'].fill_(0.01)"
    ),
    "a rate that is another tensor later": Case(
        _STEP, "optimizer.param_groups[0]['lr'] = tg.tensor(0.05)", "optimizer.param_groups[0]['lr'] = tg.tensor(0.5)"
    ),
    "small batches": Case(
        "optimizer.zero_grad()\nfor part in x.chunk(3):\n    (model(part).square().mean() / 3).backward()\n"
        "optimizer.step()"
    ),
    "two optimizers": Case(
        _STEP + "second.step()\nsecond.zero_grad()",
        "second = tg.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.5)",
    ),
}  # fmt: skip
MADE = {
    "a list that is read afterwards": Case(_STEP + "kept.append(loss.detach())\nreturn len(kept)"),
    "a list that is read before": Case(_STEP + "count = len(kept)\nkept.append(loss.detach())\nreturn count"),
    "a list that is returned": Case(_STEP + "kept.append([1])\nreturn kept"),
    "rates that are read afterwards": Case(_STEP + "scheduler.step()\nreturn scheduler.get_last_lr()[0]", _SCHEDULER),
    "rates of a group that are read afterwards": Case(
        _STEP + "scheduler.step()\nreturn loss.detach() * optimizer.param_groups[0]['lr']", _SCHEDULER
    ),
    "rates that change before the step": Case(
        _COMPUTING + "loss.backward()\nscheduler.step()\noptimizer.step()", _SCHEDULER
    ),
    "a function of the program's": Case(
        _STEP + "scheduler.step()",
        "scheduler = tg.optim.lr_scheduler.LambdaLR(optimizer, lambda n: kept.append(n) or 0.5)",
    ),
    "a function that counts": Case(
        _STEP + "scheduler.step()",
        "counts = {'calls': 0}\ndef factor(n):\n    counts['calls'] += 1\n    return 0.9 ** n\n"
        "scheduler = tg.optim.lr_scheduler.LambdaLR(optimizer, factor)",
    ),
    "a function that draws random numbers": Case(
        _STEP + "scheduler.step()\nkept.append(tg.rand(2))",
        "tg.manual_seed(3)\nscheduler = tg.optim.lr_scheduler.LambdaLR(optimizer, lambda n: (tg.rand(2), 0.9 ** n)[1])",
    ),
    "equal averages": Case(
        _STEP + "averaged.update_parameters(model)",
        "averaged = tg.optim.swa_utils.AveragedModel(model)\nkept.extend(averaged.parameters())",
    ),
    "averages by a function of the program's": Case(
        _STEP + "averaged.update_parameters(model)",
        "averaged = tg.optim.swa_utils.AveragedModel(model, avg_fn=lambda a, p, n: a + (p - a) / (n + 1))\n"
        "kept.extend(averaged.parameters())",
    ),
    "a scaler without an update": Case(
        _SCALED + "scaler.unscale_(optimizer)\noptimizer.step()\nscaler._progress.clear() if x is None else None",
        _SCALER, "scaler.update()",
    ),
}  # fmt: skip


def _outcomes(tg: Any, case: Case, seed: int, wrap: Callable[[Any], Any], file: Any) -> Any:
    """Return what each call returns and leaves, and the function."""
    rng = np.random.default_rng(seed)
    body = "\n".join([f"    {line}" for line in case.body.splitlines()])
    file.write_text(f"def step(x):\n    global kept\n{body}\n" if "kept =" in case.body else f"def step(x):\n{body}\n")
    names: dict[str, Any] = {"tg": tg, "kept": []}
    model = names["model"] = tg.nn.Sequential(tg.nn.Linear(4, 5), tg.nn.ReLU(), tg.nn.Linear(5, 2))
    with tg.no_grad():
        for p in model.parameters():
            p.copy_(tg.linspace(-0.5, 0.7, p.numel()).reshape(p.shape))
    optimizer = names["optimizer"] = tg.optim.AdamW(model.parameters(), lr=0.05)
    made = file.with_suffix(".before.py")  # of which functions of schedules are read, too
    made.write_text(case.before)
    exec(compile(case.before, str(made), "exec"), names)  # noqa: S102  the test's own text
    exec(compile(file.read_text(), str(file), "exec"), names)  # noqa: S102
    step, told = wrap(names["step"]), []
    for number in range(CALLS):
        if number == CALLS - 5:
            exec(case.changes, names)  # noqa: S102
        try:
            result = step(tg.tensor(rng.standard_normal((6, 4)), dtype=tg.float32))
        except RuntimeError as error:
            result = type(error).__name__
        told.append(exactly(tg, [result, names["kept"], optimizer.param_groups[0]["lr"], list(model.parameters())]))
        told.append([exactly(tg, p.grad) for p in model.parameters()])  # of which nothing here keeps one
    return told, step


def _compared(tg: Any, case: Case, seed: int, tmp_path: Any) -> Any:
    """Require that a step does compiled what it does eagerly, and return what is known of its calls."""
    expected, _ = _outcomes(tg, case, seed, lambda function: function, tmp_path / "eager.py")
    got, step = _outcomes(tg, case, seed, tg.compile, tmp_path / "compiled.py")
    assert got == expected
    return calls_of(step)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_steps_with_such_effects_are_left_out(tg: Any, seed: int, name: str, tmp_path: Any) -> None:
    calls = _compared(tg, LEFT_OUT[name], seed, tmp_path)
    assert calls.replayed > CALLS // 3, calls.reason


@pytest.mark.parametrize("name", MADE)
def test_steps_that_read_what_they_change_are_made(tg: Any, seed: int, name: str, tmp_path: Any) -> None:
    assert _compared(tg, MADE[name], seed, tmp_path).replayed == 0
