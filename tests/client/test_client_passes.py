"""Hooks and functions in the user's Python, under telegrad and under PyTorch: the same programs give the same."""

from __future__ import annotations

from typing import Any

import pytest

import telegrad

from .twins import assert_same, evaluate

PROLOGUE = """
class Square(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, grad):
        calls.append("square")
        x, = ctx.saved_tensors
        return 2 * x * grad
class Exp(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, grad):
        y, = ctx.saved_tensors
        return y * grad
class Both(t.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, factor):
        ctx.factor = factor
        return a * factor, b + 1, "text"
    @staticmethod
    def backward(ctx, ga, gb, gt):
        calls.append((ga is None, gb is None, gt is None, ctx.needs_input_grad))
        return ga * ctx.factor, gb, None
class Sparse(t.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.set_materialize_grads(False)
        return a * 2, b * 3
    @staticmethod
    def backward(ctx, ga, gb):
        calls.append((ga is None, gb is None))
        return None if ga is None else ga * 2, None if gb is None else gb * 3
class AddOne(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x
    @staticmethod
    def backward(ctx, grad):
        return grad * 5
class Identity(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x
    @staticmethod
    def backward(ctx, grad):
        return grad * 7
class Largest(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, where = x.max(0)
        ctx.mark_non_differentiable(where)
        ctx.size = x.shape
        ctx.save_for_backward(where)
        return values, where
    @staticmethod
    def backward(ctx, grad, _):
        where, = ctx.saved_tensors
        return t.zeros(ctx.size, dtype=grad.dtype).scatter(0, where.unsqueeze(0), grad.unsqueeze(0))
class Cube(t.autograd.Function):
    @staticmethod
    def forward(x):
        return x ** 3, x ** 2
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[1])
    @staticmethod
    def backward(ctx, grad, _):
        x, squared = ctx.saved_tensors
        return 3 * squared * grad
class Once(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    @t.autograd.function.once_differentiable
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return 2 * x * grad
calls = []
x = t.tensor([0.5, -1.0, 2.0], dtype=t.float64, requires_grad=True)
w = t.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]], dtype=t.float64, requires_grad=True)
def doubled(g):
    calls.append("doubled")
    return g * 2
"""

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
    y = Square.apply(x)
    (y.grad_fn.next_functions[0][0].name(), y.grad_fn.saved_tensors, (y * 2).grad_fn.next_functions[0][0].name())
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
def test_a_pass_calls_the_program_as_in_pytorch(tg: Any, program: str) -> None:
    lines = "\n".join(line[4:] if line.startswith("    ") else line for line in program.strip("\n").splitlines())
    assert_same(*evaluate(PROLOGUE + lines, tg))


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
