"""Training steps whose Python is left out leave gradients, states and rates as the function would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from telegrad.compiler.guarded import gradients, record

from ..support.compilers import needs_calls_in_c
from .guarded import calls_of
from .harness import exactly

CALLS = 14
Wrap = Callable[[Any], Any]


def _model(tg: Any) -> Any:
    nn = tg.nn
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    with tg.no_grad():
        for p in model.parameters():
            p.copy_(tg.linspace(-0.5, 0.7, p.numel()).reshape(p.shape))
    return model


def _batches(tg: Any, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [tg.tensor(rng.standard_normal((3, 4)), dtype=tg.float32) for _ in range(CALLS)]


class Training:
    """A model, its optimizer, and a step, compiled or not."""

    def __init__(
        self, tg: Any, wrap: Wrap, optimizer: str = "AdamW", clear: str = "optimizer", norm: float = 0.0, **options: Any
    ) -> None:  # fmt: skip
        self.model = model = _model(tg)
        self.optimizer = chosen = getattr(tg.optim, optimizer)(model.parameters(), lr=0.05, **options)

        def step(x: Any) -> Any:
            if clear == "optimizer":
                chosen.zero_grad()
            elif clear == "zeros":
                chosen.zero_grad(set_to_none=False)
            elif clear == "model":
                model.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            if norm:
                tg.nn.utils.clip_grad_norm_(model.parameters(), norm)
            chosen.step()
            return loss.detach()

        self.step = wrap(step)

    def state(self, tg: Any) -> Any:
        """Return parameters, gradients and the optimizer's state, to be compared."""
        params = list(self.model.parameters())
        return [exactly(tg, [p, p.grad, dict(self.optimizer.state[p])]) for p in params]


def _plain(function: Any) -> Any:
    return function


def _trained(tg: Any, seed: int, wrap: Wrap, before: Callable[[Training, int], Any], **options: Any) -> Any:
    """Return what each step of a training returns and leaves, with the training."""
    training, told = Training(tg, wrap, **options), []
    for number, x in enumerate(_batches(tg, seed)):
        before(training, number)
        told.append([exactly(tg, training.step(x)), training.state(tg)])
    return told, training


def _nothing(training: Training, number: int) -> None:
    """Change nothing between two steps."""


def _halve(training: Training, number: int) -> None:
    """Change the learning rate as schedules do."""
    training.optimizer.param_groups[0]["lr"] *= 0.5


USUAL = [
    {}, {"optimizer": "Adam", "amsgrad": True}, {"optimizer": "SGD"}, {"optimizer": "SGD", "momentum": 0.9},
    {"clear": "model"}, {"clear": "zeros"}, {"clear": "never"}, {"norm": 0.1}, {"norm": 0.1, "clear": "model"},
]  # fmt: skip


@pytest.mark.parametrize("options", USUAL, ids=str)
@pytest.mark.parametrize("before", [_nothing, _halve])
def test_usual_steps_are_left_out(tg: Any, options: dict[str, Any], before: Any, seed: int) -> None:
    expected, _ = _trained(tg, seed, _plain, before, **options)
    got, training = _trained(tg, seed, tg.compile, before, **options)
    assert got == expected
    calls = calls_of(training.step)
    assert calls.replayed > CALLS // 3, calls.reason


