"""Python's operators, functions with out=, and joining, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

OPERATORS = [
    "t.ones(3) + 2",
    "2 + t.ones(3)",
    "t.arange(3) + 1.5",
    "1.5 + t.arange(3)",
    "t.arange(3) + True",
    "t.ones(3) - 2",
    "2 - t.ones(3)",
    "t.ones(3) * 2j",
    "2j * t.ones(3)",
    "t.arange(1, 4) / 2",
    "2 / t.arange(1, 4)",
    "t.arange(1, 4) // 2",
    "7 // t.arange(1, 4)",
    "t.arange(1, 4) % 2",
    "7 % t.arange(1, 4)",
    "-7 % t.arange(1, 4)",
    "7.5 % t.arange(1, 4)",
    "t.arange(1, 4) ** 2",
    "2 ** t.arange(1, 4)",
    "2.0 ** t.arange(1, 4)",
    "t.arange(1, 4) ** -1",
    "t.arange(1.0, 4) ** 0.5",
    "t.ones(3) ** t.arange(3)",
    "t.ones(2, 3) @ t.ones(3)",
    "t.ones(3) @ t.ones(3)",
    "t.ones(2, 3) @ t.ones(3, 4)",
    "t.ones(2, 3) @ 2",
    "2 @ t.ones(2, 3)",
    "t.ones(2, 3) @ t.ones(2, 3)",
    "t.tensor([5]) & 4",
    "5 & t.tensor([4])",
    "t.tensor([5]) | 2",
    "5 | t.tensor([2])",
    "t.tensor([5]) ^ 1",
    "5 ^ t.tensor([1])",
    "t.tensor([True, False]) & t.tensor([True, True])",
    "~t.tensor([5])",
    "~t.tensor([True])",
    "~t.tensor([1.5])",
    "t.tensor([1]) << 2",
    "1 << t.tensor([2])",
    "t.tensor([8]) >> 2",
    "8 >> t.tensor([2])",
    "-t.ones(2)",
    "-t.tensor([True])",
    "+t.ones(2)",
    "+t.tensor([True])",
    "abs(t.tensor([-1, 2]))",
    "abs(t.tensor([3 + 4j]))",
    "t.ones(3) < 2",
    "2 < t.ones(3)",
    "t.ones(3) <= t.ones(3)",
    "t.ones(3) > 1",
    "t.ones(3) >= 1",
    "t.ones(3) == 1",
    "t.ones(3) != 1",
    "t.ones(3) == t.ones(2)",
    "t.ones(3) == None",
    "t.ones(3) != None",
    't.ones(3) == "a"',
    't.ones(3) < "a"',
    "t.ones(3) < None",
    "t.ones(3) < 1j",
    "t.ones(3) + [1, 2, 3]",
    't.ones(3) + "a"',
    '"a" + t.ones(3)',
    "t.ones(3) + None",
    "None + t.ones(3)",
    "t.ones(3) + t.ones(2)",
    "t.ones(3) + np.float32(2)",
    "np.float32(2) + t.ones(3)",
    "np.float64(2) * t.arange(3)",
    "np.int64(2) - t.ones(3)",
    "t.ones(3) / np.int32(2)",
    "t.ones(3) + np.ones(3)",
    "t.ones(3) ** np.float32(2)",
    "1 - t.tensor([True, False])",
    "t.tensor([True]) - t.tensor([True])",
    "t.tensor([True]) + t.tensor([True])",
    "t.tensor([True]) * 2",
    "divmod(t.tensor([7]), 2)",
    "round(t.tensor([1.5]))",
    """
    x = t.ones(3)
    x += 1
    x
    """,
    """
    x = t.ones(3)
    y = x
    x *= 2
    (y, x is y)
    """,
    """
    x = t.arange(3)
    x += 1.5
    x
    """,
    """
    x = t.arange(3)
    x /= 2
    x
    """,
    """
    x = t.arange(6.)
    x //= 4
    x
    """,
    """
    x = t.arange(6)
    x %= 4
    x
    """,
    """
    x = t.arange(6)
    x **= 2
    x
    """,
    """
    x = t.arange(6)
    x &= 3
    x
    """,
    """
    x = t.arange(6)
    x |= 1
    x
    """,
    """
    x = t.arange(6)
    x ^= 1
    x
    """,
    """
    x = t.arange(6)
    x <<= 1
    x
    """,
    """
    x = t.arange(6)
    x >>= 1
    x
    """,
    """
    x = t.eye(2)
    x @= t.ones(2, 2)
    x
    """,
    """
    x = t.ones(1)
    x += t.ones(3)
    x
    """,
    """
    x = t.ones(3)
    x -= t.ones(1)
    x
    """,
    """
    x = t.tensor([1])
    x += True
    x
    """,
    """
    x = t.tensor([True])
    x += 1
    x
    """,
    "len({hash(each) for each in (t.ones(3), t.ones(3))})",
    """
    x = t.ones(3)
    {x: 1}[x]
    """,
    """
    x = t.ones(2)
    x in [x]
    """,
    "t.add(t.ones(2), t.ones(2), alpha=2)",
    "t.add(t.ones(2), 1, alpha=2)",
    "t.add(t.ones(2))",
    "t.add(t.ones(2), t.ones(2), beta=2)",
    "t.add(input=t.ones(2), other=1)",
    "t.ones(2).add(other=1)",
    "t.sum(t.ones(2, 3), dim=1)",
    "t.sum(t.ones(2, 3), axis=1)",
    "t.ones(2, 3).sum(1, keepdim=True)",
    "t.ones(2, 3).sum((0, 1))",
    "t.ones(2, 3).sum([0])",
    "t.ones(2, 3).sum(dim=5)",
    "t.ones(2, 3).sum(dtype=t.float64)",
    "t.ones(2, 3).sum(1, 2, 3, 4)",
    "t.ones(2, 3).mean()",
    "t.arange(3).mean()",
    "t.ones(2, 3).max(1)",
    "t.ones(2, 3).max(1).values",
    "t.ones(2, 3).max(1)[1]",
    "t.ones(2, 3).max()",
    "t.max(t.ones(2), t.zeros(2))",
    "t.ones(2, 3).sort(1, descending=True).indices",
    "t.add(t.ones(2), 1, out=t.empty(2))",
    "t.add(t.ones(2), 1, out=t.empty(0))",
    "t.add(t.ones(2), 1, out=t.empty(2, dtype=t.int32))",
    "t.add(t.ones(2), 1, out=t.empty(2, dtype=t.float64))",
    "t.add(t.ones(2), 1, out=5)",
    """
    o = t.empty(2)
    r = t.mul(t.ones(2), 3, out=o)
    (r is o, o)
    """,
    """
    o = (t.empty(0), t.empty(0, dtype=t.int64))
    r = t.max(t.ones(2, 3), 1, out=o)
    (o, r)
    """,
    """
    import copy
    x = t.ones(2)
    y = copy.copy(x)
    y += 1
    (x, y)
    """,
    "t.cat([t.ones(2), t.zeros(1)])",
    "t.cat([])",
    "t.stack([t.ones(2), t.zeros(2)])",
    "t.cat(t.ones(2))",
    "t.where(t.tensor([True, False]), 1, 2)",
    "t.where(t.tensor([True, False]), t.ones(2), 2)",
    "t.where(t.tensor([True, False, True]))",
    "t.nonzero(t.tensor([0, 1, 2]))",
    "t.nonzero(t.tensor([0, 1, 2]), as_tuple=True)",
    "t.tensor([0, 1, 2]).nonzero()",
    "t.masked_select(t.arange(3), t.tensor([True, False, True]))",
    "t.ones(4).view(2, -1)",
    "t.ones(4).view(3, -1)",
    "t.ones(2, 3).t().view(6)",
    "t.ones(2, 3).reshape((3, 2))",
    "t.ones(2, 3).expand(4, -1, -1)",
    "t.ones(2, 3).permute(1, 0)",
    "t.ones(2, 3).flatten()",
    "t.ones(2, 1, 3).squeeze()",
    "t.ones(2, 3).unsqueeze(-1)",
    """
    x = t.ones(2, 3)
    x.unsqueeze_(0)
    x
    """,
    """
    x = t.ones(2, 3)
    x.t_()
    x
    """,
    """
    x = t.ones(2, 3)
    x.transpose_(0, 1)
    x
    """,
    """
    x = t.ones(1, 3)
    x.squeeze_()
    x
    """,
    "t.ones(5).split(2)",
    "t.ones(5).chunk(2)",
    "t.ones(2, 3).unbind(1)",
    "t.ones(4).clamp_(max=0.5)",
    "t.ones(4).clamp(min=2)",
    "t.ones(4).fill_(3)",
    "t.ones(4).zero_()",
    "t.ones(4).copy_(t.arange(4))",
    "t.ones(4).uniform_(2, 2)",
    "t.ones(4).add_(1).mul_(2)",
    "t.ones(3).expand(2, 3).add_(1)",
    "t.ones(3).copy_([1, 2, 3])",
    "t.pi",
    "t.inf",
]


@pytest.mark.parametrize("program", OPERATORS)
def test_operators_give_what_they_give_in_pytorch(tg: Any, program: str) -> None:
    assert_same(*evaluate(program, tg))
