"""Hooks of tensors, leaves and modules, under telegrad and under PyTorch: the same programs give the same."""

from __future__ import annotations

from typing import Any

import pytest

from .pass_programs import compare

PROGRAMS = [
    """
    h = x * 3
    handle = h.register_hook(doubled)
    (h * h).sum().backward(retain_graph=True)
    handle.remove()
    (h * h).sum().backward()
    (x.grad, calls)
    """,
    """
    h = x * 3
    y = h * h
    h.register_hook(doubled)
    h.register_hook(lambda g: g + 1)
    h.retain_grad()
    y.sum().backward()
    (x.grad, h.grad, calls)
    """,
    """
    x.register_hook(doubled)
    g = t.autograd.grad((x * x).sum(), x)
    (x * w).sum().backward()
    (g, x.grad, w.grad, calls)
    """,
    """
    a, b = w.unbind(0)
    a.register_hook(doubled)
    (a * b * x).sum().backward()
    (w.grad, x.grad, calls)
    """,
    """
    seen = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    (x * x).sum().backward()
    (x * 3).sum().backward()
    (seen, x.grad)
    """,
    """
    seen = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append((p.grad.requires_grad, p.grad * 2)))
    (Square.apply(x) * x * w).sum().backward(create_graph=True)
    (x.grad * seen[0][1]).sum().backward(inputs=[w])
    (seen, x.grad, w.grad)
    """,
    """
    def step(p):
        with t.no_grad():
            p -= 0.1 * p.grad
        p.grad = None
    for p in (x, w):
        p.register_post_accumulate_grad_hook(step)
    (w * x).sum().backward()
    (x, w, x.grad, w.grad)
    """,
    """
    seen = []
    h = Square.apply(x * 2)
    h.register_hook(lambda g: seen.append(g.clone()))
    y = Exp.apply(h * 0.1) + h
    y.register_hook(doubled)
    (y * w).sum().backward(inputs=[x])
    (seen, x.grad, w.grad, calls)
    """,
    """
    h = x * x
    h.register_hook(lambda g: g * x)
    g, = t.autograd.grad(h.sum(), x, create_graph=True)
    (g * g).sum().backward()
    (g, x.grad)
    """,
    """
    h = x * 2
    h.register_hook(doubled)
    h.add_(1)
    h.register_hook(lambda g: g * 3)
    (h * h).sum().backward()
    (x.grad, calls)
    """,
    """
    b = t.zeros(3, dtype=t.float64, requires_grad=True)
    y = (Square.apply(x) * x + b).sum()
    b.register_hook(doubled)
    g, = t.autograd.grad(y, x, create_graph=True)
    second = t.autograd.grad(g.sum(), [x, b], retain_graph=True, allow_unused=True)
    g.sum().backward()
    (second, x.grad, b.grad, calls)
    """,
    """
    one, two = x * 1, w * 2
    two.register_hook(lambda g: calls.append(("tensor", g)))
    two.grad_fn.register_prehook(lambda gs: calls.append(("before", gs)))
    two.grad_fn.register_hook(lambda gs, outs: calls.append(("after", gs, outs)))
    w.register_hook(lambda g: calls.append(("leaf", g)))
    w.register_post_accumulate_grad_hook(lambda leaf: calls.append(("done", leaf.grad)))
    class First(t.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a.sum() + b.sum()
        @staticmethod
        def backward(ctx, g):
            return g.expand(3), None
    First.apply(one, two).backward()
    (calls, x.grad, w.grad)
    """,
    """
    y = w * 2
    y.register_hook(lambda g: t.ones(2, 3, dtype=t.float64))
    class Nothing(t.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2
        @staticmethod
        def backward(ctx, g):
            return None
    Nothing.apply(y).sum().backward()
    """,
    """
    order = []
    parts = t.nn.Linear(3, 2), t.nn.LayerNorm(2), t.nn.Conv1d(1, 1, 1), t.nn.BatchNorm1d(1)
    net = t.nn.Sequential(parts[0], parts[1], t.nn.Unflatten(1, (1, 2)), parts[2], parts[3]).double()
    for name, p in net.named_parameters():
        p.register_hook(lambda g, name=name: order.append(name))
    first, second = t.ones(2, requires_grad=True), t.ones(2, requires_grad=True)
    first.register_hook(lambda g: order.append("first"))
    second.register_hook(lambda g: order.append("second"))
    (net(w).sum() + (first * second).sum()).backward()
    order
    """,
    """
    y = x.clone()
    leaf = y.grad_fn.next_functions[0][0]
    leaf.register_prehook(lambda gs: calls.append("node") or (gs[0] * 10,))
    x.register_hook(doubled)
    only = t.autograd.grad(y.sum(), x, retain_graph=True)
    y.sum().backward(inputs=[x], retain_graph=True)
    y.sum().backward()
    (only, calls, x.grad)
    """,
    "t.ones(2).register_hook(print)",
    "(x * 2).register_post_accumulate_grad_hook(print)",
    """
    x.register_hook(lambda g: 3)
    x.sum().backward()
    """,
    """
    x.register_post_accumulate_grad_hook(lambda p: 3)
    x.sum().backward()
    """,
    """
    x.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2))
    x.sum().backward()
    """,
    """
    net = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.Tanh(), t.nn.Linear(4, 1)).double()
    with t.no_grad():
        for p in net.parameters():
            p.copy_(t.linspace(-1, 1, p.numel(), dtype=t.float64).reshape(p.shape))
    order = []
    for number, p in enumerate(net.parameters()):
        p.register_hook(lambda g, number=number: order.append((number, g.clone())))
    net(Square.apply(w)).sum().backward()
    (sorted(order, key=lambda pair: pair[0]), [p.grad for p in net.parameters()], w.grad)
    """,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_pass_calls_hooks_as_in_pytorch(tg: Any, program: str) -> None:
    compare(tg, program)


def test_a_hook_that_raises_ends_the_pass_and_the_session_goes_on(tg: Any) -> None:
    x = tg.ones(3, requires_grad=True)

    def fail(_: Any) -> None:
        raise ValueError("by hand")

    handle = x.register_hook(fail)
    with pytest.raises(ValueError, match="by hand"):
        (x * 2).sum().backward()
    handle.remove()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
