"""Functions in the user's Python, under telegrad and under PyTorch: the same programs give the same."""

from __future__ import annotations

from typing import Any

import pytest

import telegrad

from .pass_programs import compare

PROGRAMS = [
    "(Square.apply(x).sum().backward(), x.grad, calls)",
    """
    y = Square.apply(x)
    (y, y.grad_fn.name(), y.requires_grad, y.is_leaf, repr(y))
    """,
    """
    g, = t.autograd.grad(Square.apply(x * x).sum(), x, create_graph=True)
    h, = t.autograd.grad((g * g).sum(), x, create_graph=True)
    k, = t.autograd.grad(h.sum(), x)
    (g, h, k, calls)
    """,
    """
    y = Exp.apply(x)
    g, = t.autograd.grad(y.sum(), x, create_graph=True)
    h, = t.autograd.grad(g.sum(), x)
    (g, h)
    """,
    """
    a, b, text = Both.apply(x, w, 3.0)
    (a.sum() * b.sum()).backward()
    (x.grad, w.grad, text, calls)
    """,
    """
    a, b, text = Both.apply(x, w, 3.0)
    a.sum().backward()
    (x.grad, w.grad, calls)
    """,
    """
    a, b = Sparse.apply(x, w)
    b.sum().backward()
    (x.grad, w.grad, calls)
    """,
    """
    y = x * 2
    z = AddOne.apply(y)
    (z * z).sum().backward()
    (z is y, y, x.grad)
    """,
    "AddOne.apply(x)",
    """
    y = Identity.apply(x)
    (y * x).sum().backward()
    (y is x, y, x.grad)
    """,
    """
    values, where = Largest.apply(w)
    values.sum().backward()
    (values, where, w.grad)
    """,
    """
    y, _ = Cube.apply(x)
    g, = t.autograd.grad(y.sum(), x, create_graph=True)
    (g * 2).sum().backward()
    (y, g, x.grad)
    """,
    """
    g, = t.autograd.grad(Once.apply(x).sum(), x)
    g
    """,
    """
    g, = t.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
    g.sum().backward()
    """,
    """
    y = Square.apply(x)
    y.sum().backward()
    y.sum().backward()
    """,
    """
    y = Square.apply(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    x.grad
    """,
    """
    with t.no_grad():
        y = Square.apply(x)
    y
    """,
    """
    view = Square.apply(w)[0]
    view.mul_(2)
    (view * x).sum().backward()
    (w.grad, x.grad)
    """,
    """
    g = t.autograd.grad(Square.apply(x).sum(), [x, w], allow_unused=True)
    g
    """,
    "t.autograd.grad(Square.apply(x).sum(), [x, w])",
    """
    b = t.zeros(3, dtype=t.float64, requires_grad=True)
    y = (x * x * x + b).sum()
    g, = t.autograd.grad(y, x, create_graph=True)
    second = t.autograd.grad(g.sum(), [x, b], retain_graph=True, allow_unused=True)
    g.sum().backward()
    (second, x.grad, b.grad)
    """,
    """
    y = Square.apply(x)
    class Keeps(t.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.factor = 3.0
            return a * ctx.factor
        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor
    y = Keeps.apply(x).sum()
    y.backward()
    y.backward()
    x.grad
    """,
    """
    y = Square.apply(x).sum()
    y.backward()
    y.backward()
    """,
    """
    class Same(t.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a
        @staticmethod
        def backward(ctx, g):
            return g
    with t.no_grad():
        y = Same.apply(x)
    (y is x, y.requires_grad, y.is_leaf)
    """,
    """
    edge = t.autograd.graph.GradientEdge
    parts = w.unbind()
    rows = [edge(part.grad_fn, part.output_nr) for part in parts]
    y = x * 2
    of_y = edge(y.grad_fn, y.output_nr)
    leaf = edge(y.grad_fn.next_functions[0][0], 0)
    total = (parts[0] * 5 + parts[1] * 7 + y * y).sum()
    y.mul_(1)
    gradients = t.autograd.grad((parts[0] * 5 + parts[1] * 7).sum(), rows)
    more = t.autograd.grad((x * 3).sum(), leaf) + t.autograd.grad((y * 4).sum(), [of_y, y])
    (gradients, more)
    """,
    """
    base, added = w * 1, t.ones(2, 2, dtype=t.float64, requires_grad=True)
    class AddTo(t.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.mark_dirty(a)
            ctx.save_for_backward(b, a)
            return a.mul_(b)
        @staticmethod
        def backward(ctx, g):
            b, a = ctx.saved_tensors
            return g * b, (g * a / b).sum() * t.ones_like(b)
    part, other = base[:, 1:], base[0]
    same = AddTo.apply(part, added * 2)
    ((base * base).sum() + (part * 3).sum() + other.sum()).backward()
    plain = t.zeros(2, 3, dtype=t.float64)
    AddTo.apply(plain[:, 1:], added)
    (same is part, base, part, w.grad, added.grad, plain.requires_grad)
    """,
    """
    AddTo = AddOne
    AddTo.apply(w[0])
    """,
    """
    half = t.empty(3, dtype=t.int64)
    half.copy_(x)
    half.requires_grad
    """,
    """
    y = Square.apply(x)
    (y.grad_fn.next_functions[0][0].name(), y.grad_fn.saved_tensors, (y * 2).grad_fn.next_functions[0][0].name())
    """,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_pass_calls_functions_as_in_pytorch(tg: Any, program: str) -> None:
    compare(tg, program)


def test_a_pass_without_client_parts_is_one_instruction(tg: Any) -> None:
    x = tg.ones(3, requires_grad=True)
    loss = (x * 2).sum()
    session = x._session
    before, waited = session.operations, session.round_trips
    loss.backward()
    assert (session.operations - before, session.round_trips - waited) == (1, 0)
    loss = (x * 2).sum()
    before = session.operations
    telegrad.autograd.grad(loss, x)
    assert session.operations - before == 1


def test_a_pass_with_client_parts_waits_for_nothing(tg: Any) -> None:
    class Double(telegrad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    x = tg.ones(3, requires_grad=True)
    x.register_hook(lambda g: g * 3)
    waited = x._session.round_trips
    Double.apply(x * 5).sum().backward()
    assert x._session.round_trips == waited
    assert x.grad.tolist() == [30, 30, 30]
