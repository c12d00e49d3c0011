"""``vmap`` and what is under it and over it: the same programs under telegrad and PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import telegrad
from telegrad._batching import fallback

from .twins import assert_same, evaluate

PROLOGUE = """
from importlib import import_module
F = import_module(t.__name__ + ".func")
A = import_module(t.__name__ + ".autograd.functional")
nn, fun = t.nn, t.nn.functional
vmap, grad, jacrev, jacfwd, hessian, vjp, jvp = F.vmap, F.grad, F.jacrev, F.jacfwd, F.hessian, F.vjp, F.jvp
def numbers(*shape, step=0.37):
    size = 1
    for length in shape: size *= length
    return t.sin(t.arange(size, dtype=t.float64) * step * 2.1 + 0.3).reshape(shape)
x, w, m = numbers(5, 3), numbers(3, 4), numbers(5, 3, 4, step=0.51)
def attempt(run):
    try: return run()
    except Exception as error: return type(error).__mro__[-3].__name__, str(error)[:40]
def net():
    made = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 2)).double()
    with t.no_grad():
        for n, parameter in enumerate(made.parameters()): parameter.copy_(numbers(*parameter.shape, step=0.2 + n))
    return made
class Cube(t.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x, k): return x ** 3 * k
    @staticmethod
    def setup_context(ctx, inputs, output): ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g):
        x, k = ctx.saved_tensors
        return 3 * x ** 2 * g * k, x ** 3 * g
class Scale(t.autograd.Function):
    @staticmethod
    def forward(x, k): return x * k, (x * 0).sum()
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1]
        ctx.mark_non_differentiable(output[1])
    @staticmethod
    def backward(ctx, g, _): return g * ctx.k, None
    @staticmethod
    def vmap(info, in_dims, x, k):
        assert info.batch_size == 5 and in_dims[1] is None
        x = x.movedim(in_dims[0], 0)
        return Scale.apply(x, k) if False else (x * k, x[:, 0] * 0), (0, 0)
