"""Leaves whose elements are replaced: graphs, hooks and optimizers that know them go on to."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

START = """
    def leaf(*values, **options):
        return t.tensor(values, requires_grad=True, **options)
"""

PROGRAMS = {
    "between the passes": """
    w = leaf(1.0, 2.0, 3.0)
    y = (w.exp() * w).sum()
    w.data = t.tensor([4.0, 5.0, 6.0])
    y.backward()
    (w, w.grad, w.is_leaf, w.requires_grad)
    """,
    "with a graph before and one after": """
    w, x = leaf(1.0, 2.0), leaf(3.0, 4.0)
    before = (w * x).sum()
    w.data = t.tensor([5.0, 6.0])
    (before + (w * x).sum()).backward()
    (w.grad, x.grad)
    """,
    "what a graph has saved of a leaf is what the leaf is": """
    w, x = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = (w * x).sum()
    w.data = t.tensor([10.0, 20.0])
    w.data = w.data + 1
    y.backward()
    (x.grad, w.grad)
    """,
    "what a graph has saved of a view is what that was": """
    m, x = t.nn.Linear(2, 2), leaf(3.0, 4.0)
    t.nn.init.ones_(m.weight)
    y = m(x.reshape(1, 2)).sum()
    m.weight.data = t.zeros(2, 2)
    y.backward()
    (x.grad, m.weight.grad)
    """,
    "by the functional interface": """
    w = leaf(1.0, 2.0)
    y = w.exp().sum()
    w.data = t.tensor([10.0, 20.0])
    t.autograd.grad(y, [w])
    """,
    "with graphs that are kept": """
    w = leaf(1.0, 2.0)
    y = (w ** 3).sum()
    y.backward(retain_graph=True)
    w.data = t.tensor([2.0, 2.0])
    y.backward(retain_graph=True)
    w.data = t.tensor([3.0, 3.0])
    y.backward()
    w.grad
    """,
    "with a graph of gradients": """
    w = leaf(1.0, 2.0)
    g, = t.autograd.grad((w ** 3).sum(), [w], create_graph=True)
    w.data = t.tensor([2.0, 2.0])
    g.sum().backward()
    (g.detach(), w.grad)
    """,
    "with hooks": """
    w, seen = leaf(1.0, 2.0), []
    w.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
    w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    (w * 3).sum().backward()
    w.data = t.tensor([7.0, 8.0])
    (w * w).sum().backward()
    y = (w * 5).sum()
    w.data = t.tensor([1.0, 1.0])
    y.backward()
    (seen, w.grad)
    """,
    "in a hook after accumulation": """
    w = leaf(1.0, 2.0)
    def step(p):
        p.data = p.data - 0.1 * p.grad
        p.grad = None
    w.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        (w * w).sum().backward()
    (w, w.grad)
    """,
    "in a hook of the gradient": """
    w = leaf(1.0, 2.0)
    def grow(g):
        w.data = w.data + 1
    w.register_hook(grow)
    for _ in range(3):
        (w * w).sum().backward()
    (w, w.grad)
    """,
    "with hooks of several leaves": """
    w, x, seen = leaf(1.0, 2.0), leaf(3.0, 4.0), []
    t.autograd.graph.register_multi_grad_hook([w, x], lambda gs: seen.append([g.tolist() for g in gs]))
    y = (w * x).sum()
    w.data = t.tensor([10.0, 20.0])
    y.backward()
    seen
    """,
    "of parameters that are shared": """
    w = t.nn.Parameter(t.tensor([1.0, 2.0]))
    a, b = t.nn.Module(), t.nn.Module()
    a.w = b.w = w
    y = (a.w * 2 + b.w * 3).sum()
    a.w.data = t.zeros(2)
    y.backward()
    (b.w, b.w.grad, a.w is b.w)
    """,
    "in half precision": """
    m = t.nn.Linear(2, 2, bias=False)
    t.nn.init.ones_(m.weight)
    y = m(t.ones(1, 2)).sum()
    m.half()
    y.backward()
    (m.weight.dtype, m.weight.grad)
    """,
    "in double precision, with hooks": """
    m, seen = t.nn.Linear(2, 1, bias=False), []
    t.nn.init.ones_(m.weight)
    m.weight.register_hook(lambda g: seen.append(str(g.dtype)))
    y = m(t.ones(1, 2)).sum()
    m.double()
    y.backward()
    m.weight.grad = None
    m(t.ones(1, 2, dtype=t.float64)).sum().backward()
    (seen, m.weight.grad)
    """,
    "of another shape and back": """
    w = leaf(1.0, 2.0)
    y = (w * 3).sum()
    full = w.data
    w.data = t.zeros(0)
    w.data = full
    y.backward()
    (w, w.grad)
    """,
    "of another shape": """
    w = leaf(1.0, 2.0)
    y = (w * 3).sum()
    w.data = t.zeros(3)
    y.backward()
    (w, w.grad)
    """,
    "of another shape than the gradient": """
    w = leaf(1.0, 2.0)
    (w * 3).sum().backward()
    w.data = t.zeros(3)
    (w, w.grad)
    """,
    "by vector_to_parameters": """
    m = t.nn.Linear(2, 2)
    for p in m.parameters():
        t.nn.init.ones_(p)
    y = (m(t.ones(1, 2)) ** 2).sum()
    vector = t.nn.utils.parameters_to_vector(m.parameters())
    t.nn.utils.vector_to_parameters(vector * 2, m.parameters())
    y.backward()
    m(t.ones(1, 2)).sum().backward()
    (m.weight, m.weight.grad, m.bias.grad)
    """,
    "by set_": """
    w = leaf(1.0, 2.0)
    y = (w * 3).sum()
    with t.no_grad():
        w.set_(t.tensor([5.0, 6.0]))
    y.backward()
    (w, w.grad)
    """,
    "as sharded parameters": """
    flat = t.nn.Parameter(t.arange(6.0))
    full, shard = flat.data, flat.data[:3].clone()
    flat.data = shard
    flat.data = full
    a, b = t.split(flat, [2, 4])
    x = t.tensor([[1.0, 2.0]], requires_grad=True)
    y = (x * a).sum() + (x @ b.view(2, 2)).sum()
    flat.data = shard
    flat.data = full
    y.backward()
    gradient, flat.data, flat.grad = flat.grad, shard, None
    flat.grad = gradient[:3].clone()
    t.optim.SGD([flat], lr=1.0).step()
    (gradient, x.grad, flat, flat.grad)
    """,
    "exchanged with averages and back": """
    w, average = t.nn.Parameter(t.tensor([1.0, 2.0])), t.tensor([9.0, 9.0])
    y = (w * w).sum()
    w.data, average = average, w.data
    z = (w * w).sum()
    w.data, average = average, w.data
    (y + z).backward()
    (w, average, w.grad)
    """,
    "as parts of one buffer": """
    flat, p = t.arange(4.0), t.nn.Parameter(t.zeros(2))
    p.data = flat[:2]
    y = (p * p).sum()
    p.data = flat[2:]
    y.backward()
    with t.no_grad():
        p.sub_(p.grad)
    (flat, p.grad)
    """,
    "in a checkpointed function": """
    w, x = leaf(1.0, 2.0), leaf(1.0, 1.0)
    y = t.utils.checkpoint.checkpoint(lambda z: (z * w).exp(), x, use_reentrant=False).sum()
    w.data = w.data * 2
    y.backward()
    (x.grad, w.grad)
    """,
    "of leaves that require no gradient meanwhile": """
    w = leaf(1.0, 2.0)
    y = (w * 3).sum()
    w.requires_grad_(False)
    w.data = t.zeros(2)
    w.requires_grad_(True)
    y.backward()
    w.grad
    """,
    "not of leaves that require no gradient any more": """
    w, x = leaf(1.0, 2.0), leaf(1.0, 2.0)
    y = (w * x).sum()
    w.requires_grad_(False)
    y.backward(retain_graph=True)
    seen = w.grad
    w.requires_grad_(True)
    y.backward()
    (seen, w.grad, x.grad)
    """,
    "of complex leaves": """
    w = t.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    y = (w * w.conj()).real.sum()
    w.data = t.tensor([1j, 1j])
    y.backward()
    (w, w.grad)
    """,
    "by what it is already": """
    w = leaf(1.0, 2.0)
    y, data = (w * 3).sum(), w.data
    w.data -= 0.5
    w.data += w.data
    y.backward()
    (w, data, w.grad)
    """,
    "by what was taken of others since": """
    w, x = leaf(1.0, 2.0), leaf(3.0, 4.0)
    a, b = w.data, x.data
    w.data = b
    x.data = a
    w.data += 1
    (w, x, a, b)
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_replaced_leaves_are_pytorchs(tg: Any, name: str) -> None:
    assert_same(*evaluate(START + PROGRAMS[name], tg))
