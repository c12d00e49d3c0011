"""Derivatives of custom operators that a compiler could not follow, and effects beyond results."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import telegrad
from telegrad._library import effects
from telegrad_protocol.errors import ArgumentTypeError, OperatorError

from .twins import assert_same, evaluate

_spaces = (f"derived{number}" for number in itertools.count())
CHECK = """
op = t.library.custom_op(f"{ns}::double", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
op.register_fake(lambda x: t.empty_like(x))
op.register_autograd(BACKWARD)
found = t.library.opcheck(op, (t.arange(3.0).requires_grad_(),), raise_exception=False)
{name: outcome == "SUCCESS" for name, outcome in found.items()}
"""


@pytest.mark.parametrize(
    ("backward", "holds"),
    [
        ("lambda ctx, g: g * 2", True),
        ("lambda ctx, g: g * t.full((3,), 2.0)", True),
        ("lambda ctx, g: t.from_numpy(g.numpy() * 2)", False),
        ("lambda ctx, g: g * 2 if g.sum().item() > 0 else g * 2", False),
    ],
)
def test_opcheck_finds_derivatives_that_look_at_elements(tg: Any, backward: str, holds: bool) -> None:
    ours, theirs = evaluate(CHECK.replace("BACKWARD", backward), tg, ns=next(_spaces))
    assert_same(sorted(ours.items()), sorted(theirs.items()))
    assert ours["test_aot_dispatch_dynamic"] is holds


def test_effects_are_noted_and_taken_back(tg: Any) -> None:
    space = next(_spaces)

    @tg.library.custom_op(f"{space}::told", mutates_args=())
    def told(x: telegrad.Tensor) -> telegrad.Tensor:
        return x.clone()

    assert effects._get_effect(told) is None and not effects.has_effects(f"{space}::told")
    told.register_effect(effects.EffectType.ORDERED)
    assert effects._get_effect(told._opoverload) is effects.EffectType.ORDERED
    tg.library._register_effectful_op(f"{space}::told", None)
    assert not effects.has_effects(told)
    with pytest.raises(OperatorError, match="does not exist"):
        tg.library._register_effectful_op(f"{space}::nothing", effects.EffectType.ORDERED)
    with pytest.raises(ArgumentTypeError, match="an EffectType or None"):
        told.register_effect("ordered")


def test_operators_with_effects_run_at_every_call_of_a_compiled_function(tg: Any) -> None:
    calls: list[int] = []

    @tg.library.custom_op(f"{next(_spaces)}::say", mutates_args=())
    def say(x: telegrad.Tensor) -> telegrad.Tensor:
        calls.append(len(calls))
        return x.clone()

    say.register_fake(lambda x: tg.empty_like(x))
    say.register_effect(effects.EffectType.ORDERED)
    step = tg.compile(lambda x: (say(x), say(x * 2).sum())[1])
    assert [step(tg.ones(3)).item() for _ in range(6)] == [6.0] * 6
    assert len(calls) == 12
