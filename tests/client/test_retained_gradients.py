"""Results that retain their gradients get them in passes that accumulate into no leaves, or into some."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

PROGRAMS = [
    f"""
    x, w = t.tensor([1.0, 2.0, 3.0], requires_grad=True), t.tensor([0.5, -1.0, 2.0], requires_grad=True)
    a = x * w
    b, c = a.sin(), x.exp()
    for each in (a, b, c):
        each.retain_grad()
    {hook}
    y = (b * c).sum()
    given = [{passes} for _ in range(2)]
    (given, [each.grad for each in (x, w, a, b, c)], a.grad is not None and a.grad.requires_grad)
    """
    for hook in ("pass", "a.register_hook(lambda g: g * 2)")
    for passes in (
        "t.autograd.grad(y, w, retain_graph=True)",
        "t.autograd.grad(y, [w, b], retain_graph=True)",
        "t.autograd.grad(y, [a, t.zeros(1, requires_grad=True)], retain_graph=True, allow_unused=True)",
        "y.backward(inputs=[w], retain_graph=True)",
        "y.backward(inputs=[a, x], retain_graph=True)",
    )
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_retained_as_in_pytorch(tg: Any, program: str) -> None:
    assert_same(*evaluate(program, tg))


HOOKED = """
x = t.tensor([1.0, 2.0], requires_grad=True)
y = x * 2
w = y.exp()
{retained}
y.register_hook(lambda g: g * 10)
w.register_hook(lambda g: g + 1)
x.register_hook(lambda g: -g)
t.autograd.grad((w * 3 * y).sum(), {inputs}, create_graph={graph}), y.grad
"""


@pytest.mark.parametrize("inputs", ["y", "[x, y]", "[w, y, x]", "[y, w]"])
@pytest.mark.parametrize(("retained", "graph"), [("pass", False), ("y.retain_grad()", False), ("pass", True)])
def test_a_gradient_on_the_way_to_another_is_returned_as_its_hooks_were_given_it(
    tg: Any, inputs: str, retained: str, graph: bool
) -> None:
    assert_same(*evaluate(HOOKED.format(inputs=inputs, retained=retained, graph=graph), tg))
