"""Targets of ``out=``: which types and shapes they may have, and what they become, as PyTorch says."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from telegrad_protocol.ops import TABLE
from telegrad_protocol.ops.targets import EXACT_TARGETS

from .twins import assert_same, evaluate

CALLS = [
    ("add", "(t.ones(2, 3), 1)"), ("sum", "(t.ones(2, 3), 1)"), ("exp", "(t.ones(0, 3),)"),
    ("mm", "(t.ones(2, 3), t.ones(3, 2))"), ("prod", "(t.tensor([3, 2], dtype=t.int8), 0)"),
    ("floor", "(t.ones(3),)"), ("cat", "([t.ones(2), t.ones(1)],)"), ("amax", "(t.ones(2, 3), 0)"),
    ("linalg.inv", "(t.eye(3),)"), ("linalg.svdvals", "(t.eye(3),)"), ("gather", "(t.ones(3), 0, t.tensor([0, 2]))"),
    ("dot", "(t.ones(3), t.ones(3))"), ("cumsum", "(t.ones(3), 0)"), ("masked_select", "(t.ones(3), t.ones(3) > 0)"),
    ("isin", "(t.ones(3), t.ones(2))"), ("float_power", "(t.ones(3), 2)"), ("view_copy", "(t.ones(2, 3), (3, 2))"),
    ("histc", "(t.ones(3), 4)"), ("softmax", "(t.ones(2, 3), 0)"), ("mean", "(t.ones(2, 3), 1)"),
    ("ceil", "(t.ones(0),)"),
]  # fmt: skip
"""Functions, of which some convert their results and some do not, with arguments."""
TYPES = ["float32", "float64", "int64", "complex128"]


def _outcome(t: Any, name: str, arguments: str, target: str) -> tuple[Any, list[str]]:
    """What a call writes, or the class of its error, and what it warns of."""
    function: Any = t
    for part in name.split("."):
        function = getattr(function, part)
    out = eval(target, {"t": t})  # noqa: S307 - the tests' own programs
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result = function(*eval(arguments, {"t": t}), out=out)  # noqa: S307
        except (RuntimeError, TypeError):
            return RuntimeError, []
    assert result is out
    shown = (tuple(out.shape), str(out.dtype).rpartition(".")[2], out.tolist())
    return shown, [str(each.message).partition(" which")[0] for each in told if "resized" in str(each.message)]


@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=[name for name, _ in CALLS])
def test_types_are_taken_and_refused_as_in_pytorch(tg: Any, name: str, arguments: str) -> None:
    for dtype in TYPES:
        target = f"t.zeros(0, dtype=t.{dtype})"
        assert _outcome(tg, name, arguments, target) == _outcome(torch, name, arguments, target), dtype


@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=[name for name, _ in CALLS])
def test_targets_of_another_shape_take_the_results_with_a_warning(tg: Any, name: str, arguments: str) -> None:
    dtype = {"isin": "bool", "float_power": "float64"}.get(name, "float32")
    target = f"t.zeros(4, 1, 2, dtype=t.{dtype})"
    ours, theirs = (_outcome(t, name, arguments, target) for t in (tg, torch))
    assert len(theirs[1]) == 1
    assert ours == theirs


def test_each_of_several_targets_takes_the_shape_of_its_result(tg: Any) -> None:
    values, indices = tg.zeros(7), tg.zeros(0, dtype=tg.int64)
    with pytest.warns(UserWarning, match="was resized since it had shape \\[7\\]") as told:
        result = tg.max(tg.tensor([[1.0, 3.0], [5.0, 2.0]]), 1, out=(values, indices))
    assert len(told) == 1
    assert result.values is values and result.indices is indices
    assert (values.tolist(), indices.tolist()) == ([3.0, 5.0], [1, 0])


def test_functions_that_make_tensors_resize_without_a_word(tg: Any) -> None:
    for t in (torch, tg):
        target = t.zeros(3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert t.ones(2, 2, out=target) is target
        assert target.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_operands_that_do_not_fit_are_refused_whatever_the_target(tg: Any) -> None:
    with pytest.raises(RuntimeError, match="do not broadcast"):
        tg.add(tg.ones(2), tg.ones(3), out=tg.zeros(5))


@pytest.mark.parametrize(
    "program",
    [
        "t.exp(t.ones(2), out=t.zeros(0, requires_grad=True))",
        "t.exp(t.ones(0, requires_grad=True), out=t.zeros(0))",
        "t.exp(t.ones(2, requires_grad=True), out=t.zeros(5))",
        "t.add(t.ones(2, 3), 1, out=t.zeros(1).expand(4))",
        "x = t.ones(6)\nt.masked_select(x, x > 0, out=x)",
        "x = t.ones(6)\nt.kthvalue(x, 2, out=(x, t.zeros((), dtype=t.int64)))",
        "i = t.tensor([2, 1, 0])\nt.gather(i.clone(), 0, i[1:], out=i[:1])",
        "t.normal(t.zeros(3), t.zeros(3), out=t.ones(3))",
        "t.normal(t.zeros(3), 0.0, out=t.ones(3))",
    ],
)
def test_what_a_target_must_not_be_is_refused_as_in_pytorch(tg: Any, program: str) -> None:
    assert_same(*evaluate(program, tg))


def test_functions_that_convert_nothing_exist(tg: Any) -> None:
    for name in EXACT_TARGETS:
        assert name in TABLE or hasattr(tg, name), name
