"""Dual numbers and what is built on them: the same programs under telegrad and PyTorch."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from telegrad.autograd import forward_ad

from .twins import assert_same, evaluate

PROLOGUE = """
from importlib import import_module
A = import_module(t.__name__ + ".autograd.functional")
F = import_module(t.__name__ + ".func")
fw = import_module(t.__name__ + ".autograd.forward_ad")
C = import_module(t.__name__ + ".utils.checkpoint")
x = t.tensor([0.5, -1.0, 2.0], dtype=t.float64)
v = t.tensor([1.0, 2.0, -1.0], dtype=t.float64)
w = t.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]], dtype=t.float64)
p = t.tensor([2.0, 1.0, -1.0], dtype=t.float64, requires_grad=True)
def f(a):
    return (a ** 3).sin()
def total(a):
    return (a ** 3 * x).sum() + a.prod()
def two(a, b):
    return b @ a, (a * 2).exp()
def written(a):
    out = t.zeros(4, dtype=t.float64)
    view = out[1:]
    out[1:] = a * 2
    out[0] = a.sum()
    out.mul_(out.clone())
    return out, view * 1
def unrecorded(a):
    with t.no_grad():
        b = t.cat([a ** 2, x])
    return b[:3] + a
class Square(t.autograd.Function):
    @staticmethod
    def forward(a, power):
        return a ** power, power
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])
    @staticmethod
    def backward(ctx, grad, _):
        a, = ctx.saved_tensors
        return 2 * a * grad, None
    @staticmethod
    def jvp(ctx, tangent, _):
        a, = ctx.saved_tensors
        return 2 * a * tangent, None
class Wrong(Square):
    @staticmethod
    def jvp(ctx, tangent, _):
        return tangent * 3, None