"""

PROGRAMS = [
    # levels, dimensions, structures
    "vmap(vmap(lambda a, b: a * b + a.sum(), (0, None)), (0, 0))(m, m[:, 0])",
    "vmap(vmap(t.dot, (None, 1)), (0, None))(x, w), vmap(t.mv)(m.mT, x)",
    "vmap(lambda a, b: (a @ b, {'k': [a, b]}), (0, None), (1, {'k': [0, 0]}))(x, w)",
    "vmap(lambda d, n: d['a'].sum() * n + d['b'][1], ({'a': 1, 'b': (None, 0)}, None))({'a': m, 'b': (x, x[:3])}, 2)",
    "vmap(lambda a: a.movedim(0, 1).reshape(-1)[2:9:3], in_dims=-1, out_dims=1)(m)",
    "vmap(lambda a: a * 2, chunk_size=2)(x), vmap(lambda a, b: (a @ b, a), (0, None), (1, 0), chunk_size=3)(x, w)",
    "vmap(lambda a: (a, w), out_dims=(0, None))(x), vmap(lambda a: w)(x)",
    "[attempt(lambda f=f: vmap(f)(x)) for f in (lambda a: a.sum().item(), lambda a: a if a[0] > 0 else -a, "
    "lambda a: a.sum().backward(), lambda a: (a, 3), lambda a: t.rand(3))]",
    "[attempt(run)[0] for run in (lambda: vmap(lambda a: a, in_dims=4)(x), lambda: vmap(lambda a: a, (0, 0))(x), "
    "lambda: vmap(lambda a: a, out_dims=None)(x), lambda: vmap(lambda a: a)(2), lambda: vmap(lambda a, b: a)(x, w))]",
    "[attempt(lambda f=f: vmap(f)(x))[0] for f in (t.nonzero, lambda a: a[a > 0], lambda a: x[0].clone().add_(a))]",
    # operations
    "vmap(lambda a: (a.softmax(-1), a.logsumexp(0), a.cumsum(0), a.sort(0)[1], a.topk(2)[0], a.std(), a.max(0)))(m)",
    "vmap(lambda a: (a[1], a[..., 1:], a[[0, 2]], a[:, [1, 1, 0]], a[t.tensor([0, 1]), t.tensor([2, 3])]))(m)",
    "vmap(lambda a, i: (a[i], a[:, i], a[i, i], a.index_select(1, i), a.gather(1, i[None])))"
    "(m, t.tensor([[0, 2]] * 5))",
    "vmap(lambda i: (m[i], m[:, i], m[0, i, i]))(t.tensor([[0, 1], [2, 0], [1, 1]]))",
    """
    def write(a, i):
        a = a.clone()
        a[0] = 1
        a[:, 1] += 2
        a[i] = a[i] * 3
        a.index_add_(0, i, a[:2] * 0.5)
        a.scatter_(1, i[None], 7.0)
        return a.clamp_(-1, 5).mul_(a[0].clone())
    vmap(write)(m, t.tensor([[0, 1], [2, 0], [1, 2], [0, 2], [1, 0]]))
    """,
    """
    def write(a):
        out = a.new_zeros(4)
        for n in range(3): out[n] = a[n] * n
        return out
    batch = x.clone()
    result = vmap(lambda a: a.mul_(2).sum())(batch)
    (vmap(write)(x), batch, result)
    """,
    "vmap(lambda a: (t.where(a > 0, a, -a), a.masked_fill(a > 0, 0.5), t.cat([a, a[:1]]), t.stack([a, a], 1)))(m)",
    "vmap(lambda a: (t.einsum('ij,ik->jk', a, a), t.tensordot(a, w, ([1], [1])), t.outer(a[0], a[1]), t.kron(a, a)))"
    "(m)",
    "vmap(lambda a: (t.linalg.det(a @ a.T), t.linalg.solve(a @ a.T + 2 * t.eye(3), a[:, 0]), t.linalg.svd(a)[1]))(m)",
    "vmap(lambda k, b: fun.conv2d(numbers(2, 3, 7, 7), k, b, padding=1))(numbers(5, 4, 3, 3, 3), numbers(5, 4))",
    "vmap(lambda a, k: fun.conv1d(a, k, groups=2, stride=2), (0, None))(numbers(5, 2, 4, 9), numbers(6, 2, 3))",
    "vmap(lambda a, k: fun.conv_transpose2d(a, k, stride=2))(numbers(5, 1, 2, 4, 4), numbers(5, 2, 3, 3, 3))",
    "vmap(lambda a, g: (fun.layer_norm(a, (4,), g), fun.group_norm(a[None], 3), fun.normalize(a)))(m, numbers(5, 4))",
    "vmap(lambda a: fun.batch_norm(a, None, None, training=True))(numbers(5, 3, 4))",
    "vmap(lambda i, e: (fun.embedding(i, e), fun.one_hot(i, 6)))(t.tensor([[0, 5]] * 5), numbers(5, 6, 3))",
    "vmap(lambda a, y: (fun.cross_entropy(a, y), fun.nll_loss(a[None], y[None], reduction='sum'), "
    "fun.mse_loss(a, a * 2)))(x, t.tensor([0, 2, 1, 1, 0]))",
    "vmap(lambda a: fun.scaled_dot_product_attention(a, a, a, is_causal=True))(numbers(5, 2, 2, 3, 4))",
    "vmap(lambda a: (fun.max_pool2d(a, 2), fun.adaptive_avg_pool2d(a, 1), fun.pad(a, (1, 1)), fun.unfold(a, 2)))"
    "(numbers(5, 2, 4, 4))",
    "vmap(lambda a: (t.fft.fft(a), t.fft.fftn(a), a.to(t.float32), a.long(), a.view(t.int64), t.zeros_like(a) + 1))(m)",
    "vmap(lambda a: a * t.tensor(2.0) + t.ones(()) * a.sum() + a.to(t.float32).sum())(x)",
    "vmap(lambda a: t.tensor(3) * a.float() + t.arange(3))(x), vmap(lambda a, b: a * b)(x[:, 0].float(), x)",
    "vmap(lambda a: (a.clone().t_(), a.clone().unsqueeze_(0), a.clone().transpose_(0, 1).mul_(2)))(m)",
    "vmap(lambda a: vmap(lambda b: b.unsqueeze_(0))(a))(m.clone())",
    "vmap(t.func.grad(lambda a: (a.clone().t_() * a.T.sin()).sum()))(m)",
    # random numbers
    """
    def drawn(randomness, f): return vmap(f, randomness=randomness)(t.ones(6, 40))
    fs = (lambda a: t.rand(40), lambda a: t.randn_like(a), lambda a: fun.dropout(a, 0.5), lambda a: t.randperm(40),
          lambda a: a.clone().normal_(), lambda a: t.randint(0, 99, (40,)))
    same = [[bool((r[0] == r[1]).all()) for r in (drawn("same", f), drawn("different", f))] for f in fs]
    (same, [attempt(lambda f=f: drawn("error", f))[0] for f in fs])
    """,
    # derivatives in it and around it
    "vmap(grad(lambda a: (a ** 3 * w[:, 0]).sum()))(x), vmap(hessian(lambda a: a.prod() ** 2))(x)",
    "vmap(grad(lambda w, a: (a @ w).tanh().sum()), (None, 0))(w, x)",
    "jacrev(lambda a: vmap(lambda r: (r @ w).sin())(a))(x[:2]), jacfwd(lambda a: vmap(t.dot, (0, None))(x, a))(x[0])",
    "jacrev(jacrev(lambda a: (a @ w).sin()))(x[0]), jacfwd(jacrev(lambda a: (a @ w).sin()))(x[0])",
    "vmap(jacrev(lambda a: (a @ w).exp()), chunk_size=2)(x), jacrev(lambda a: (a @ w).exp(), chunk_size=3)(x[0])",
    """
    out, pull = vjp(lambda a: (a @ w).exp(), x[0])
    (vmap(pull)(t.eye(4, dtype=t.float64)), vmap(lambda v: jvp(lambda a: a.sin() @ w, (x[0],), (v,))[1])(x))
    """,
    "vmap(lambda a, v: vjp(lambda b: b ** 2 * v, a)[1](v)[0])(x, x * 2), vmap(vmap(grad(t.sin)))(x)",
    "vmap(lambda a: jvp(grad(lambda b: (b ** 3).sum()), (a,), (a,))[1])(x)",
    """
    p = x.clone().requires_grad_()
    loss = vmap(grad(lambda a: (a ** 3).sum() * a[0]))(p).pow(2).sum()
    t.autograd.grad(loss, p, create_graph=True)
    """,
    """
    p = x[0].clone().requires_grad_()
    y = (p @ w).exp()
    rows = vmap(lambda v: t.autograd.grad(y, p, v, retain_graph=True)[0])(t.eye(4, dtype=t.float64))
    (rows, t.autograd.grad(y, p, t.eye(4, dtype=t.float64), is_grads_batched=True))
    """,
    "[A.jacobian(lambda a: (a * 2).exp() * a[0], x[0], vectorize=v, strategy=s) for v, s in ((False, 'reverse-mode'), "
    "(True, 'reverse-mode'), (True, 'forward-mode'))], A.hessian(lambda a: a.prod(), x[0], vectorize=True)",
    # functions of the program
    "vmap(Cube.apply, (0, None))(x, x[0]), vmap(grad(lambda a, k: Cube.apply(a, k).sum(), (0, 1)), (0, None))(x, x[0])",
    "vmap(jacrev(Cube.apply), (0, None))(x, x[0]), jacrev(lambda a: vmap(Cube.apply, (0, None))(a, x[0]).sum(0))(x)",
    "vmap(lambda a: Scale.apply(a, 3.0)[0])(x), vmap(grad(lambda a: Scale.apply(a, 3.0)[0].pow(2).sum()))(x)",
    "vmap(grad(lambda a, b: Cube.apply(a, b).sum()), (0, None))(x[:, 0], x)",
    """
    class Power(t.autograd.Function):
        generate_vmap_rule = True
        @staticmethod
        def forward(a, n=3): return a ** n
        @staticmethod
        def setup_context(ctx, inputs, output):
            a, ctx.n = inputs
            ctx.save_for_backward(a)
        @staticmethod
        def backward(ctx, g):
            a, = ctx.saved_tensors
            return ctx.n * a ** (ctx.n - 1) * g, None
    p = x.clone().requires_grad_()
    (t.autograd.grad((Power.apply(p) + Power.apply(p, n=2)).sum(), p), vmap(Power.apply)(x))
    """,
    "vmap(grad(lambda a, b: Cube.apply(a, b).sum(), (0, 1)), (None, 0))(x, numbers(2, 3, step=0.7))",
    """
    k = x[0].clone().requires_grad_()
    vmap(Cube.apply, (0, None))(x, k).sum().backward()
    k.grad
    """,
    # the tutorials' programs
    """
    model, a, y = net(), numbers(6, 4), t.tensor([0, 1, 1, 0, 1, 0])
    params = {k: v.detach() for k, v in model.named_parameters()}
    def loss(params, buffers, sample, target):
        out = F.functional_call(model, (params, buffers), (sample.unsqueeze(0),))
        return fun.cross_entropy(out, target.unsqueeze(0))
    grads = vmap(grad(loss), (None, None, 0, 0))(params, {}, a, y)
    single = [grad(loss)(params, {}, a[n], y[n]) for n in range(6)]
    [(grads[k], (grads[k] - t.stack([s[k] for s in single])).abs().max() < 1e-12) for k in grads]
    """,
    """
    models = [net() for _ in range(3)]
    with t.no_grad():
        for n, one in enumerate(models): one[0].weight.mul_(n + 1)
    params, buffers = F.stack_module_state(models)
    call = lambda p, b, a: F.functional_call(models[0], (p, b), (a,))
    data = numbers(3, 5, 4)
    (vmap(call)(params, buffers, data), vmap(call, (0, 0, None))(params, buffers, data[0]))
    """,
    """
    model, one, two = net(), numbers(3, 4), numbers(2, 4, step=0.9)
    params = {k: v.detach() for k, v in model.named_parameters()}
    f = lambda p, a: F.functional_call(model, p, (a.unsqueeze(0),)).squeeze(0)
    def kernel(first, second):
        left = [j.flatten(2) for j in vmap(jacrev(f), (None, 0))(params, first).values()]
        right = [j.flatten(2) for j in vmap(jacrev(f), (None, 0))(params, second).values()]
        return sum([t.einsum('Naf,Mbf->NMab', a, b) for a, b in zip(left, right)])
    def products(first, second):
        def of(a, b):
            _, pull = vjp(lambda p: f(p, a), params)
            push = lambda v: jvp(lambda p: f(p, b), (params,), pull(v))[1]
            return vmap(push)(t.eye(2, dtype=t.float64))
        return vmap(vmap(of, (None, 0)), (0, None))(first, second)
    a, b = kernel(one, two), products(one, two)
    (a, b, bool(t.allclose(a, b)))
    """,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_vmap_gives_what_pytorchs_gives(tg: Any, program: str) -> None:
    lines = "\n".join(line.removeprefix("    ") for line in program.strip("\n").splitlines())
    ours, theirs = evaluate(PROLOGUE + lines, tg)
    assert_same(_dense(ours), _dense(theirs))


def _dense(value: Any) -> Any:
    """A value without the layout and history of its tensors, which differ."""
    if isinstance(value, dict):
        return [_dense(item) for item in value.values()]
    if isinstance(value, (tuple, list)):
        return [_dense(item) for item in value]
    return value.detach().contiguous() if hasattr(value, "detach") else value


def test_gradients_per_sample_are_one_pass(tg: Any) -> None:
    weights, samples = tg.randn(4, 3), tg.randn(64, 4)
    run = tg.func.vmap(tg.func.grad(lambda w, x: (x @ w).tanh().sum()), (None, 0))
    run(weights, samples)
    session = weights._session
    before, waited = session.operations, session.round_trips
    run(weights, samples)
    assert session.operations - before < 40  # and not 64 times what one gradient takes
    assert session.round_trips == waited


def test_operations_without_a_rule_are_looped_and_say_so_once(tg: Any) -> None:
    fallback._WARNED.clear()
    x, mask = tg.arange(6.0).reshape(2, 3), tg.tensor([[True, False, True], [False, True, True]])
    with pytest.warns(UserWarning, match="performance drop.*masked_scatter"):
        result = tg.func.vmap(lambda a, m: a.masked_scatter(m, a * 10))(x, mask)
    assert result.tolist() == [[0, 1, 10], [3, 30, 40]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tg.func.vmap(lambda a, m: a.masked_scatter(m, a * 10))(x, mask)


LAYERS = {
    "linear": "lambda p: fun.linear(x, p[:3].mT, p[3])",
    "linear without input": "lambda p: fun.linear(p, x[:2, :3].mT.expand(3, 2).mT.repeat(2, 2)[:, :4])",
    "layer_norm": "lambda p: fun.layer_norm(p * x[:4, :1], (4,), p[0], p[1])",
    "layer_norm of shared weight": "lambda p: fun.layer_norm(p, (4, 4), numbers(4, 4), None)",
    "rms_norm": "lambda p: fun.rms_norm(p * x[:4, :1], (4,), p[0])",
    "attention": "lambda p: fun.scaled_dot_product_attention(p[None, None], 2 * p[None, None], p[None, None] + 1)",
    "attention with a mask": "lambda p: fun.scaled_dot_product_attention(*[p[None, None]] * 3, attn_mask=p.detach())",
    "avg_pool": "lambda p: fun.avg_pool2d(p[None, None], 2)",
    "avg_pool of one sample": "lambda p: fun.avg_pool1d(p, 2, 1)",
    "adaptive_avg_pool": "lambda p: fun.adaptive_avg_pool2d(p[None, None], (3, 2))",
    "max_pool": "lambda p: fun.max_pool2d(p[None, None], 2, 1)",
    "prod": "lambda p: p.prod(0)",
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=list(LAYERS))
def test_jacobians_of_layers_are_one_pass_for_all_rows(tg: Any, layer: str) -> None:
    # PyTorch's second derivatives by a weight and the input at once are others under vmap than without it
    again = "None" if "(4,), p[0]" in layer else "hessian(lambda p: f(p).square().sum())(p)"
    program = f"""
    kernels = import_module(t.__name__ + ".nn.attention")
    f, p = {layer}, numbers(4, 4, step=0.7)
    with kernels.sdpa_kernel(kernels.SDPBackend.MATH):
        made = [jacrev(f)(p), vmap(jacrev(f))(t.stack([p, p * 2])), {again}]
    made
    """
    fallback._WARNED.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lines = "\n".join(line.removeprefix("    ") for line in program.strip("\n").splitlines())
        ours, theirs = evaluate(PROLOGUE + lines, tg)
    assert_same(_dense(ours), _dense(theirs))
    assert not fallback._WARNED, "nothing is computed row by row"


def test_a_batched_tensor_shows_its_batch_and_ends_with_vmap(tg: Any) -> None:
    kept: list[telegrad.Tensor] = []

    def keep(row: telegrad.Tensor) -> telegrad.Tensor:
        kept.append(row)
        assert (tuple(row.shape), row.dim(), row.stride()) == ((2,), 1, (1,))
        return row * 2

    tg.func.vmap(keep)(tg.ones(3, 2))
    assert "BatchedTensor(lvl=1, bdim=0" in repr(kept[0])
    with pytest.raises(RuntimeError, match="vmap that has ended"):
        kept[0] + 1


def test_dimensions_of_a_dict_are_found_by_its_keys(tg: Any) -> None:
    """Where the keys of ``in_dims`` are in another order, PyTorch takes one for the other."""
    a, b = tg.arange(6.0).reshape(3, 2), tg.arange(2.0)

    def weighed(parts: Any) -> Any:
        return parts["a"].sum() * 10 + parts["b"].sum()

    for dims in ({"a": 0, "b": None}, {"b": None, "a": 0}):
        assert telegrad.vmap(weighed, in_dims=(dims,))({"a": a, "b": b}).tolist() == [11, 51, 91]
    for wrong in ({"a": 0}, {"a": 0, "c": None}, (0, None)):
        with pytest.raises(telegrad.errors.ArgumentError, match="does not have the structure"):
            telegrad.vmap(weighed, in_dims=(wrong,))({"a": a, "b": b})
