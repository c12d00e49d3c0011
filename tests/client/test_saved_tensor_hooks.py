"""``saved_tensors_hooks`` on what built-in operations save, under telegrad and under PyTorch."""

from __future__ import annotations

import gc
import textwrap
from typing import Any

import numpy as np
import pytest

import telegrad

from .twins import assert_same, evaluate

PROLOGUE = """
F = t.nn.functional
graph = t.autograd.graph
x = t.tensor(X).requires_grad_()
w = t.tensor(W).requires_grad_()
log = []
def pack(a):
    log.append(("pack", tuple(a.shape), a.requires_grad, a.is_leaf, t.is_grad_enabled()))
    return a.clone().numpy()
def unpack(kept):
    log.append(("unpack", kept.shape))
    return t.from_numpy(kept)
hooks = graph.saved_tensors_hooks(pack, unpack)
"""

PROGRAMS = """
with hooks: y = x * w
---
with hooks: y = x.exp().relu()
---
with hooks: y = x / w
---
with hooks: y = x @ w
---
with hooks: y = F.gelu(x) + F.silu(w)
---
with hooks: y = x[t.tensor([0, 0, 2])]
---
with hooks: y = x.max(1)[0]
---
with hooks: y = t.cat([x, w]).sum() + x.view(-1).sum()
---
with hooks: y = x.exp().mul_(2).sigmoid_()
---
with hooks: y = F.mse_loss(x, w)
---
with hooks: y = x.softmax(1) * 2
---
with hooks:
    with t.no_grad(): z = x * w
    y = x + z
---
with hooks: y = (x * w).detach() * x
"""
GRADIENTS = """
before = list(log)
log.append(y.requires_grad)
y.pow(2).sum().backward()
(before, log, x.grad, w.grad)
"""


@pytest.fixture
def inputs(rng: np.random.Generator) -> dict[str, Any]:
    """Small enough that no tanh is close to 1, where its derivative in single precision says little."""
    return {name: rng.uniform(0.2, 0.6, (4, 4)).astype(np.float32) for name in "XW"}


@pytest.mark.parametrize("lines", PROGRAMS.split("---"))
def test_what_operations_save_is_packed_when_they_run_and_unpacked_by_the_pass(
    lines: str, tg: Any, inputs: dict[str, Any]
) -> None:
    assert_same(*evaluate(PROLOGUE + lines + GRADIENTS, tg, **inputs))


WHOLE = [
    """
    layers = [F.linear(x, w, w[0]).tanh(), F.layer_norm(x, (4,), w[0], w[1]), F.cross_entropy(x, t.arange(4))]
    """,
    """
    a, b = x[None], w[None]
    layers = [F.conv2d(a[None], b[None, :, :2, :2]), F.scaled_dot_product_attention(a, b, a), x.masked_select(x > 1)]
    """,
    "layers = [F.batch_norm(x, None, None, w[0], w[1], training=True), F.embedding(t.tensor([0, 1, 1]), w), x.std()]",
    """
    b = x + 3 * t.eye(4)
    layers = [t.nn.GRU(4, 4)(x)[0] * 0 + w, t.logsumexp(x, 1), t.einsum('ij,kj->ik', x, w), t.linalg.inv(b)]
    """,
]


@pytest.mark.parametrize("lines", WHOLE)
def test_gradients_are_those_of_what_unpack_returns(lines: str, tg: Any, inputs: dict[str, Any]) -> None:
    lines = textwrap.dedent(lines).strip()
    program = f"""
{lines}
plain = t.autograd.grad(sum([y.sum() + (y ** 2).sum() for y in layers]), [x, w], allow_unused=True)
with hooks:
{textwrap.indent(lines, "    ")}
    loss = sum([y.sum() + (y ** 2).sum() for y in layers])
loss.backward()
packed, unpacked = [len([entry for entry in log if entry[0] == kind]) for kind in ("pack", "unpack")]
[packed == unpacked >= len(layers), t.allclose(plain[0], x.grad), t.allclose(plain[1], w.grad)]
"""
    ours, theirs = evaluate(PROLOGUE + program, tg, **inputs)
    assert ours == [True, True, True]
    assert_same(ours, theirs)


