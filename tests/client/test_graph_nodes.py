"""Nodes of built-in operations: hooks, saved tensors, and the graph, the same under telegrad and PyTorch."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from .twins import assert_same, evaluate

PROLOGUE = """
x = t.tensor(first, dtype=getattr(t, kind), requires_grad=True)
w = t.tensor(second, dtype=getattr(t, kind), requires_grad=True)
calls = []
def shapes(gradients):
    return [None if g is None else tuple(g.shape) for g in gradients]
def note(name, replace=None):
    def hook(*groups):
        calls.append((name, [[None if g is None else g.detach().clone() for g in group] for group in groups]))
        return None if replace is None else replace(*groups)
    return hook
def scaled(factor):
    return lambda gradients, *_: tuple(None if g is None else g * factor for g in gradients)
def saved(fn):
    return sorted(name for name in dir(fn) if name.startswith("_saved_"))
def walk(fn, seen):
    if fn is None or fn in seen:
        return
    seen.append(fn)
    for before, _ in fn.next_functions:
        walk(before, seen)
def named(root, name):
    seen = []
    walk(root.grad_fn, seen)
    return next(fn for fn in seen if fn.name() == name)
"""

PROGRAMS = {
    "order": """
        y = (x * w).sin()
        y.grad_fn.register_hook(note("after"))
        y.grad_fn.register_hook(note("second", scaled(2)))
        y.grad_fn.register_prehook(note("before", scaled(3)))
        y.register_hook(note("tensor") and (lambda g: calls.append("tensor")))
        y.retain_grad()
        (y * 2).sum().backward()
        (calls, x.grad, w.grad, y.grad)
    """,
    "replaced": """
        y = x * w
        y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 10, None))
        y.exp().sum().backward()
        (x.grad, w.grad)
    """,
    "dropped before": """
        y = x * w
        y.grad_fn.register_prehook(lambda outputs: (outputs[0] * outputs[0],))
        z = (y.exp() + x).sum()
        z.backward()
        (x.grad, w.grad)
    """,
    "removed": """
        y = x * w
        z = y.sum()
        kept = y.grad_fn.register_hook(note("kept"))
        gone = [y.grad_fn.register_hook(note("gone")), y.grad_fn.register_prehook(note("gone"))]
        z.backward(retain_graph=True)
        for handle in gone:
            handle.remove()
        z.backward(retain_graph=True)
        with kept:
            pass
        z.backward()
        ([name for name, _ in calls], x.grad)
    """,
    "second derivatives": """
        y = x.sin() * w
        y.grad_fn.register_hook(note("product", scaled(2)))
        y.grad_fn.next_functions[0][0].register_prehook(note("sine", scaled(3)))
        gradient, = t.autograd.grad(y.sum(), x, create_graph=True)
        gradient.sum().backward()
        (gradient, x.grad, w.grad, calls)
    """,
    "of grad": """
        y = x * w
        y.grad_fn.register_hook(note("reached"))
        z = y.sin()
        z.grad_fn.register_prehook(note("sine"))
        first = t.autograd.grad(z.sum(), y, retain_graph=True)
        calls.append("then")
        (first, t.autograd.grad(z.sum(), w), calls)
    """,
    "not reached": """
        y, other = x * w, x + w
        other.grad_fn.register_hook(note("other"))
        y.grad_fn.register_hook(note("y"))
        y.sum().backward()
        calls
    """,
    "several outputs": """
        matrix = t.outer(x, w)
        values, indices = matrix.max(1)
        left, right = matrix.split(2, 1)
        values.grad_fn.register_hook(note("max"))
        left.grad_fn.register_prehook(note("split"))
        left.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 2,))
        (values.sum() + left.exp().sum()).backward()
        (calls, x.grad, w.grad)
    """,
    "used twice": """
        y = x.tanh()
        y.grad_fn.register_hook(note("y"))
        (y * w + y.exp()).sum().backward()
        (calls, x.grad)
    """,
    "leaves": """
        node = w.expand_as(w).grad_fn.next_functions[0][0]
        before = node.register_prehook(note("before", scaled(2)))
        after = node.register_hook(note("after"))
        (x * w).sum().backward()
        after.remove()
        before.remove()
        (x * w).sum().backward()
        (node.variable is w, node.name(), calls, w.grad, node.next_functions)
    """,
    "functions": """
        class Twice(t.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                return a * 2, b * 3
            @staticmethod
            def backward(ctx, first, second):
                calls.append("backward")
                return first * 2, second * 3
        a, b = Twice.apply(x.sin(), w)
        a.grad_fn.register_prehook(note("before", scaled(5)))
        a.grad_fn.register_hook(note("after"))
        a.grad_fn.next_functions[0][0].register_hook(note("sine"))
        (a * b).sum().backward()
        (calls, x.grad, w.grad, [fn.name() for fn, _ in a.grad_fn.next_functions])
    """,
    "behind composites": """
        y = t.outer(x, w)
        z = t.nn.functional.layer_norm(y.sin().reshape(-1, 8).flatten(1), (8,)).cos()
        loss = t.nn.functional.mse_loss(z, t.zeros_like(z))
        seen = []
        walk(loss.grad_fn, seen)
        sine = next(fn for fn in seen if fn.name() == "SinBackward0")
        sine.register_hook(note("sine", scaled(2)))
        cosine = next(fn for fn in seen if fn.name() == "CosBackward0")
        cosine.register_prehook(note("cosine"))
        loss.backward()
        (calls, x.grad, sine.name(), t.autograd.graph.Node.__name__ and isinstance(sine, t.autograd.graph.Node))
    """,
    "in place": """
        y = (x * w).neg_()
        y.mul_(2)
        y.grad_fn.register_hook(note("product"))
        y.sum().backward()
        (calls, x.grad)
    """,
    "metadata": """
        y = (x * w).sum()
        y.grad_fn.metadata["note"] = 3
        y.grad_fn.next_functions[0][0].metadata["other"] = 4
        known = [(m.shape, m.dtype, str(m.device)) for m in y.grad_fn.next_functions[0][0]._input_metadata]
        result = (y.grad_fn.metadata, y.grad_fn.next_functions[0][0].metadata, [tuple(shape) for shape, _, _ in known],
         y.grad_fn is y.grad_fn, y.grad_fn.next_functions[0][0] is y.grad_fn.next_functions[0][0])
        result
    """,
    "errors of hooks": """
        def attempt(hook, before):
            y = (x * w) + 1
            node = y.grad_fn.next_functions[0][0]
            (node.register_prehook if before else node.register_hook)(hook)
            try:
                y.sum().backward()
            except RuntimeError as error:
                return "number of values" in str(error) or "replace a None" in str(error)
        y = x * 2
        y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0], inputs[0]))
        try:
            y.sum().backward()
        except RuntimeError as error:
            calls.append("None gradient" in str(error))
        (attempt(lambda *_: (x,), False), attempt(lambda *_: (x, x), True), calls)
    """,
    "several gradients": """
        y, z = x * w, x.exp()
        t.autograd.graph.register_multi_grad_hook((y, z), lambda grads: calls.append(shapes(grads)))
        y.grad_fn.register_hook(note("node"))
        (y * z).sum().backward()
        (calls[0][0] == "node" or calls[-1], len(calls))
    """,
    "saved": """
        power, product, root = x**2, x * w, (x * x).sqrt()
        result = (power.grad_fn._saved_self is x, power.grad_fn._saved_exponent, product.grad_fn._saved_other is w,
         x.exp().grad_fn._saved_result, root.grad_fn._saved_result, root.grad_fn._saved_result is root,
         product.sin().grad_fn._saved_self, (x * 2).grad_fn._saved_self, x.sum().grad_fn._saved_self_sym_sizes,
         t.softmax(x, 0).grad_fn._saved_dim, t.softmax(x, 0).grad_fn._saved_result)
        result
    """,
    "saved names": """
        matrix = t.outer(x, w)
        linear = t.nn.functional.linear(matrix, matrix.detach(), x)
        result = ([saved(made.grad_fn) for made in (x.exp(), x.sin(), x.tanh(), x.sigmoid(), x.sqrt(), x * w, x / w)],
         linear.grad_fn._saved_mat2, linear.grad_fn.name(), saved(x.clone().grad_fn))
        result
    """,
    "saved, as kernels call it": """
        f, matrix = t.nn.functional, t.outer(x, w)
        norms = [f.layer_norm(matrix, matrix.shape[1:]), f.batch_norm(matrix, None, None, training=True),
                 f.group_norm(matrix[None], 1)]
        made = [(norm.grad_fn, name) for norm in norms for name in ("input", "result1", "result2")]
        made += [(norms[2].grad_fn, "group"), (f.max_pool2d(matrix[None], 2).grad_fn, "result1")]
        made += [(f.embedding(t.tensor([1]), matrix).grad_fn, "indices")]
        read = [getattr(fn, f"_saved_{name}") for fn, name in made]
        [*(v.detach() if t.is_tensor(v) else v for v in read),
         *(made(x).grad_fn.name() for made in (f.logsigmoid, f.selu, f.relu6))]
    """,
    "saved, differentiated": """
        y = x.sin()
        z = y.exp()
        g = t.autograd.grad(z.sum(), y, retain_graph=True)[0]
        (z.grad_fn._saved_result * 2).sum().backward()
        (x.grad, g)
    """,
    "saved, as parts of the graph that they were computed in": """
        class Double(t.autograd.Function):
            forward = staticmethod(lambda ctx, x: x * 2)
            backward = staticmethod(lambda ctx, g: g * 2)
        y = Double.apply(x.exp())
        z = y * (y * w).sum().sin()
        a, b = z.grad_fn._saved_self, z.grad_fn._saved_other
        v = t.ones_like(x, requires_grad=True)
        found = [t.autograd.grad(whole, source, v.expand_as(whole) if whole.ndim else v[0], retain_graph=True,
                 create_graph=True, allow_unused=True)[0] for whole in (a, b, a * b) for source in (a, b, y, x)]
        [a.grad_fn is y.grad_fn, b.grad_fn.name(), *found]
    """,
    "freed": """
        y = x.exp()
        y.sum().backward()
        y.grad_fn._saved_result
    """,
    "modified": """
        y = x * w.clone()
        other = y.grad_fn._saved_other
        other.detach().add_(1)
        y.grad_fn._saved_other
    """,
    "no such name": "(x * w).grad_fn._saved_nothing",
    "autocast": """
        with t.autocast("cpu", dtype=t.bfloat16):
            y = t.outer(x, w).sin() @ t.outer(w, x)
        named(y, "SinBackward0").register_hook(lambda *groups: calls.append([shapes(group) for group in groups]))
        y.float().sum().backward()
        calls
    """,
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_nodes_are_as_in_pytorch(tg: Any, rng: np.random.Generator, name: str) -> None:
    values = {"first": rng.uniform(0.5, 2, 4).tolist(), "second": rng.uniform(0.5, 2, 4).tolist()}
    kind = "float32" if name == "autocast" else "float64"  # nothing else is about rounding
    assert_same(*evaluate(f"{PROLOGUE}\n{dedent(PROGRAMS[name]).strip()}", tg, kind=kind, **values))
