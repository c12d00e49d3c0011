"""``gradcheck`` finds derivatives that do not go by the rules, besides those whose numbers are wrong."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

PROLOGUE = """
def hooked(hook):
    def run(a):
        y = a.clone()
        y.register_hook(hook)
        return y
    return run
def undefined(g):
    if g is None:
        raise RuntimeError("no gradient")
class Both(t.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.set_materialize_grads(False)
        return a * 2, a * 3
    @staticmethod
    def backward(ctx, first, second):
        return ones if first is None else first * 2 + (0 if second is None else second * 3)
class Sparse(t.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * 2
    @staticmethod
    def backward(ctx, g):
        return (g * 2).to_sparse()
ones = t.ones(1, dtype=t.float64)
x = t.ones(1, dtype=t.float64, requires_grad=True)
"""
FUNCTIONS = [
    "lambda a: a.sin()", "lambda a: t.complex(a, a)", "lambda a: (t.complex(a, a), a)",
    "hooked(lambda g: None if g is None else g + 0.01)", "hooked(lambda g: None if g is None else g * 2)",
    "hooked(undefined)", "hooked(lambda g: None)", "Both.apply", "lambda a: a.detach() * 2", "lambda a: ()",
]  # fmt: skip


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_derivatives_are_judged_as_by_pytorch(tg: Any, function: str, raises: bool) -> None:
    assert _judged(function, tg, raises) == _judged(function, torch, raises)


def _judged(function: str, t: Any, raises: bool) -> Any:
    names: dict[str, Any] = {"t": t}
    exec(PROLOGUE, names)  # noqa: S102 - the tests' own programs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return t.autograd.gradcheck(
                eval(function, names),  # noqa: S307
                names["x"],
                atol=0.1,
                rtol=0.1,
                raise_exception=raises,
            )
        except RuntimeError as error:
            return str(error).splitlines()[0][:40]


@pytest.mark.parametrize("change", ["t.cat([a, a])", "a.float()"])
def test_results_that_change_their_form_are_refused(tg: Any, change: str) -> None:
    for t in (tg, torch):
        x = t.ones(1, dtype=t.float64, requires_grad=True)
        function = eval(f"lambda a: {change} if (a >= 1).all() else a", {"t": t})  # noqa: S307
        with pytest.raises(AssertionError, match="when inputs are perturbed"):
            t.autograd.gradcheck(function, x)


def test_a_function_of_the_program_may_give_a_sparse_gradient(tg: Any) -> None:
    names: dict[str, Any] = {"t": tg}
    exec(PROLOGUE, names)  # noqa: S102
    x = tg.tensor([[1.0, 0.0], [2.0, 3.0]], requires_grad=True)
    (names["Sparse"].apply(x) * x.detach() + names["Sparse"].apply(x * 3)).sum().backward()
    assert x.grad.tolist() == [[8.0, 6.0], [10.0, 12.0]]
    with pytest.raises(ValueError, match="Sparse output is not supported"):
        tg.autograd.gradcheck(lambda a: a.to_sparse(), x.detach().double().requires_grad_())


def test_the_former_name_of_saved_tensors_is_deprecated(tg: Any) -> None:
    class Former(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 * ctx.saved_variables[0]

    x = tg.ones(2, requires_grad=True)
    with pytest.warns(DeprecationWarning, match="saved_variables"):
        Former.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
