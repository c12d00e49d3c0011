"""Operators whose arguments are of classes that are no tensors: these answer, and programs are traced through them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from .twins import assert_same, evaluate

_spaces = (f"others{number}" for number in itertools.count())
PROLOGUE = """
from importlib import import_module
fx = import_module(t.__name__ + ".fx")
lib = t.library.Library(ns, "DEF")
ops, x = getattr(t.ops, ns), t.arange(4.0)
lib.define("scale(Tensor x, Tensor[] others, float by=1.0) -> Tensor")
lib.impl("scale", lambda a, others, by=1.0: a * by, "CPU")
class Answering:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return str(func).replace(ns, "space"), [kind.__name__ for kind in types], len(args), dict(kwargs or {})
class Silent:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented
"""


def test_classes_answer_operators(tg: Any) -> None:
    program = f"{PROLOGUE}one = Answering()"
    calls = [
        "ops.scale.default(one, [])", "ops.scale.default(x, [one])", "ops.scale.default(x, [x, one], by=2.0)",
        "t.ops.aten.add.Tensor(one, x, alpha=2)", "t.ops.aten.cat.default([x, one])",
    ]  # fmt: skip
    ours, theirs = evaluate(f"{program}\n[{', '.join(calls)}]", tg, ns=next(_spaces))
    assert len(theirs) == 5
    assert_same(ours, theirs)


def test_arguments_that_nobody_answers_are_refused(tg: Any) -> None:
    for argument in ("3", "Silent()"):
        ours, theirs = evaluate(f"{PROLOGUE}\nops.scale.default({argument}, [])", tg, ns=next(_spaces))
        assert isinstance(theirs, Exception)
        assert_same(ours, theirs)


def test_programs_are_traced_through_operators(tg: Any) -> None:
    program = """
@t.library.custom_op(ns + "::twice", mutates_args=())
def twice(x: t.Tensor) -> t.Tensor:
    return x * 2
traced = fx.symbolic_trace(lambda v: twice(ops.scale.default(v, [], 3.0)) + 1)
(traced(x), [(node.op, str(node.target).replace(ns, "space")) for node in traced.graph.nodes][1:3])
"""
    ours, theirs = evaluate(PROLOGUE + program, tg, ns=next(_spaces))
    assert theirs[1] == [("call_function", "space.scale.default"), ("call_function", "space.twice.default")]
    assert_same(ours, theirs)


@pytest.mark.parametrize(
    "call",
    [
        "t.add(Silent(), 1)", "x + Silent()", "Silent() * x", "asking(Silent())", "x.sum(Silent())",
        "x.as_subclass(One) + x.as_subclass(Other)", "x - Reflecting()", "x / Reflecting()", "x ** Reflecting()",
        "x @ Reflecting()",
    ],
)  # fmt: skip
def test_what_nobody_answers_is_refused_in_pytorchs_words_and_operators_ask_the_other_side(tg: Any, call: str) -> None:
    program = """
class Reflecting(Silent):
    def __rsub__(self, other):
        return "reflected"
    __rpow__ = __rmatmul__ = __rtruediv__ = __rsub__
class One(t.Tensor): pass
class Other(t.Tensor): pass
def asking(one):
    return overrides.handle_torch_function(asking, (one,), one)
overrides = import_module(t.__name__ + ".overrides")
"""
    ours, theirs = evaluate(f"{PROLOGUE}{program}\n{call}", tg, ns=next(_spaces))
    if not isinstance(theirs, Exception):
        assert ours == theirs == "reflected"
        return
    assert isinstance(ours, TypeError) and isinstance(theirs, TypeError)
    assert str(ours).splitlines()[0] == str(theirs).splitlines()[0]
