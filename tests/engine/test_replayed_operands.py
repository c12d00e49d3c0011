"""Recorded passes take operands from where each was saved, also where two were the same memory at the recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import context
from server.engine import functional as F
from server.engine.autograd.graph import make_leaf
from server.engine.backward import backward
from tests.ops.adapters import EngineAdapter

from .repeated_gradients import assert_same, gradients_of

ALIKE = ("its own", "one tensor", "one tensor", "one tensor", "one memory", "its own", "one memory", "its own")
"""What the operands of each pass are; the first ones are recorded."""
FUNCTIONS: list[tuple[Callable[..., Any], list[bool]]] = [
    (F.mul, [True, True]), (F.matmul, [True, True]), (F.atan2, [True, False]), (F.lerp, [False, False, True]),
    (F.addcdiv, [False, True, True]), (F.addcmul, [False, True, False]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FUNCTIONS)), ids=[f.__name__ for f, _ in FUNCTIONS])
def test_operands_that_were_the_same_memory_are_told_apart(number: int, rng: np.random.Generator) -> None:
    adapter, (function, needs) = EngineAdapter(), FUNCTIONS[number]
    arrays = [torch.from_numpy(rng.uniform(0.5, 2, (3, 3))) for _ in [*needs, None]]

    def gradients(alike: str, cotangent: Any) -> list[Any]:
        first = adapter.tensor(arrays[0])
        operands = [first if alike == "one tensor" else first.alias() for _ in needs]
        if alike == "its own":
            operands = [adapter.tensor(array) for array in arrays[:-1]]
        leaves = []
        for place in [place for place, is_needed in enumerate(needs) if is_needed]:
            operands[place] = operands[place].alias()
            make_leaf(operands[place], True)
            leaves.append(operands[place])
        backward([function(*operands)], [leaves[0] if cotangent == "a leaf" else adapter.tensor(arrays[-1])])
        return gradients_of(adapter, leaves)

    passes = [(alike, cotangent) for cotangent in ("a leaf", "its own") for alike in ALIKE]
    expected = {}
    for one in passes:
        context.current.programs.clear()
        expected[one] = gradients(*one)
    context.current.programs.clear()
    for one in [*passes, *reversed(passes)]:
        assert_same(gradients(*one), expected[one])


def _twice(function: Callable[[Any], Any], join: Callable[[Any, Any], Any]) -> list[Callable[[Any, Any], Any]]:
    """Return what computes the same of two leaves, of one leaf twice, and of one leaf once, which is used twice."""

    def once(a: Any, _: Any) -> Any:
        made = function(a)
        return join(made, made)

    return [lambda a, b: join(function(a), function(b)), lambda a, _: join(function(a), function(a)), once]


@pytest.mark.parametrize("name", ["exp", "neg", "identity"])
def test_one_node_or_leaf_is_not_taken_for_two(name: str, rng: np.random.Generator) -> None:
    adapter, arrays = EngineAdapter(), [torch.from_numpy(rng.standard_normal((3,))) for _ in range(2)]
    made = _twice({"exp": F.exp, "neg": F.neg, "identity": lambda value: value}[name], F.mul)

    def gradients(number: int) -> list[Any]:
        leaves = [adapter.tensor(array, True) for array in arrays]
        result = made[number](*leaves)
        backward([F.add(F.sum(result), F.sum(F.exp(leaves[0])))], [None])
        return gradients_of(adapter, leaves)

    expected = []
    for number in range(len(made)):
        context.current.programs.clear()
        expected.append(gradients(number))
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        context.current.programs.clear()
        for number in [number for number in [*order, *order] for _ in range(3)]:
            assert_same(gradients(number), expected[number])
