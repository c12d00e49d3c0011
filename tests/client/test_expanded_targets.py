"""Selected elements of expanded tensors are written as PyTorch writes them, with a warning; all others are refused."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

PROGRAMS = [
    "x = t.zeros(1).expand(2)\ny = x.masked_fill_(t.tensor([True, False]), 1.)\n(y is x, x)",
    "x = t.zeros(2, 1).expand(2, 3)\nx.masked_fill_(t.tensor([True, False, False]), t.tensor(2.))\nx",
    "x = t.zeros(2, 1).expand(2, 3)\nx.masked_fill_(t.tensor([[False] * 3, [True, False, True]]), 5)\nx",
    "x = t.zeros(3)\nv = x.expand(2, 3)\nv.masked_fill_(t.tensor([True, False, True]), 5)\n(x, v)",
    "x = t.zeros(1, 3).expand(2, 3)\nx.index_fill_(0, t.tensor([1]), 1.)\nx",
    "x = t.zeros(1, 3).expand(2, 3)\nx.index_fill_(1, t.tensor([1, 2]), 1.)\nx",
    "x = t.zeros(1, 3).expand(2, 3)\nx.index_fill_(0, t.tensor([], dtype=t.int64), 1.)\nx",
    "x = t.zeros(1).expand(2)\nx.index_put_((t.tensor([0]),), t.tensor(4.))\nx",
    "x = t.zeros(3, 1).expand(3, 2)\nx.index_put_((t.tensor([0, 2]),), t.tensor([[3.], [4.]]))\nx",
    "x = t.zeros(1, 3).expand(2, 3)\nx[t.tensor([1]), t.tensor([2])] = 3.\nx",
    "x = t.zeros(1, 3).expand(2, 3)\nx[t.tensor([True, False])] = 3.\nx",
    "x = t.zeros(1).expand(2)\nx[t.tensor([True, False])] = 3\nx[t.tensor([False, False])] = 4\nx",
    "w = t.ones(3, requires_grad=True)\nx = w * 2\nx.expand(2, 3).masked_fill_(t.tensor([True, False, True]), 0.)\n"
    "x.detach()",
    "t.zeros(1).expand(2).add_(1)",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_selected_elements_of_expanded_tensors(tg: Any, program: str) -> None:
    for _ in range(2):  # the second time the way of the call is known
        assert_same(*evaluate(program, tg))
