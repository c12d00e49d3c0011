"""Backward passes, modes and copies, as a user of PyTorch writes them."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

PROGRAMS = [
    """
    x = t.ones(3, requires_grad=True)
    (x * x).sum().backward()
    x.grad
    """,
    """
    x = t.ones(3, requires_grad=True)
    (x * x).sum().backward()
    (x * x).sum().backward()
    x.grad
    """,
    """
    x = t.ones(3, requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    x.grad
    """,
    """
    x = t.ones(3, requires_grad=True)
    (x * x).backward()
    """,
    """
    x = t.ones(3, requires_grad=True)
    (x * x).backward(t.arange(3.))
    x.grad
    """,
    """
    x = t.ones(3, requires_grad=True)
    (x * x).backward(gradient=t.arange(2.))
    """,
    """
    x = t.ones(3)
    x.sum().backward()
    """,
    """
    x = t.ones(3, requires_grad=True)
    z = t.ones(3, requires_grad=True)
    (x * z).sum().backward(inputs=[x])
    (x.grad, z.grad)
    """,
    """
    x = t.ones(3, requires_grad=True)
    z = t.ones(3, requires_grad=True)
    (x * z).sum().backward(inputs=x)
    (x.grad, z.grad)
    """,
    """
    x = t.ones(3, requires_grad=True)
    (x * x).sum().backward(inputs=[])
    """,
    """
    x = t.ones(3, requires_grad=True)
    z = t.ones(3, requires_grad=True)
    z.grad = t.ones(3)
    (z * z).sum().backward(inputs=[x])
    (x.grad, z.grad)
    """,
    """
    x = t.ones(3, requires_grad=True)
    y = x * 2
    (y * y).sum().backward(inputs=[y])
    (x.grad, y.grad)
    """,
    """
    x = t.ones(3, requires_grad=True)
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    (x.grad, y.grad, y.retains_grad, x.retains_grad)
    """,
    """
    x = t.ones(3)
    x.retain_grad()
    """,
    """
    x = t.ones(3, requires_grad=True)
    x.retain_grad()
    x.retains_grad
    """,
    """
    x = t.ones(3, requires_grad=True)
    (x ** 3).sum().backward(create_graph=True)
    x.grad
    """,
    """
    x = t.full((3,), 2., requires_grad=True)
    (x ** 3).sum().backward(create_graph=True)
    g = x.grad
    x.grad = None
    g.sum().backward()
    x.grad
    """,
    """
    x = t.full((3,), 2., requires_grad=True)
    t.autograd.grad((x ** 3).sum(), x)
    """,
    """
    x = t.full((3,), 2., requires_grad=True)
    g, = t.autograd.grad((x ** 3).sum(), x, create_graph=True)
    g2, = t.autograd.grad(g.sum(), x, create_graph=True)
    t.autograd.grad(g2.sum(), x)
    """,
    """
    x = t.ones(3, requires_grad=True)
    z = t.ones(3, requires_grad=True)
    t.autograd.grad((x * 2).sum(), [x, z])
    """,
    """
    x = t.ones(3, requires_grad=True)
    z = t.ones(3, requires_grad=True)
    t.autograd.grad((x * 2).sum(), [x, z], allow_unused=True)
    """,
    """
    x = t.ones(3, requires_grad=True)
    z = t.ones(3, requires_grad=True)
    t.autograd.grad((x * 2).sum(), [x, z], materialize_grads=True)
    """,
    """
    x = t.ones(3, requires_grad=True)
    t.autograd.grad(x * 2, x, t.arange(3.))
    """,
    """
    x = t.ones(3, requires_grad=True)
    t.autograd.grad([x * 2, x * 3], [x], [t.ones(3), t.ones(3)])
    """,
    """
    x = t.ones(3, requires_grad=True)
    t.autograd.grad([x * 2, x * 3], [x], [t.ones(3)])
    """,
    """
    x = t.ones(3)
    t.autograd.grad(x.sum(), x)
    """,
    """
    x = t.ones(3, requires_grad=True)
    t.autograd.backward([x.sum(), (x * 2).sum()])
    x.grad
    """,
    """
    x = t.ones(3, requires_grad=True)
    t.autograd.backward([x * 2, x * 3], [t.ones(3), None])
    """,
    """
    x = t.ones(3, requires_grad=True)
    y = x * 2
    x2 = y.exp()
    y += 1
    x2.sum().backward()
    """,
    """
    x = t.ones(2, 3).t().requires_grad_()
    (x * t.arange(6.).view(3, 2)).sum().backward()
    x.grad
    """,
    """
    x = t.ones(3, requires_grad=True)
    with t.no_grad(): y = x * 2
    y
    """,
    """
    x = t.ones(3, requires_grad=True)
    with t.no_grad(): x += 1
    x
    """,
    """
    x = t.ones(3, requires_grad=True)
    with t.inference_mode(): y = x * 2
    y.requires_grad
    """,
    """
    x = t.ones(3, requires_grad=True)
    with t.set_grad_enabled(False): y = x * 2
    (y, x * 2)
    """,
    """
    x = t.ones(3, requires_grad=True)
    with t.no_grad(), t.enable_grad(): y = x * 2
    y
    """,
    """
    f = t.no_grad()(lambda x: x * 2)
    (f(t.ones(1, requires_grad=True)), t.is_grad_enabled())
    """,
    """
    f = t.no_grad(lambda x: x * 2)
    f(t.ones(1, requires_grad=True))
    """,
    """
    f = t.inference_mode()(lambda x: (x * 2).requires_grad)
    f(t.ones(1, requires_grad=True))
    """,
    """
    f = t.set_grad_enabled(False)(lambda x: x * 2)
    (f(t.ones(1, requires_grad=True)), t.is_grad_enabled())
    """,
    """
    f = t.enable_grad()(lambda x: x * 2)
    with t.no_grad(): y = f(t.ones(1, requires_grad=True))
    y
    """,
    """
    import copy
    x = t.ones(2, requires_grad=True)
    y = copy.deepcopy(x)
    y.data += 1
    (x, y)
    """,
    """
    import copy
    x = t.ones(2, requires_grad=True)
    x.grad = t.ones(2)
    copy.deepcopy(x).grad
    """,
    """
    import copy
    copy.deepcopy(t.ones(2, requires_grad=True) * 2)
    """,
    """
    import copy
    p = t.nn.Parameter(t.ones(2))
    p.grad, p.note = t.ones(2), [1]
    q, r = copy.deepcopy([p, p])
    (q is r, q.grad, vars(q), q, copy.copy(p).note is p.note, p.__deepcopy__({id(p): 5}))
    """,
    """
    import copy
    net = t.nn.Linear(1, 1, bias=False)
    net(t.ones(1, 1)).sum().backward()
    twin = copy.deepcopy(net)
    twin(t.ones(1, 1) * 3).sum().backward()
    (net.weight.grad, twin.weight.grad)
    """,
    """
    import copy
    class Scaled(t.nn.Parameter):
        def __new__(cls, data, requires_grad=True): return super().__new__(cls, data * 2, requires_grad)
    p = copy.deepcopy(Scaled(t.ones(2), False))
    (p.detach(), p.requires_grad, type(p).__name__)
    """,
    """
    import copy
    x, y = t.ones(2), t.ones(1)
    x.note, x.other, x.again = [1], y, [y]
    z = copy.deepcopy(x)
    (z.note is x.note, z.note, z.other is x.other, z.other is z.again[0], copy.copy(x).note is x.note)
    """,
    """
    import copy
    x = t.ones(2)
    (x.__deepcopy__({id(x): 5}), copy.deepcopy(x, {id(x): 6}))
    """,
    """
    import copy
    x = t.ones(2)
    a, b = copy.deepcopy([x, x])
    a is b
    """,
    """
    x = t.ones(3, requires_grad=True)
    y = x * 1
    y[0] = 5
    y.sum().backward()
    x.grad
    """,
    """
    x = t.ones(3, requires_grad=True)
    x[0] = 5
    """,
    """
    x = t.zeros(3)
    w = t.ones(2, requires_grad=True)
    x[:2] = w
    (x * 3).sum().backward()
    (w.grad, x)
    """,
    """
    x = t.zeros(3)
    w = t.ones(3, requires_grad=True)
    v = x[1:]
    x.mul_(w)
    (x, v)
    """,
    """
    x = t.zeros(3)
    w = t.ones(3, requires_grad=True)
    v = x[1:]
    u = x[:2]
    v.mul_(w[1:])
    (x, v, u)
    """,
    "t.is_grad_enabled()",
    """
    t.set_grad_enabled(True)
    t.is_grad_enabled()
    """,
    "t.is_inference_mode_enabled()",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_differentiation_is_pytorchs(tg: Any, program: str) -> None:
    assert_same(*evaluate(program, tg))
