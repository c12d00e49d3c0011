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


MODIFIED = """
a = t.arange(1.0, 5.0, requires_grad=True)
log = []
b = a * 2
v, u = b[:2], b[1:3]
c = v[1:]
for name, each in zip("bvuc", (b, v, u, c)):
    each.retain_grad()
    each.register_hook(lambda g, name=name: log.append((name, g.tolist())))
{modification}
y = (b * t.tensor([1.0, 2.0, 3.0, 4.0])).sum() {use}
y.backward()
(log, [None if not each.retains_grad else each.grad for each in (b, v, u, c)], a.grad, v.grad_fn.name())
"""
MODIFICATIONS = (
    "b.mul_(3)", "v.mul_(3)", "u.mul_(v.detach())", "c.square_()", "b.copy_(t.ones(4))", "v.zero_()", "v.add_(v)",
    "w = v * 5; b.mul_(3); b.add_(w.sum())", "b.mul_(3); v.sum(); v.square_()", "v.grad_fn; b.mul_(3); v.grad_fn",
)  # fmt: skip
USES = ("", "+ (v * t.tensor([10.0, 20.0])).sum()", "+ (u * u).sum() + c.sum()")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("modification", MODIFICATIONS)
def test_a_view_whose_memory_is_modified_retains_the_gradient_of_its_new_elements(
    tg: Any, modification: str, use: str
) -> None:
    assert_same(*evaluate(MODIFIED.format(modification=modification, use=use), tg))
