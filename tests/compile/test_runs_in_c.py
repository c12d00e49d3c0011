"""What runs of programs leave is the same in C and in Python: results, gradients, names and memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from server.engine.in_c import runs
from server.engine.programs import captures, described
from server.session.programs import compiled, sequences
from tests.support.captures import simulate_captures

from ..support.compilers import needs_calls_in_c
from .harness import exactly

pytestmark = needs_calls_in_c
CALLS = 12
LOOP = 12
"""So often a call comes in a row, so that it comes in the same state of memory again."""
IN_C = (
    (captures, "blocks_of"), (captures, "storages_over"), (described, "values_over"), (compiled, "named_by"),
    (compiled, "give_gradients"),
)  # fmt: skip


def _in_python(patch: pytest.MonkeyPatch) -> None:
    for module, name in IN_C:
        patch.setattr(module, name, lambda *given: None)
    patch.setattr(sequences, "_bound", sequences._bound_in_python)


def _counted(patch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often each function of C has said what there is, and has not left it to Python."""
    counts = dict.fromkeys([name for _, name in IN_C], 0)

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any) -> Any:
            result = function(*given)
            counts[name] += result is not None and result is not False
            return result

        return noted

    for module, name in IN_C:
        patch.setattr(module, name, noting(name, getattr(runs, name)))
    return counts


def _trained(tg: Any, seed: int) -> list[Any]:
    """What steps return and leave that drop gradients, return views and histories, and keep some results."""
    rng = np.random.default_rng(seed)
    model = tg.nn.Sequential(tg.nn.Linear(4, 5), tg.nn.Tanh(), tg.nn.Linear(5, 2))
    with tg.no_grad():
        for p in model.parameters():
            p.copy_(tg.tensor(rng.standard_normal(tuple(p.shape)), dtype=tg.float32))
    optimizer, kept, told = tg.optim.AdamW(model.parameters(), lr=0.05), [], []

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        out = model(x)
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        with tg.no_grad():
            again = model(x)
        return loss, loss.detach(), again[0], again.t(), x, again.argmax(1)

    def infer(x: Any) -> Any:
        return model(x), x.t(), (x * 2, x.sum())

    def plain(x: Any) -> Any:
        return (model(x).sin() * 2).exp(), (x * 3).cos() + 1

    steps = [tg.compile(step), tg.compile(infer), tg.compile(tg.no_grad()(plain))]
    x = tg.tensor(rng.standard_normal((3, 4)), dtype=tg.float32)
    for number in range(CALLS):
        for one in steps:
            for _ in range(LOOP if number > 3 else 1):
                result = one(x)
            told.append(exactly(tg, result))
            if number % 5 == 4:
                kept.append(result)
        told.append([exactly(tg, p.grad) for p in model.parameters()])
        del kept[: int(rng.integers(2))]
        if rng.random() < 0.2:
            x = tg.tensor(rng.standard_normal((3, 4)), dtype=tg.float32)
    return [*told, tg.ones(1).item()]


@pytest.mark.parametrize("is_captured", [True, False])
def test_training_and_inference_are_the_same(
    tg: Any, seed: int, is_captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_captured:
        simulate_captures(monkeypatch)
    with monkeypatch.context() as patch:
        _in_python(patch)
        expected = _trained(tg, seed)
    counts = _counted(monkeypatch)
    assert _trained(tg, seed) == expected
    assert counts["named_by"] and counts["give_gradients"]
    assert bool(counts["storages_over"] and counts["blocks_of"] and counts["values_over"]) is is_captured, counts