@needs_calls_in_c
def test_gradients_are_the_same_in_c_and_in_python(tg: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    in_c, _ = _trained(tg, seed, tg.compile, _nothing)
    monkeypatch.setattr(record, "hold", gradients._hold_in_python)
    monkeypatch.setattr(record, "change", gradients._change_in_python)
    in_python, training = _trained(tg, seed, tg.compile, _nothing)
    assert in_python == in_c
    assert calls_of(training.step).replayed > CALLS // 3


@pytest.mark.parametrize("is_in_c", [pytest.param(True, marks=needs_calls_in_c), False])
def test_a_gradient_that_the_program_keeps_stays_as_it_was(tg: Any, seed: int, is_in_c: bool, monkeypatch: Any) -> None:
    if not is_in_c:
        monkeypatch.setattr(record, "hold", gradients._hold_in_python)
        monkeypatch.setattr(record, "change", gradients._change_in_python)
    training, kept = Training(tg, tg.compile), []
    for number, x in enumerate(_batches(tg, seed)):
        training.step(x)
        if number % 5 == 4:
            gradient = training.model[0].weight.grad
            kept.append((gradient, gradient.clone()))
    replayed = calls_of(training.step).replayed
    assert 0 < replayed < CALLS
    for gradient, copy in kept[:-1]:
        assert gradient is not training.model[0].weight.grad
        assert bool((gradient == copy).all())


def test_accumulated_gradients_are_the_same_objects(tg: Any, seed: int) -> None:
    training = Training(tg, tg.compile, clear="never")
    batches = _batches(tg, seed)
    training.step(batches[0])
    before = [p.grad for p in training.model.parameters()]
    for x in batches[1:]:
        training.step(x)
    assert calls_of(training.step).replayed
    assert all([p.grad is one for p, one in zip(training.model.parameters(), before, strict=True)])


def _negate(parameter: Any) -> None:
    parameter.grad.neg_()


def _zero_first(optimizer: Any, args: Any, kwargs: Any) -> None:
    optimizer.param_groups[0]["params"][0].data.zero_()


CHANGES = {
    "a hook of a leaf": lambda tg, t: t.model[0].weight.register_hook(lambda g: g * 2),
    "a hook behind a leaf": lambda tg, t: t.model[0].weight.register_post_accumulate_grad_hook(_negate),
    "a hook of the optimizer": lambda tg, t: t.optimizer.register_step_pre_hook(_zero_first),
    "a hook of all optimizers": lambda tg, t: tg.optim.optimizer.register_optimizer_step_post_hook(_zero_first),
    "a setting": lambda tg, t: t.optimizer.param_groups[0].update(weight_decay=0.5),
    "a rate that is a tensor": lambda tg, t: t.optimizer.param_groups[0].update(lr=tg.tensor(0.5)),
    "a state that was loaded": lambda tg, t: t.optimizer.load_state_dict(t.optimizer.state_dict()),
    "no state": lambda tg, t: t.optimizer.state.clear(),
    "another step": lambda tg, t: setattr(t.optimizer, "step", lambda: None),
    "fewer parameters": lambda tg, t: t.optimizer.param_groups[0]["params"].pop(),
    "a parameter that needs no gradient": lambda tg, t: t.model[2].weight.requires_grad_(False),
    "a gradient that the program gives": lambda tg, t: setattr(t.model[2].bias, "grad", tg.ones(2)),
    "no gradient": lambda tg, t: setattr(t.model[2].bias, "grad", None),
    "a loss scale": lambda tg, t: setattr(t.optimizer, "grad_scale", tg.tensor(4.0)),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("clear", ["optimizer", "never"])
def test_what_changes_between_steps_counts(tg: Any, what: str, clear: str, seed: int) -> None:
    def before(training: Training, number: int) -> None:
        if number == CALLS - 4:
            removable.append(CHANGES[what](tg, training))

    removable: list[Any] = []
    expected, _ = _trained(tg, seed, _plain, before, clear=clear)
    removable[0].remove() if hasattr(removable[0], "remove") else None
    got, training = _trained(tg, seed, tg.compile, before, clear=clear)
    removable[1].remove() if hasattr(removable[1], "remove") else None
    assert got == expected
    assert calls_of(training.step).replayed


def test_a_returned_gradient_is_that_of_the_leaf(tg: Any, seed: int) -> None:
    model = _model(tg)

    @tg.compile
    def step(x: Any) -> Any:
        model.zero_grad()
        model(x).sum().backward()
        return model[0].weight.grad

    for x in _batches(tg, seed):
        assert step(x) is model[0].weight.grad


def test_an_earlier_failure_is_raised_once_a_step_is_done(tg: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sending raises comes when the step is queued and known here, as without ``compile``."""
    training, batches = Training(tg, tg.compile), _batches(tg, seed)
    for x in batches:
        training.step(x)
    parameters = list(training.model.parameters())
    before = [p.grad._id for p in parameters]

    def raising(sends: bool) -> None:
        raise RuntimeError("an earlier failure")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="an earlier failure"):
        patch.setattr(parameters[0]._session, "release", raising)
        training.step(batches[0])
    assert all([p.grad._id > id for p, id in zip(parameters, before, strict=True)])
    assert bool(training.step(batches[1]).isfinite())


@pytest.mark.parametrize("is_in_c", [pytest.param(True, marks=needs_calls_in_c), False])
def test_a_gradient_that_is_dropped_between_check_and_step_is_freed_once(
    tg: Any, seed: int, is_in_c: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a signal's handler does there, or a finalizer that the collector calls."""
    if not is_in_c:
        monkeypatch.setattr(record, "hold", gradients._hold_in_python)
        monkeypatch.setattr(record, "change", gradients._change_in_python)
    expected, _ = _trained(tg, seed, _plain, _nothing)
    ids_of, dropping, freed = record._ids_of, [False], []

    def interrupted(*given: Any) -> Any:
        if dropping[0]:
            training.model[0].weight.grad = None
        return ids_of(*given)

    monkeypatch.setattr(record, "_ids_of", interrupted)
    training, told = Training(tg, tg.compile), []
    session = training.model[0].weight._session
    free = session.free
    monkeypatch.setattr(session, "free", lambda id: freed.append(id) or free(id))
    for number, x in enumerate(_batches(tg, seed)):
        before = training.model[0].weight.grad
        id, before = None if before is None else before._id, None
        dropping[0] = number >= CALLS - 3
        told.append([exactly(tg, training.step(x)), training.state(tg)])
        assert not dropping[0] or id not in freed, "the run of the step frees it"
    assert told == expected and calls_of(training.step).replayed > 3