class Tripled(t.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.mark_dirty(a)
        return a.mul_(3)
    @staticmethod
    def jvp(ctx, tangent):
        return tangent.mul_(3)
class Marked(t.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        b = a.clone()
        ctx.mark_non_differentiable(b)
        return a * 2, b
    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 2, tangent
class Worded(t.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * 2
    @staticmethod
    def jvp(ctx, tangent):
        return "a word"
class Forwards(t.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_forward(a, b)
        return a.exp() * b
    @staticmethod
    def jvp(ctx, tangent, other):
        a, b = ctx.saved_tensors
        return tangent * a.exp() * b
class Backwards(t.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 2
def square(a):
    return Square.apply(a, 2)[0]
def parts(a):
    return list(fw.unpack_dual(a))
def inside(run, primal=x, tangent=v):
    with fw.dual_level():
        return run(fw.make_dual(primal, tangent))
"""

PROGRAMS = [
    "F.jvp(lambda a: t.linalg.vector_norm(a, 3.5), (x * 0,), (v,))[1]",
    "F.jvp(lambda a: t.nn.functional.embedding(t.tensor([1, 0, 1]), a, padding_idx=1), (w,), (w * 2,))[1]",
    "F.jvp(f, (x,), (v,))",
    "F.jvp(two, (x, w), (v, w))",
    "F.jvp(lambda a: (f(a), a * 2), (x,), (v,), has_aux=True)",
    "F.jvp(f, (x,), (v,), has_aux=True)",
    "F.jvp(lambda a: x, (x,), (v,))",
    "F.jvp(lambda a: x, (x,), (v,), strict=True)",
    "F.jvp(f, x, v)",
    "F.jvp(f, (x,), (w,))",
    "F.jvp(lambda d: d['a'] * d['b'][0], ({'a': x, 'b': [v]},), ({'a': v, 'b': [x]},))",
    "F.jvp(lambda a: F.jvp(f, (a,), (v,))[1], (x,), (v,))",
    "F.jvp(F.grad(total), (x,), (v,))",
    "F.grad(lambda a: F.jvp(f, (a,), (v,))[1].sum())(x)",
    "F.jvp(written, (x,), (v,))",
    "F.jvp(unrecorded, (x,), (v,))",
    "F.jvp(square, (x,), (v,))",
    "F.jvp(lambda a: a * t.tensor(2.0, requires_grad=True), (x,), (v,))",
    "F.jvp(lambda a: C.checkpoint(f, a, use_reentrant=False), (x,), (v,))",
    """
    y, tangent = F.jvp(lambda a: a ** 2 * p, (x,), (v,))
    tangent.sum().backward()
    (y, tangent, p.grad)
    """,
    """
    y, tangent = F.jvp(f, (p,), (v,))
    tangent.sum().backward()
    (y.detach(), tangent.detach(), p.grad)
    """,
    """
    with t.no_grad():
        results = F.jvp(f, (x,), (v,)), F.jacfwd(f)(x)
    results
    """,
    """
    net = t.nn.Linear(3, 2).double()
    state = {name: t.ones_like(value.detach()) for name, value in net.named_parameters()}
    F.jvp(lambda s: F.functional_call(net, s, (x,)), (state,), (state,))
    """,
    "[[block.tolist() for block in row] for row in F.jacfwd(two, argnums=(0, 1))(x, w)]",
    "F.jacfwd(lambda a: (f(a), a), has_aux=True)(x)",
    "F.jacfwd(f, has_aux=True)(x)",
    "F.jacfwd(unrecorded)(x)",
    "F.jacfwd(F.jacfwd(total))(x)",
    "F.jacrev(F.jacfwd(total))(x)",
    "F.jacfwd(F.jacrev(F.jacfwd(total)))(x).tolist()",
    "F.hessian(total)(x)",
    "[[block.tolist() for block in row] for row in F.hessian(lambda a, b: (b @ a).prod(), argnums=(0, 1))(x, w)]",
    "F.grad(lambda a: F.hessian(total)(a).sum())(x)",
    "F.vmap(F.jacfwd(f))(w).tolist()",
    "F.vmap(F.hessian(lambda a: (a ** 3).sum()))(w).tolist()",
    "[F.linearize(f, x)[0], F.linearize(f, x)[1](v), F.linearize(F.grad(total), x)[1](v)]",
    "F.linearize(two, x, w)[1](v, w)",
    "A.jacobian(f, x, strategy='forward-mode', vectorize=True)",
    "inside(parts)",
    "inside(lambda d: [parts(d * 2 + d.exp()), d.requires_grad, d.is_leaf, d.grad_fn])",
    "inside(lambda d: parts(unrecorded(d)))",
    "inside(lambda d: [parts(part) for part in written(d)])",
    "inside(lambda d: parts(t.stack([d, x]).sort().values))",
    "inside(lambda d: [parts(d.detach()), parts(d.data), parts(d.argmax()), d.tolist()])",
    "inside(lambda d: [parts(y) for y in (d.clone().mul_(2), (d * 1).fill_(2), x.clone().copy_(d), d[d > 0])])",
    "inside(lambda d: parts(square(d)))",
    "inside(lambda d: (Tripled.apply(d), *parts(d)), x.clone())",
    "inside(lambda d: parts(t.linalg.inv(d[:2, :2])), w, w)",
    "inside(lambda d: parts(t.fft.fft(d)))",
    "inside(lambda d: t.autograd.grad(fw.unpack_dual(d * p).tangent.sum(), p))",
    "inside(lambda d: parts(t.autograd.grad((d ** 3).sum(), d)[0]), p)",
    "inside(lambda d: [(d ** 2).sum().backward(), p.grad], p)",
    "inside(lambda d: Backwards.apply(d))",
    "inside(lambda d: fw.unpack_dual(fw.unpack_dual(d * d).primal * 2).tangent is None, p)",
    "inside(lambda d: fw.unpack_dual(fw.unpack_dual(d ** 3).tangent * d).tangent.detach(), p)",
    "inside(lambda d: t.autograd.grad(fw.unpack_dual(fw.unpack_dual(d ** 3).tangent * d).tangent.sum(), p), p)",
    "inside(lambda d: fw.unpack_dual(fw.unpack_dual(d).primal * d ** 2).tangent.detach(), p)",
    "inside(lambda d: t.autograd.grad((fw.unpack_dual(d ** 3).primal * x).sum(), p)[0], p)",
    "inside(lambda d: fw.unpack_dual(t.autograd.grad(fw.unpack_dual(d ** 3).primal.sum(), p)[0]), p)",
    "inside(lambda d: t.autograd.grad(fw.unpack_dual(fw.unpack_dual(d).primal * d ** 2).tangent.sum(), p)[0], p)",
    "[a.detach() for a in inside(lambda d: parts(Forwards.apply(d, x)), p)]",
    "inside(lambda d: t.autograd.grad(fw.unpack_dual(Forwards.apply(d, p)).tangent.sum(), p))",
    "inside(lambda d: Forwards.apply(d, x).requires_grad, p)",
    "inside(lambda d: Forwards.apply(d, x).sum().backward(), p)",
    "inside(lambda d: t.add(d, 1, out=t.zeros(3, dtype=t.float64)))",
    "inside(lambda d: d.sum().backward())",
    "inside(lambda d: fw.make_dual(d, v))",
    "inside(lambda d: fw.enter_dual_level())",
    "inside(lambda d: d, x, w)",
    "inside(lambda d: d, x.long(), v)",
    "parts(inside(lambda d: d * 2))",
    "inside(lambda d: d * 2) * 3",
    "inside(lambda d: repr(d.float()[:2]).replace(t.__name__, 't'))",
    "fw.make_dual(x, v)",
    "fw.exit_dual_level()",
    "t.func.jvp(Marked.apply, (p.detach(),), (p.detach(),))",
    "t.func.jvp(Worded.apply, (p.detach(),), (p.detach(),))",
    "t.autograd.gradcheck(f, (p,), check_forward_ad=True)",
    "t.autograd.gradcheck(lambda a, b: list(two(a, b)), (p, w), check_forward_ad=True, check_backward_ad=False)",
    "t.autograd.gradcheck(square, (p,), check_forward_ad=True)",
    "t.autograd.gradcheck(lambda a: Wrong.apply(a, 2)[0], (p,), check_forward_ad=True)",
    "t.autograd.gradcheck(lambda a: Wrong.apply(a, 2)[0], (p,), check_forward_ad=True, raise_exception=False)",
    "t.autograd.gradgradcheck(square, (p,), check_fwd_over_rev=True)",
    """
    z = t.complex(p.detach(), p.detach() * 2).requires_grad_()
    t.autograd.gradcheck(lambda a: (a * a).abs() + (a * a.conj() * a).real, (z,), check_forward_ad=True)
    """,
]


def test_programs_give_what_pytorch_gives(tg: Any) -> None:
    failures = []
    for program in PROGRAMS:
        try:
            assert_same(*evaluate(f"{PROLOGUE}\n{dedent(program).strip()}", tg))
        except AssertionError as error:
            failures.append(f"{program}\n{error}")
    assert not failures, "\n\n".join(failures)


def test_tangents_of_functions_without_backward_refuse_gradients(tg: Any) -> None:
    class Exponential(tg.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.result = a.exp()
            return ctx.result

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            return tangent * ctx.result

    x = tg.ones(2, requires_grad=True)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(Exponential.apply(forward_ad.make_dual(x, tg.ones(2)))).tangent
    with pytest.raises(RuntimeError, match="define backward"):
        tangent.sum().backward()


def test_tangents_cost_no_round_trip(tg: Any, seed: int) -> None:
    x = tg.tensor(np.random.default_rng(seed).standard_normal(5))
    before = tg.wire_stats().round_trips
    y, tangent = tg.func.jvp(lambda a: (a * 2).softmax(0).log(), (x,), (x,))
    assert tangent.shape == y.shape
    assert tg.wire_stats().round_trips == before


@pytest.mark.gpu
def test_tangents_on_a_gpu(cuda_tg: Any, seed: int) -> None:
    tg = cuda_tg
    rng = np.random.default_rng(seed)
    x, v = rng.standard_normal((2, 4, 4))
    run = lambda device: tg.func.jvp(
        lambda a: (a @ a).softmax(-1).cumsum(0), (tg.tensor(x, device=device),), (tg.tensor(v, device=device),)
    )
    for ours, theirs in zip(run("cuda"), run("cpu"), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-8)
