"""Backward passes beside PyTorch's: several outputs, inputs that are not reached, zeros in place of None, refusals."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch

from .twins import assert_same, evaluate

MULTIPLE = """
class Two(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3
    @staticmethod
    def backward(ctx, a, b):
        return a * 2 + b * 3
x = t.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
"""
PASSES = {
    "results of one operation keep their gradients": (
        "a, b = t.var_mean(x, dim=0)\na.retain_grad()\nb.retain_grad()\n(a + 2 * b).sum().backward()",
        "(a.grad, b.grad, a.retains_grad, b.retains_grad)",
    ),
    "pieces of a tensor keep their gradients": (
        "parts = (x * 2).chunk(2)\n[part.retain_grad() for part in parts]\n(parts[0] * parts[1]).sum().backward()",
        "[part.grad for part in parts]",
    ),
    "results of a function keep their gradients": (
        "a, b = Two.apply(x)\na.retain_grad()\nb.retain_grad()\n(a * b).sum().backward()",
        "(a.grad, b.grad, x.grad)",
    ),
    "hooks of outputs of which one was modified": (
        "seen = []\na, b = Two.apply(x)\na.register_hook(lambda g: seen.append(g))\n"
        "b.register_hook(lambda g: seen.append(g * 10))\na.mul_(2)\na.register_hook(lambda g: seen.append(g * 100))\n"
        "(a + b * 3).sum().backward()",
        "(sorted(g.sum().item() for g in seen), x.grad)",
    ),
    "inputs that no gradient reaches": (
        "y = t.ones(2, requires_grad=True)\nt.autograd.backward(Two.apply(x)[0].sum(), inputs=[y])",
        "(x.grad, y.grad)",
    ),
    "zeros in place of None are differentiated again": (
        "a = t.tensor(0.5, requires_grad=True)\nb = t.tensor(2.0, requires_grad=True)\n"
        "c = t.autograd.grad(a * b, a, create_graph=True)\n"
        "d = t.autograd.grad(c, a, create_graph=True, allow_unused=True, materialize_grads=True)",
        "(d, t.autograd.grad(d, a, materialize_grads=True))",
    ),
    "a gradient is deleted": ("x.sum().backward()\ndel x.grad", "x.grad"),
}


@pytest.mark.parametrize("case", PASSES)
def test_passes_agree_with_pytorchs(tg: Any, case: str) -> None:
    program, result = PASSES[case]
    ours, theirs = evaluate(f"{MULTIPLE}{program}\n{result}", tg)
    assert not isinstance(theirs, Exception)
    assert_same(ours, theirs)


CHANGES = [
    "y.transpose_(0, 1)", "y.unsqueeze_(0)", "y.squeeze_(0)", "y.squeeze_()", "y.swapdims_(0, 2)", "y.t_()",
    "y.as_strided_((3, 2), (1, 3))", "y.detach_()", "y.squeeze_((0, 1))",
]  # fmt: skip
SHAPED = """
x = t.arange(6.0).reshape(1, 2, 3).requires_grad_()
y = x * 2 if "t_" not in call else (x * 2)[0].clone()
part = y[0]
eval(call)
weights = t.arange(1.0, 7.0).reshape(y.shape)
told = (y.shape, y.requires_grad, y.is_leaf, y._is_view(), y._version, part._version, part._base is y)
if y.requires_grad:
    (y * weights).sum().backward()
"""


@pytest.mark.parametrize("call", CHANGES)
def test_shapes_that_are_changed_in_place_have_the_history_of_before(tg: Any, call: str) -> None:
    ours, theirs = evaluate(f"{SHAPED}\n(told, x.grad is not None and x.grad.tolist())", tg, call=call)
    assert_same(ours, theirs)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_a_history_outlasts_a_change_of_shape_that_is_not_recorded(tg: Any, mode: str) -> None:
    program = f"""
    x = t.arange(6.0).reshape(2, 3).requires_grad_()
    y = x * 2
    with t.{mode}():
        y.unsqueeze_(0)
        leaf = t.nn.Parameter(t.ones(2)).unsqueeze_(0)
    (y * y).sum().backward()
    (y.shape, y.requires_grad, y.is_leaf, y._version, x.grad, leaf.is_leaf, leaf.shape)
    """
    assert_same(*evaluate(program, tg))


SAVED_BEFORE = ["y.transpose_(0, 1)", "y.unsqueeze_(0)", "y.squeeze_(0)", "y.add_(1)"]


@pytest.mark.parametrize("call", SAVED_BEFORE)
def test_what_a_pass_needs_is_refused_once_its_shape_was_changed(tg: Any, call: str) -> None:
    program = f"""
    x = t.ones(1, 2, 3, requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    {call}
    z.backward()
    x.grad.sum().item()
    """
    assert_same(*evaluate(program, tg))


def test_views_are_views_of_a_tensor_whose_shape_was_changed(tg: Any) -> None:
    program = """
    x = t.ones(2, requires_grad=True)
    y = x * 2
    y.unsqueeze_(0)
    part = y[0]
    part.mul_(5)
    y.mul_(t.tensor([2.0, 3.0]))
    told = (part._base is y, y._base is None, y, part)
    y.sum().backward()
    y.detach_()
    (told, x.grad, y.requires_grad, t.ones(2).unsqueeze_(0).detach_(), t.ones(4).resize_(2, 2)._version)
    """
    assert_same(*evaluate(program, tg))


OF_PLAIN_TENSORS = [
    "t.ones(1, 2).unbind()[0].copy_(b)", "t.ones(1, 2).select(1, 0).copy_(b)", "Same.apply(t.ones(1, 2)).add_(b)",
    "Same.apply(t.ones(1, 2)).copy_(b)", "t.ones(4).chunk(2)[1].mul_(b)", "t.ones(4)[1:].mul_(b)",
]  # fmt: skip


@pytest.mark.parametrize("call", OF_PLAIN_TENSORS)
def test_views_of_plain_tensors_that_get_a_gradient_are_refused_where_they_are_written(tg: Any, call: str) -> None:
    program = f"""
    class Same(t.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a.view_as(a)
        @staticmethod
        def backward(ctx, g):
            return g
    b = t.ones(1, requires_grad=True)
    try:
        told = {call}.requires_grad
    except RuntimeError:
        told = "refused"
    told
    """
    assert_same(*evaluate(program, tg))


REFUSED = [
    ("t.autograd.grad(x.sum(), [])", "`inputs` argument to `grad()` cannot be empty."),
    ("x.sum().backward(inputs=[])", "`inputs` argument to `backward()` cannot be empty."),
    ("t.autograd.grad(x * 2, x, t.ones(2))", "Mismatch in shape: grad_output[0] has a shape of "),
    ("y = (x * x).sum()\ny.backward()\ny.backward()\nx.grad.sum().item()", "Specify retain_graph=True"),
    ("Two.apply(x)[0].register_post_accumulate_grad_hook(print)", "cannot be registered on non-leaf tensors"),
    ("setattr(x, 'grad', t.ones(3))", "attempting to assign a gradient of size '[3]' to a tensor of size '[2, 2]'"),
    ("setattr(x, 'grad', 'a')", "assigned grad expected to be a Tensor or None but got grad of type str"),
    ("setattr(x, 'data', t.ones(2, dtype=t.int64))", "data set to a tensor that requires gradients must be floating"),
    ("t.mul(x, 2, out=t.ones(2, 2))", "functions with out=... arguments don't support automatic differentiation"),
    ("Two()(x)", "Legacy autograd function with non-static forward method is deprecated."),
    ("x.register_hook(lambda g: 'a')\nx.sum().backward()", "expected Variable, but hook returned 'str'"),
    (
        "import torch.utils.checkpoint\nc = t.utils.checkpoint.checkpoint\n"
        "t.autograd.grad(c(t.exp, x, use_reentrant=True).sum(), x)",
        "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad()",
    ),
]


@pytest.mark.parametrize(("program", "words"), REFUSED)
def test_passes_are_refused_in_pytorchs_words(tg: Any, program: str, words: str) -> None:
    ours, theirs = evaluate(f"{MULTIPLE}{program}", tg)
    assert words in str(theirs)
    assert words in str(ours)
    assert isinstance(ours, TypeError) == isinstance(theirs, TypeError)


def test_a_gradient_of_another_shape_tells_what_was_expected(tg: Any) -> None:
    for t in (torch, tg):
        names = {
            "forward": staticmethod(lambda ctx, x: x * 2),
            "backward": staticmethod(lambda ctx, gradient, t=t: t.ones(10)),
        }
        function = type("F", (t.autograd.Function,), names)
        with pytest.raises(RuntimeError, match=r"got \[10\] but expected shape compatible with \[5, 5\]"):
            function.apply(t.ones(5, 5, requires_grad=True)).sum().backward()
            tg.ones(1).item()


def test_a_generator_without_gradients_is_closed_without_them(tg: Any) -> None:
    for t in (torch, tg):
        seen: list[bool] = []

        @t.no_grad()
        def numbers(t: Any = t, seen: list[bool] = seen) -> Any:
            try:
                yield 1
            finally:
                seen.append(t.is_grad_enabled())

        generator = numbers()
        next(generator)
        generator.close()
        assert seen == [False]


def test_modes_see_nothing_of_how_a_change_of_shape_is_counted(tg: Any) -> None:
    modes: Any = import_module("telegrad.utils._python_dispatch")
    seen = []

    class Noting(modes.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = tg.ones(2)
    with Noting():
        x.unsqueeze_(0)
    assert len(seen) == 1 and "unsqueeze" in seen[0] and x._version == 1
