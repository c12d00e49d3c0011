"""What training frameworks ask for: optional arguments as None, trees of other orders, and ends of ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .twins import assert_same, evaluate

FORMATS = [
    "x.clone(memory_format=None)", "t.clone(x, memory_format=None)", "x.float(memory_format=None)",
    "x.double(memory_format=None)", "x.bool(memory_format=None)", "x.cpu(memory_format=None)",
    "x.to(t.float64, memory_format=None)", "x.contiguous(memory_format=None)", "t.set_default_dtype(None)",
]  # fmt: skip


@pytest.mark.parametrize("call", FORMATS)
def test_no_memory_format_is_that_of_the_operand(call: str, tg: Any, rng: np.random.Generator) -> None:
    values = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
    assert_same(*evaluate(f"x = t.tensor(values).permute(0, 3, 1, 2)\n{call}", tg, values=values))


TRANSFORMS = [
    "D.transforms.SigmoidTransform()", "D.StickBreakingTransform()", "D.transforms.SigmoidTransform().inv",
    "D.transform_to(D.constraints.unit_interval)", "D.biject_to(D.constraints.simplex)",
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_to_open_intervals_keep_off_their_ends(
    transform: str, dtype: str, tg: Any, rng: np.random.Generator
) -> None:
    values = (np.array([-200.0, 200.0, 0.0, 30.0]) * rng.uniform(1, 2)).astype(dtype)
    if transform.endswith("inv"):
        values = np.array([0.0, 1.0, rng.uniform(), 0.5], dtype)
    ours, theirs = evaluate(
        f"D = t.distributions\ny = ({transform})(t.tensor(values))\ny.log(), y.max(), (1 - y).log()", tg, values=values
    )
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5)


TREES = [
    "P.tree_map(f, {'a': 1, 'b': [2, 3]}, {'b': [20, 30], 'a': 10})",
    "P.tree_map(f, {'a': 1}, C.OrderedDict(a=10))",
    "P.tree_map(f, C.defaultdict(int, a=1, b=2), {'b': 20, 'a': 10})",
    "P.tree_map(f, C.deque([1, 2], 2), C.deque([10, 20]))",
    "P.tree_structure({'a': 0, 'b': 0}).flatten_up_to({'b': (1, 2), 'a': 3})",
    "P.tree_map(f, (1, 2), [10, 20])", "P.tree_map(f, (1, 2), (10,))", "P.tree_map(f, {'a': 1}, {'b': 1})",
    "P.tree_map(f, (1, 2), 3)",
]  # fmt: skip


@pytest.mark.parametrize("call", TREES)
def test_trees_are_matched_by_their_keys(call: str, tg: Any) -> None:
    ours, theirs = evaluate(
        "import collections as C\nP = __import__('importlib').import_module(t.__name__ + '.utils._pytree')\n"
        f"f = lambda one, other: (one, other)\n{call}",
        tg,
    )
    assert_same(ours, theirs) if isinstance(theirs, Exception) else None
    assert isinstance(theirs, Exception) or ours == theirs
    assert not isinstance(theirs, Exception) or "expected" in str(ours)


PATCHED = """
before = t.Tensor.as_subclass
t.cast_to, t.own = before, lambda x: x + 1
seen = []

class Kind(t.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})

x = t.cast_to(t.ones(2), Kind)
result = [type(t.cast_to(x, t.Tensor)) is t.Tensor, type(t.own(x)) is Kind, seen]
del t.cast_to, t.own
result
"""


def test_functions_that_a_program_puts_into_the_library_ask_nobody(tg: Any) -> None:
    ours, theirs = evaluate(PATCHED, tg)
    assert ours == theirs


SAVED = """
class Double(t.autograd.Function):
    @staticmethod
    def forward(ctx, x, other):
        ctx.save_for_backward(x, other)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None

Double.apply(t.tensor(values, requires_grad={needs}), {other})
"""


@pytest.mark.parametrize("other", ["None", "object()", "t.ones(2)"])
@pytest.mark.parametrize("needs", [True, False])
def test_values_that_are_no_tensors_are_refused_where_they_would_be_kept(
    needs: bool, other: str, tg: Any, rng: np.random.Generator
) -> None:
    values = rng.normal(size=3).astype(np.float32)
    assert_same(*evaluate(SAVED.replace("{needs}", str(needs)).replace("{other}", other), tg, values=values))
