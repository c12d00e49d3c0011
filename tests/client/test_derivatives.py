"""``autograd.functional``, ``func`` and the checks of gradients: the same programs under telegrad and PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

PROLOGUE = """
from importlib import import_module
A = import_module(t.__name__ + ".autograd.functional")
F = import_module(t.__name__ + ".func")
x = t.tensor([0.5, -1.0, 2.0], dtype=t.float64)
w = t.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]], dtype=t.float64)
p = t.tensor([2.0, 1.0, -1.0], dtype=t.float64, requires_grad=True)
def f(a):
    return (a ** 3).sin()
def total(a):
    return (a ** 3 * x).sum() + a.prod()
def two(a, b):
    return b @ a, (a * 2).exp()
def both(a, b):
    return (b @ (a ** 2)).sum() * a.sum()
class Cube(t.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(a):
        return a ** 3
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, grad):
        a, = ctx.saved_tensors
        return 3 * a ** 2 * grad
class Wrong(t.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 3
class Constant(t.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * a * a
    @staticmethod
    def backward(ctx, grad):
        a, = ctx.saved_tensors
        return 3 * a.detach() ** 2 * grad
"""

PROGRAMS = [
    "A.jacobian(f, x)",
    """
    graph = import_module(t.__name__ + ".autograd.graph")
    with graph.allow_mutation_on_saved_tensors():
        b = p.clone()
        value = (b ** 2 * b.exp()).sum() + (b * b[:1]).sum()
        b.sin_()
        b[1:].zero_()
        first, = t.autograd.grad(value, p)
    first
    """,
    """
    graph = import_module(t.__name__ + ".autograd.graph")
    b = p.clone()
    value = (b ** 2).sum()
    b.sin_()
    t.autograd.grad(value, p)[0].sum().item()
    """,
    "A.jacobian(two, (x, w))",
    "A.jacobian(lambda a: a.sum(), x)",
    "A.jacobian(lambda a: w * 2, x)",
    "A.jacobian(lambda a: w * 2, x, strict=True)",
    """
    j = A.jacobian(f, p, create_graph=True)
    j.sum().backward()
    (j, p.grad)
    """,
    "A.hessian(total, x)",
    "A.hessian(both, (x, w))",
    "A.vjp(f, x, x * 2)",
    "A.vjp(total, x)",
    "A.vjp(two, (x, w), (t.ones(2, dtype=t.float64), x))",
    "A.jvp(f, x, x * 2)",
    "A.jvp(two, (x, w), (x, w))",
    "A.vhp(total, x, x)",
    "A.hvp(both, (x, w), (x, w))",
    "A.vjp(f, x)",
    "A.vjp(f, x, w)",
    "A.jacobian(f, 3)",
    "t.autograd.grad(f(p), p, w, is_grads_batched=True)",
    "t.autograd.grad([f(p), p * 2], [p], [w, w * 3], is_grads_batched=True, create_graph=True)",
    """
    t.autograd.backward([f(p), p * 2], [x, x * 3])
    p.grad
    """,
    "F.grad(total)(x)",
    "F.grad(both, argnums=(0, 1))(x, w)",
    "F.grad(both, argnums=1)(x, w)",
    "F.grad(f)(x)",
    "F.grad(lambda d: (d['a'] * d['b'][0]).sum())({'a': x, 'b': [x * 2]})",
    "F.grad(lambda a: (total(a), a * 2), has_aux=True)(x)",
    "F.grad_and_value(total)(x)",
    "F.grad(lambda a: F.grad(total)(a).sum())(x)",
    """
    g = F.grad(lambda a: (a * p).pow(2).sum())(x)
    g.sum().backward()
    (g, p.grad)
    """,
    """
    g = F.grad(total)(p)
    g.sum().backward()
    (g, p.grad)
    """,
    """
    out, pull = F.vjp(two, x, w)
    (out, pull((t.ones(2, dtype=t.float64), x)))
    """,
    """
    with t.inference_mode():
        a, b = x * 2, t.ones(3, dtype=t.float64)
        found = [F.grad(lambda a: (a * a * b).sum())(a), F.vjp(f, a)[1](b)[0], F.jacrev(f)(a), F.hessian(total)(a)]
        found += [F.jvp(f, (a,), (b,))[1], F.jacfwd(f)(a), F.grad(lambda a: F.grad(total)(a).sum())(a)]
        found.append(F.vmap(F.grad(total))(w))
    [(one, one.is_inference()) for one in found]
    """,
    "F.jvp(f, (x,), (x * 2,))",
    "F.jvp(two, (x, w), (x, w))",
    "F.jacrev(f)(x)",
    "F.jacfwd(two, argnums=(0, 1))(x, w)",
    "F.hessian(total)(x)",
    "F.vmap(lambda row: (row * x).sum())(w)",
    "F.vmap(lambda a, b: (a * b, a.sum()), in_dims=(1, None), out_dims=(1, 0))(w, x[:2])",
    "F.vmap(F.grad(total))(w)",
    "F.vmap(F.vmap(lambda a, b: a * b))(w, w)",
    "F.vmap(lambda d: d['a'] + 1)({'a': w})",
    "F.vmap(lambda a, k: a * k)(w, k=w)",
    "F.vmap(lambda a: a)(t.ones(0, 2))",
    "tuple(F.vmap(lambda a: (a, [a.sum()]), out_dims=(1, 0))(t.ones(0, 2))[0].shape)",
    "F.vmap(lambda a: 3)(w)",
    "F.vmap(lambda a: a)(3)",
    "F.vmap(lambda: w)()",
    "F.vmap(lambda a: a, in_dims='x')(w)",
    "F.vmap(lambda a: (a, a), out_dims=(0,))(w)",
    "F.vmap(lambda a: a, chunk_size=0)(w)",
    "F.vmap(lambda a: a * 2, chunk_size=1)(w)",
    "F.vmap(lambda a: a + t.rand(3))(w)",
    "F.vmap(lambda a: a.clone().normal_())(w)",
    "F.vmap(lambda a: t.nn.functional.dropout(a, 0.5))(w)",
    "F.vmap(lambda a: t.nn.functional.dropout(a, 0.5, training=False))(w)",
    "F.vmap(lambda a: t.nn.functional.scaled_dot_product_attention(a, a, a))(t.ones(2, 3, 4))",
    """
    rows = [F.vmap(lambda a: t.rand(40), randomness=r)(w) for r in ("same", "different", "same")]
    [t.equal(r[0], r[1]) for r in rows] + [t.equal(rows[0], rows[2])]
    """,
    """
    with t.no_grad():
        batch = w.clone()
        F.vmap(lambda a: a.mul_(2).sum())(batch)
    batch
    """,
    "F.vmap(lambda a: a, in_dims=3)(w)",
    "F.vmap(lambda a, b: a)(w, x)",
    "F.jacrev(F.jacrev(f))(x)",
    "F.grad(lambda a: Cube.apply(a).sum())(x)",
    "F.jacrev(Cube.apply)(x)",
    "t.autograd.gradcheck(f, (p,))",
    "t.autograd.gradcheck(two, (p, w))",
    "t.autograd.gradcheck(Cube.apply, (p,))",
    "t.autograd.gradgradcheck(Cube.apply, (p,))",
    "t.autograd.gradgradcheck(f, (p,))",
    "t.autograd.gradgradcheck(lambda a, b, c: (a * c).sin(), [p.detach().clone().requires_grad_() for _ in 'abc'])",
    "t.autograd.gradgradcheck(lambda a, b: (a * a, a.detach(), b * 2), (p, p.detach().clone().requires_grad_()))",
    "t.autograd.gradgradcheck(Constant.apply, (p,), raise_exception=False)",
    "t.autograd.gradcheck(Wrong.apply, (p,))",
    "t.autograd.gradcheck(Wrong.apply, (p,), raise_exception=False)",
    "t.autograd.gradcheck(f, (x,))",
    """
    net = t.nn.Linear(3, 2).double()
    inputs = (p.detach().reshape(1, -1)[:, :3].requires_grad_(), *net.parameters())
    run = lambda a, *rest: net(a).tanh()
    (t.autograd.gradcheck(run, inputs), t.autograd.gradgradcheck(run, inputs))
    """,
    "t.autograd.gradcheck(lambda a: a * 2, (t.empty(0, 3, dtype=t.float64, requires_grad=True),))",
    """
    z = t.complex(p.detach(), p.detach() * 2).requires_grad_()
    t.autograd.gradcheck(lambda a: (a * a).abs() + (a * a).real, (z,))
    """,
    """
    z = t.complex(p.detach(), p.detach() * 2).requires_grad_()
    t.autograd.gradcheck(lambda a: a * a.conj() * a, (z,))
    """,
    """
    nets = [t.nn.Linear(3, 2).double() for _ in range(2)]
    for n, net in enumerate(nets):
        with t.no_grad():
            net.weight.copy_(w + n)
            net.bias.fill_(n)
    params, buffers = F.stack_module_state(nets)
    out = F.vmap(lambda ps, a: F.functional_call(nets[0], ps, (a,)), in_dims=(0, None))(params, w)
    per_sample = F.vmap(F.grad(lambda ps, a: F.functional_call(nets[0], ps, (a,)).sum()), in_dims=(None, 0))(
        dict(nets[1].named_parameters()), w)
    (params["weight"], out.detach(), {k: v.detach() for k, v in per_sample.items()}["weight"])
    """,
    "F.jvp(lambda a: a.clone().unsqueeze_(0) * a, (p.detach(),), (p.detach(),))",
    "F.jacfwd(lambda a: a.clone().unsqueeze_(0).transpose_(0, 1) * 2)(p.detach())",
    "F.grad(lambda a: (a.clone().unsqueeze_(0) * a).sum())(p.detach())",
    "F.grad(lambda a: a.sum())(t.complex(p.detach(), p.detach()))",
    "F.jacrev(lambda a: a.real)(t.complex(p.detach(), p.detach()))",
    "F.jacrev(lambda a: t.complex(a, a))(p.detach())",
    "F.jacfwd(lambda a: a.real)(t.complex(p.detach(), p.detach()))",
    "F.jacfwd(lambda a: t.complex(a, a))(p.detach())",
    "F.jacfwd(lambda a: a.float() ** 2)(t.arange(3))",
    "F.jvp(lambda a: a * 2, (t.arange(3),), (t.arange(3),))",
    "F.jvp(lambda a: a * 2, (t.ones(3),), (t.arange(3),))",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_derivatives_of_functions_are_pytorchs(tg: Any, program: str) -> None:
    lines = "\n".join(line[4:] if line.startswith("    ") else line for line in program.strip("\n").splitlines())
    ours, theirs = evaluate(PROLOGUE + lines, tg)
    assert_same(_dense(ours), _dense(theirs))


def test_differences_of_gradients_wait_for_no_graph(tg: Any) -> None:
    x = tg.rand(24, dtype=tg.float64, requires_grad=True)
    before = tg.wire_stats().round_trips
    assert tg.autograd.gradgradcheck(lambda a: (a.sin() * a).sum(), (x,), check_undefined_grad=False)
    by_rows = 2 * x.numel()  # each row of the Jacobian is computed twice
    assert tg.wire_stats().round_trips - before <= by_rows + 18


def _dense(value: Any) -> Any:
    """Return results with their tensors row-major: how a Jacobian lies in memory is nobody's promise."""
    if isinstance(value, dict):
        return [_dense(item) for item in value.values()]
    if isinstance(value, (tuple, list)):
        return [_dense(item) for item in value]
    return value.detach().contiguous().clone() if hasattr(value, "contiguous") else value
