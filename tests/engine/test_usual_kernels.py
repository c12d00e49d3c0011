"""What usual programs ask of a GPU is compiled beforehand: looked at without one, by what they ask of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import telegrad as tg
from benchmarks import models
from benchmarks.models import Setting
from server.engine import keys, plan
from server.engine.cuda.families import import_families
from server.engine.cuda.runtime.launch import collecting
from server.engine.cuda.texts import DEVICE, DescribedDevice, texts_of
from server.engine.cuda.usual_calls import usual_calls
from server.engine.operators import OPERATORS, Request
from server.worker.host import Host
from telegrad_protocol.meta import Device, Meta

from .cuda_registrations import registrations, withdraw

_ = registrations
import_families()
withdraw()

TARGET = "sm_90"
GPT = Setting("a GPT", 1, 128, 4, 24, 3)
Step = Callable[[], Any]


def _pictures() -> Step:
    nn, functional = tg.nn, tg.nn.functional
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3),
        nn.GroupNorm(8, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    pictures, labels = tg.rand(8, 3, 32, 32), tg.randint(0, 10, (8,))

    def step() -> Any:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(pictures), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


STEPS: dict[str, Callable[[], Step]] = {
    "GPT": lambda: models.gpt(tg, GPT, "cpu"), "MLP": lambda: models.mlp(tg, "cpu"), "pictures": _pictures,
}  # fmt: skip


def _there(item: Any) -> Any:
    """The same on a GPU."""
    if isinstance(item, Meta):
        return Meta.of(item.shape, item.dtype, DEVICE, item.strides, item.offset)
    if isinstance(item, tuple):
        return tuple(map(_there, item))
    return DEVICE if isinstance(item, Device) else item


@cache
def _usual() -> set[Any]:
    """The texts that are compiled beforehand."""
    return set(texts_of(usual_calls(is_hopper=True), TARGET).texts)


@pytest.mark.parametrize("name", STEPS)
def test_a_usual_step_asks_for_kernels_that_were_compiled_beforehand(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, Any, Any]] = []
    make = plan.Plan._kernel_run

    def noted(self: Any, operator: Any, bound: Any) -> Any:
        asked.append((operator.op.name, _there(bound), _there(self.outs)))
        return make(self, operator, bound)

    monkeypatch.setattr(plan.Plan, "_kernel_run", noted)
    for operator in OPERATORS.values():
        monkeypatch.setattr(operator, "plans", {})
    with tg.connect(in_process=Host(["cpu"])):
        step = STEPS[name]()
        asked.clear()  # initial weights are another matter
        for _ in range(2):
            step().item()
    lacking = set()
    for called, args, outs in asked:
        operator = OPERATORS[called]
        op, made = operator.op, outs or ()
        if op.form == "functional" and op.mutates:
            made = ()
        base = args[: len(op.base.params)]
        compute = op.base.compute_dtype(base) if op.promotion else None
        request = Request(op.base, DescribedDevice(), base, made, compute)  # type: ignore[arg-type]
        with collecting(TARGET) as collection:
            any(preparer.factory(request) is not None for preparer in operator.preparers.get(keys.CUDA, ()))
        if not _usual() >= collection.texts.keys():
            lacking.add((called, " ".join(map(str, args))[:150]))
    assert len(asked) > 10
    assert not lacking