OTHER = [
    """
    with graph.saved_tensors_hooks(lambda a: a * 2, lambda a: a): y = x * x
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    x.grad
    """,
    """
    with graph.saved_tensors_hooks(lambda a: a.half(), lambda a: a.float()): y = (x * w).sin()
    t.autograd.grad(y.sum(), [x, w])
    """,
    """
    with hooks: y = (x ** 3 * w).sum()
    g, = t.autograd.grad(y, x, create_graph=True)
    (g.sum() + x.sum()).backward()
    (x.grad, w.grad, g)
    """,
    """
    with graph.saved_tensors_hooks(lambda a: (log.append("outer"), a)[1], lambda a: a):
        y = x.exp()
        with hooks: z = y.sin()
        z = z.exp()
    z.sum().backward()
    (log, x.grad)
    """,
    """
    with graph.save_on_cpu(pin_memory=True): y = (x @ w).tanh().pow(2)
    y.sum().backward()
    (x.grad, w.grad)
    """,
    """
    with graph.disable_saved_tensors_hooks("not here"):
        with hooks: y = x * 2
    """,
    """
    with graph.saved_tensors_hooks(lambda a: a, lambda a: 3): y = x * x
    y.sum().backward()
    """,
    """
    def fails(a): raise KeyError("pack")
    with graph.saved_tensors_hooks(fails, lambda a: a): y = x * x
    """,
    """
    y = x.exp()
    y.grad_fn._raw_saved_result.register_hooks(pack, lambda kept: t.from_numpy(kept) * 2)
    y.sum().backward()
    (log, x.grad)
    """,
    """
    y = x * w
    raw = y.grad_fn._raw_saved_other
    raw.register_hooks(pack, unpack)
    raw.register_hooks(pack, unpack)
    """,
    """
    with graph.saved_tensors_hooks(lambda a: a * 3, lambda a: a): y = x * w
    (y.grad_fn._saved_self.detach(), y.grad_fn._saved_other.detach())
    """,
    """
    with hooks: y = (x * w).exp()
    y.register_hook(lambda g: g * 2)
    y.grad_fn.register_hook(lambda gi, go: log.append((len(gi), len(go))))
    t.autograd.grad(y.sum(), x)[0], log
    """,
    """
    with hooks: y, z = x * w, x.exp()
    z.sum().backward()
    log
    """,
    """
    layer = t.nn.Sequential(t.nn.Linear(4, 4), t.nn.ReLU(), t.nn.Linear(4, 1))
    with t.no_grad(): [p.fill_(0.25) for p in layer.parameters()]
    with hooks: y = t.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
    y.sum().backward()
    x.grad
    """,
    """
    def run():
        with hooks: return (x * w).sum()
    run().backward()
    (x * w).sum().backward()
    (len(log), x.grad)
    """,
]


@pytest.mark.parametrize("lines", OTHER)
def test_programs_with_hooks_do_what_they_do_under_pytorch(lines: str, tg: Any, inputs: dict[str, Any]) -> None:
    assert_same(*evaluate(PROLOGUE + textwrap.dedent(lines), tg, **inputs))


def test_without_hooks_a_step_waits_for_nothing_and_with_them_once_an_operation(tg: Any) -> None:
    x = tg.ones(3, requires_grad=True)
    trips = telegrad.wire_stats

    def step() -> int:
        before = trips().round_trips
        (x * x).sin().sum().backward()
        return int(trips().round_trips - before)

    with tg.autograd.graph.saved_tensors_hooks(lambda a: a, lambda a: a):
        assert step() == 5  # three operations, and two of them in the pass
    assert step() == 0


def test_what_is_packed_is_freed_on_the_server_until_the_pass(tg: Any) -> None:
    x = tg.ones(1 << 20, requires_grad=True)

    def held() -> int:
        gc.collect()
        return int(tg.cuda.memory_allocated("cpu"))

    before = held()
    with tg.autograd.graph.saved_tensors_hooks(lambda a: a.numpy(), tg.from_numpy):
        y = x.exp().sin().sum()
    assert held() - before < x.nbytes / 2
    y.backward()
    assert held() - before < 1.5 * x.nbytes  # the gradient
    np.testing.assert_allclose(x.grad.numpy(), np.cos(np.e) * np.e, rtol=1e-5)


def test_a_tensor_of_another_shape_is_refused_and_names_what_was_saved(tg: Any) -> None:
    x = tg.ones(3, 2, requires_grad=True)
    with tg.autograd.graph.saved_tensors_hooks(lambda a: a, lambda a: a[:1]):
        y = x.exp().sum()
    with pytest.raises(telegrad.errors.ShapeError, match=r"unpack_hook returned float32\[1,2\].*was float32\[3,2\]"):
        y.backward()
