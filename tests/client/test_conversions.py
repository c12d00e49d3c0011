"""Types, places and parts of tensors, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

CONVERSIONS = [
    "t.ones(2).to(t.float64)",
    't.ones(2).to("cpu")',
    't.ones(2).to(device="cpu", dtype=t.int32)',
    't.ones(2).to("cpu", t.float16)',
    "t.ones(2).to(t.ones(1, dtype=t.int8))",
    """
    x = t.ones(2)
    x.to(t.float32) is x
    """,
    """
    x = t.ones(2)
    x.to(t.float32, copy=True) is x
    """,
    """
    x = t.ones(2)
    x.to("cpu", t.float32, False, True) is x
    """,
    """
    x = t.ones(2)
    x.to(t.float32, False, True) is x
    """,
    "t.ones(2).to(foo=1)",
    't.ones(2).to("float32")',
    "t.ones(2).to()",
    "t.ones(2).to(None)",
    "t.ones(2, 3).t().to(t.float64)",
    "t.ones(2, 3)[:, 1:].to(t.float64)",
    "t.ones(2).double()",
    "t.ones(2).half()",
    "t.ones(2).bfloat16()",
    "t.ones(2).int()",
    "t.ones(2).long()",
    "t.ones(2).short()",
    "t.ones(2).char()",
    "t.ones(2).byte()",
    "t.ones(2).bool()",
    "t.ones(2).cfloat()",
    """
    x = t.ones(2)
    x.float() is x
    """,
    "t.ones(2).cpu()",
    "t.ones(2).type_as(t.ones(1).int())",
    """
    x = t.ones(2)
    x.contiguous() is x
    """,
    "t.ones(2, 3).t().contiguous()",
    "t.ones(2, 3).T",
    "t.ones(2, 3, 4).mT",
    "t.ones(3).mT",
    "t.ones(2, 3).H",
    "t.tensor([1 + 2j]).real",
    "t.tensor([1 + 2j]).imag",
    "t.tensor([1.5]).real",
    "t.tensor([1.5]).imag",
    """
    x = t.tensor([1 + 2j, 3])
    x.real = 5
    x
    """,
]

PARTS = [
    """
    x = t.zeros(4)
    x[1] = 5
    x
    """,
    """
    x = t.zeros(4)
    x[1:3] = t.ones(2)
    x
    """,
    """
    x = t.zeros(4)
    x[t.tensor([True, False, True, False])] = 3
    x
    """,
    """
    x = t.arange(12).view(3, 4)
    (x[1], x[:, 1], x[..., 0], x[None], x[1:, ::2], x[[0, 2]], x[x > 5], x[-1, -1])
    """,
    """
    x = t.arange(3)
    x[5]
    """,
    """
    x = t.arange(3)
    x[0, 0]
    """,
    """
    x = t.arange(3)
    x["a"]
    """,
    """
    x = t.arange(3)
    x[1.5]
    """,
]


@pytest.mark.parametrize("program", CONVERSIONS)
def test_conversions_give_what_they_give_in_pytorch(tg: Any, program: str) -> None:
    assert_same(*evaluate(program, tg))


@pytest.mark.parametrize("program", PARTS)
def test_parts_are_read_and_written_as_in_pytorch(tg: Any, program: str) -> None:
    assert_same(*evaluate(program, tg))
