"""Functions that are attributes of a program's class: those that are builtins in PyTorch are no methods of it."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

CALLS = [
    ("t.relu", "x"), ("t.nn.functional.gelu", "x"), ("t.zeros", "2, 3"), ("t.ones", "2, requires_grad=True"),
    ("t.cat", "[x, x], dim=0"), ("t.add", "x, x, alpha=2"), ("t.max", "x, 0"), ("t.linalg.norm", "x"),
    ("t.special.erf", "x"), ("t.fft.fft", "x"), ("t.add", "x, x, out=t.empty(3)"), ("t.zeros_like", "input=x"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "given"), CALLS)
@pytest.mark.parametrize("owner", ["Layer()", "Layer", "Derived()"])
def test_a_function_is_called_with_what_it_is_given(function: str, given: str, owner: str, tg: Any) -> None:
    program = f"""
    class Layer:
        call = {function}
    class Derived(Layer):
        pass
    x = t.tensor([-1.0, 0.5, 2.0])
    {owner}.call({given})
    """
    assert_same(*evaluate(program, tg))


@pytest.mark.parametrize("call", ["Layer().wrong(x, 1, 2)", "Layer().bound()", "t.relu(Layer())", "t.relu(None)"])
def test_other_calls_are_refused(call: str, tg: Any) -> None:
    program = f"""
    class Layer:
        wrong = t.relu
        def bound(self):
            return t.tanh(self)
    x = t.ones(2)
    try:
        {call}
        kind = "none"
    except TypeError:
        kind = "a type"
    kind
    """
    assert_same(*evaluate(program, tg))
