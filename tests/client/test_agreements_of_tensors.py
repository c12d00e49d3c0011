"""What PyTorch's own tests of tensors ask for beside samples: memory that is shared, layouts, types of errors."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

INDEXED = [
    "x[i][0] = 5.0", "x[i].add_(1)", "x[i, :].fill_(2)", "x[:, i].fill_(2)", "x[i, i + 1].fill_(2)", "x[(i,)].zero_()",
    "x[i][t.tensor([0, 1])] = 7.0", "[x[a].__setitem__(b, 1.0) for a, b in t.tensor([[0, 1], [2, 0]])]",
    "x[x.sum(1).argmax()].mul_(3)", "x[i.int()].zero_()", "x[i - 2].zero_()",
]  # fmt: skip


@pytest.mark.parametrize("statement", INDEXED)
def test_what_an_integer_tensor_selects_is_part_of_the_tensor(statement: str, tg: Any) -> None:
    assert_same(*evaluate(f"x, i = t.arange(9.0).reshape(3, 3), t.tensor(1)\n{statement}\nx", tg))
    tracked = f"""
    leaf, i = t.arange(9.0).reshape(3, 3).requires_grad_(), t.tensor(1)
    x = leaf * 1
    {statement}
    (x.sum() * 2).backward()
    leaf.grad
    """
    assert_same(*evaluate(tracked, tg))


@pytest.mark.parametrize("index", ["t.tensor(3)", "t.tensor(-4)", "t.tensor(1.0)"])
def test_integer_tensors_out_of_range_are_refused(index: str, tg: Any) -> None:
    assert_same(*evaluate(f"t.zeros(3, 3)[{index}]", tg))
