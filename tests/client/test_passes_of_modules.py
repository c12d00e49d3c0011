"""Checkpoints, hooks of modules, and what ``autograd.graph`` has: the same programs give the same as under PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from .pass_programs import compare

MODEL = """
import warnings
from importlib import import_module
C = import_module(t.__name__ + ".utils.checkpoint")
graph = import_module(t.__name__ + ".autograd.graph")
def model():
    net = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.Tanh(), t.nn.Linear(4, 4), t.nn.ReLU(), t.nn.Linear(4, 2)).double()
    with t.no_grad():
        for p in net.parameters():
            p.copy_(t.linspace(-1, 1, p.numel(), dtype=t.float64).reshape(p.shape))
    return net
net = model()
seen = []
"""

MODEL_PROGRAMS = [
    """
    y = C.checkpoint(net, w, use_reentrant=False)
    (y * y).sum().backward()
    (y, y.requires_grad, w.grad, [p.grad for p in net.parameters()])
    """,
    """
    y = C.checkpoint(net, w, use_reentrant=True)
    (y * y).sum().backward()
    (y, w.grad, [p.grad for p in net.parameters()])
    """,
    """
    data = w.detach()
    C.checkpoint(net, data, use_reentrant=False).sum().backward()
    [p.grad for p in net.parameters()]
    """,
    """
    h = C.checkpoint(net[:2], w * 2, use_reentrant=False)
    y = C.checkpoint(lambda a, scale, extra=None: {"out": net[2:](a) * scale, "name": "n", "list": [a * extra]}, h, 3.0,
        extra=x[:1], use_reentrant=False)
    g = t.autograd.grad(y["out"].sum() + y["list"][0].sum(), [w, x, *net.parameters()])
    (y["name"], y["list"], g)
    """,
    """
    y = C.checkpoint(net, w, use_reentrant=False)
    g, = t.autograd.grad((y ** 3).sum(), w, create_graph=True)
    (g * g).sum().backward()
    (g, w.grad, [p.grad for p in net.parameters()])
    """,
    """
    y = C.checkpoint_sequential(net, 2, w, use_reentrant=False)
    y.sum().backward()
    (y, w.grad, [p.grad for p in net.parameters()])
    """,
    """
    with t.no_grad():
        y = C.checkpoint(net, w, use_reentrant=False)
    y
    """,
    "C.checkpoint(net, w, use_reentrant=True, extra=1)",
    """
    net[2].register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    net(w).sum().backward()
    (seen, w.grad)
    """,
    """
    net[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    net[0].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
    net[0].register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    net(w.detach()).sum().backward()
    (seen, [p.grad for p in net.parameters()])
    """,
    """
    def note(m, gi, go):
        seen.append((type(m).__name__, go[0].contiguous()))
    handle = t.nn.modules.module.register_module_full_backward_hook(note)
    net(w).sum().backward()
    handle.remove()
    net(w).sum().backward()
    (seen, w.grad)
    """,
    """
    packed = []
    def pack(a):
        packed.append(a.clone())
        return a * 2
    with graph.saved_tensors_hooks(pack, lambda a: a / 2):
        y = Square.apply(x)
    y.sum().backward()
    (packed, x.grad)
    """,
    """
    with graph.save_on_cpu():
        y = Square.apply(x)
    y.sum().backward()
    x.grad
    """,
    """
    a, b, c = x * 2, x * 3, x * 4
    def note(grads):
        seen.append([None if g is None else g.clone() for g in grads])
    graph.register_multi_grad_hook([a, b, c], note)
    (a + b).sum().backward(retain_graph=True)
    (a * 0 + x * 2 + c).sum().backward()
    (seen, x.grad)
    """,
    """
    a, b = x * 2, x * 3
    graph.register_multi_grad_hook([a, b], lambda g: seen.append(g.clone()), mode="any")
    (a + b).sum().backward()
    (seen, x.grad)
    """,
    """
    e = graph.get_gradient_edge(x * 2)
    (e.node.name(), e.output_nr)
    """,
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with t.autograd.detect_anomaly():
            (x.sqrt() * 0).sum().backward()
    """,
    """
    with t.autograd.set_detect_anomaly(True):
        (x * 2).sum().backward()
    x.grad
    """,
]


@pytest.mark.parametrize("program", MODEL_PROGRAMS)
def test_checkpoints_and_hooks_of_modules_are_pytorchs(tg: Any, program: str) -> None:
    compare(tg, program, MODEL)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_draws_the_same_numbers_again_and_leaves_the_generator_as_it_was(
    tg: Any, use_reentrant: bool
) -> None:
    from telegrad.utils.checkpoint import checkpoint

    x = tg.ones(1000, requires_grad=True)
    masks = []

    def run(a: Any) -> Any:
        mask = tg.nn.functional.dropout(tg.ones(1000), 0.5)
        masks.append(mask)
        return a * mask

    tg.manual_seed(3)
    y = checkpoint(run, x, use_reentrant=use_reentrant)
    after = tg.rand(4)
    y.sum().backward()
    assert len(masks) == 2
    assert masks[0].tolist() == masks[1].tolist() == x.grad.tolist()
    then = tg.rand(4)
    tg.manual_seed(3)
    tg.nn.functional.dropout(tg.ones(1000), 0.5)
    assert [after.tolist(), then.tolist()] == [tg.rand(4).tolist(), tg.rand(4).tolist()]


@pytest.mark.gpu
def test_hooks_and_checkpoints_on_a_gpu(cuda_tg: Any) -> None:
    from telegrad.utils.checkpoint import checkpoint

    tg = cuda_tg
    x = tg.arange(4.0, device="cuda").requires_grad_()
    x.register_hook(lambda g: g * 2)
    stream = tg.cuda.Stream()
    stream.wait_stream(tg.cuda.current_stream())
    with tg.cuda.stream(stream):
        y = checkpoint(lambda a: tg.nn.functional.dropout(a, 0.0) * a, x * 3, use_reentrant=False)
        y.sum().backward()
    tg.cuda.synchronize()
    assert x.grad.tolist() == [0, 36, 72, 108]
