"""Arguments of other kinds than a function takes are refused at the call, before they are sent or read as others."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate


@pytest.mark.parametrize("value", ["1", "0", "None", "'yes'", "1.0", "np.bool_(True)", "[]", "t.tensor(True)"])
@pytest.mark.parametrize("call", ["x.requires_grad_({})", "setattr(x, 'requires_grad', {})"])
def test_a_flag_is_a_bool_and_the_session_goes_on(call: str, value: str, tg: Any) -> None:
    program = f"""
    x = t.ones(2)
    try:
        {call.format(value)}
        kind = "taken"
    except (TypeError, RuntimeError):
        kind = "refused"
    kind, x.requires_grad, (x * 2).sum().item()
    """
    assert_same(*evaluate(program, tg))


CALLS = [
    "t.meshgrid(x, t.arange(2.0), indexing='ij')", "t.meshgrid(t.arange(3), t.arange(2.0), indexing='ij')",
    "t.meshgrid(t.arange(3.0), t.tensor(1.0), indexing='ij')", "t.block_diag(x[None], x)", "t.block_diag(x, t.ones(2))",
    "t.isin(5, 5)", "t.isin(5, x)", "t.isin(x, 5)", "t.equal(x, 5)", "t.equal(5, x)", "t.equal(x, x)",
]  # fmt: skip
KEPT = [
    "x.sum(keepdim=True)", "x.mean(keepdim=False)", "t.prod(x, keepdim=True)", "x.sum(keepdims=True, dtype=t.float64)",
    "t.sum(input=x, keepdim=True)", "x.sum(dim=None, keepdim=True)", "x.mean(None, True)",
    "x.prod(axis=1, keepdims=True)", "t.sum(input=x, dim=0, keepdim=True)", "x.mean(axis=(0, 1), keepdims=True)",
    "x.amax(keepdim=True)",
]  # fmt: skip


@pytest.mark.parametrize("call", KEPT)
def test_sums_means_and_products_keep_dimensions_only_where_dim_is_written(call: str, tg: Any) -> None:
    assert_same(*evaluate(f"x = t.arange(6.0).reshape(2, 3)\n{call}", tg))


@pytest.mark.parametrize("call", CALLS)
def test_functions_refuse_what_pytorch_refuses(call: str, tg: Any) -> None:
    assert_same(*evaluate(f"x = t.arange(6.0).reshape(2, 3)\n{call}", tg))


@pytest.mark.parametrize("value", ["1", "0", "True", "None", "'yes'", "np.bool_(True)", "1.0"])
@pytest.mark.parametrize("flag", ["retain_graph", "create_graph"])
@pytest.mark.parametrize("call", ["y.backward({})", "t.autograd.grad(y, x, {})"])
def test_flags_of_a_pass_are_bools_or_integers(call: str, flag: str, value: str, tg: Any) -> None:
    program = f"""
    x = t.ones(2, requires_grad=True)
    y = (x * x).sum()
    try:
        {call.format(f"{flag}={value}")}
        kind = "passed"
    except TypeError:
        kind = "refused"
    kind, (x * 2).sum().item()
    """
    assert_same(*evaluate(program, tg))
