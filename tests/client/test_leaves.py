"""Leaves and their attributes: writes to them, `data`, `detach`, `requires_grad` and `grad`, as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

PROGRAMS = [
    """
    x = t.ones(3, requires_grad=True)
    x += 1
    x
    """,
    """
    x = t.ones(3, requires_grad=True) * 2
    x += 1
    x
    """,
    """
    x = t.ones(3, requires_grad=True)
    y = x[0]
    y += 1
    y
    """,
    "t.add(t.ones(2, requires_grad=True), 1, out=t.empty(2))",
    "t.add(t.ones(2), 1, out=t.empty(2, requires_grad=True))",
    "t.ones(2, requires_grad=True).to(t.float64)",
    "t.ones(2, requires_grad=True).to(t.int32)",
    """
    x = t.ones(3)
    x.data
    """,
    """
    x = t.ones(3, requires_grad=True)
    (x.data, x.data is x)
    """,
    """
    x = t.ones(3, requires_grad=True)
    x.data = t.zeros(2)
    x
    """,
    """
    x = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y, given = x.exp(), t.tensor([4.0, 5.0, 6.0])
    z = x.exp()
    y.register_hook(lambda g: g * 3)
    with t.no_grad():
        y.data = given
    z.data = given
    z.register_hook(lambda g: g + 1)
    given.mul_(2)
    (y * y + z * z).sum().backward()
    (y, y.requires_grad, y.is_leaf, z, x.grad)
    """,
    """
    x = t.ones(3, requires_grad=True)
    x.data += 1
    x
    """,
    """
    x = t.ones(3, requires_grad=True)
    y = x.detach()
    y += 1
    (x, y)
    """,
    """
    x = t.ones(3, requires_grad=True)
    (x * 2).detach()
    """,
    """
    x = t.ones(3, requires_grad=True)
    y = x * 2
    y.detach_()
    (y, y.is_leaf)
    """,
    """
    x = t.ones(3)
    x.requires_grad = True
    x
    """,
    """
    x = t.ones(3, requires_grad=True) * 2
    x.requires_grad = False
    x
    """,
    """
    x = t.ones(3, requires_grad=True) * 2
    x.requires_grad_(True)
    x
    """,
    """
    x = t.ones(3).int()
    x.requires_grad_()
    """,
    """
    x = t.ones(3)
    x.grad
    """,
    """
    x = t.ones(3, requires_grad=True)
    x.grad = t.ones(2)
    """,
    """
    x = t.ones(3, requires_grad=True)
    x.grad = t.ones(3).double()
    """,
    """
    x = t.ones(3, requires_grad=True)
    x.grad = t.ones(3)
    x.grad
    """,
    """
    x = t.ones(3, requires_grad=True)
    x.grad = 5
    """,
    """
    x = t.ones(3, requires_grad=True)
    x.grad = t.ones(3)
    x.grad = None
    x.grad
    """,
    """
    x = t.ones(3, requires_grad=True)
    x.grad = x
    """,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_leaves_are_as_pytorchs(tg: Any, program: str) -> None:
    assert_same(*evaluate(program, tg))
