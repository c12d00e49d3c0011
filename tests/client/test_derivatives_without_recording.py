"""Functions of ``func`` under ``no_grad``: they differentiate all the same, and their results have no history."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .twins import assert_same, evaluate

PROLOGUE = """
F = t.func
p = t.tensor(weights, requires_grad=True)
x, v = t.tensor(inputs), t.tensor(tangent)
f = lambda w: t.tanh(x @ w.t())
cubes = lambda w: (f(w) ** 3).sum()
def unrecorded(derive):
    def call(w):
        with t.no_grad():
            g = derive(w)
        return (g * w).sum()
    return call
"""
DERIVATIVES = [
    "F.vjp(f, p)[0]", "F.vjp(f, p)[1](t.ones_like(x[:, :2]))[0]", "F.jvp(f, (p,), (v,))[0]", "F.jvp(f, (p,), (v,))[1]",
    "F.grad(cubes)(p)", "F.grad_and_value(cubes)(p)[1]", "F.jacrev(f)(p)", "F.jacfwd(f)(p)", "F.hessian(cubes)(p)",
    "F.jacrev(F.jacrev(cubes))(p)", "F.jacfwd(F.jacfwd(cubes))(p)", "F.jacrev(F.jacfwd(cubes))(p)",
    "F.jvp(F.grad(cubes), (p,), (v,))[1]", "F.grad(lambda w: F.grad(cubes)(w).pow(2).sum())(p)",
    "F.linearize(f, p)[0]", "F.linearize(f, p)[1](v)", "F.grad(lambda w: (cubes(w), p), has_aux=True)(p)[1]",
    "F.vmap(lambda u: F.vjp(f, p)[1](F.jvp(f, (p,), (u,))[1])[0])(t.stack([v, p.detach()]))",
    "F.vmap(lambda u: F.grad(lambda w: cubes(w) * u.sum())(p))(t.stack([v, p.detach()]))",
]  # fmt: skip


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("mode", ["no_grad", "enable_grad"])
def test_results_are_recorded_where_the_program_records(
    derivative: str, mode: str, tg: Any, rng: np.random.Generator
) -> None:
    program = f"""{PROLOGUE}
with t.{mode}():
    result = {derivative}
result.requires_grad, result.detach().contiguous()
"""
    given = {"weights": rng.standard_normal((2, 3)), "inputs": rng.standard_normal((4, 3))}
    assert_same(*evaluate(program, tg, **given, tangent=rng.standard_normal((2, 3))))


@pytest.mark.parametrize("inner", ["F.grad(cubes)", "lambda w: F.jvp(cubes, (w,), (v,))[1]", "F.jacrev(cubes)"])
@pytest.mark.parametrize("outer", ["F.grad(call)(p)", "F.jvp(call, (p,), (v,))[1]", "F.jacrev(call)(p.detach())"])
def test_what_a_function_does_not_record_has_no_derivative_but_its_tangent(
    inner: str, outer: str, tg: Any, rng: np.random.Generator
) -> None:
    program = f"""{PROLOGUE}
call = unrecorded({inner})
{outer}.detach()
"""
    given = {"weights": rng.standard_normal((2, 3)), "inputs": rng.standard_normal((4, 3))}
    assert_same(*evaluate(program, tg, **given, tangent=rng.standard_normal((2, 3))))
