"""``Tensor`` and its subclasses called with a tensor: the same memory, through which gradients flow."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

CLASSES = """
    class Plain(t.Tensor):
        pass
    class Made(t.Tensor):
        def __new__(cls, data, note=None):
            return super().__new__(cls, data)
        def __init__(self, data, note=None):
            self.note = note
    class Asking(t.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})
    x = t.tensor([1.0, 2.0], requires_grad=True)
    sources = {"result": x * 3, "leaf": x, "data": (x * 3).detach(), "ones": t.ones(2)}
"""


@pytest.mark.parametrize("source", ["result", "leaf", "data", "ones"])
@pytest.mark.parametrize("kind", ["Plain", "Made", "Asking", "t.Tensor", "t.FloatTensor", "t.ones(1).new"])
def test_it_has_the_history_and_the_memory_of_the_tensor(tg: Any, kind: str, source: str) -> None:
    program = f"""
    source = sources[{source!r}]
    made = {kind}(source)
    seen = (made.requires_grad, made.is_leaf, made.grad_fn is None, made._base is source)
    if made.requires_grad:
        (made * made).sum().backward()
    with t.no_grad():
        made.mul_(2)
    (seen, x.grad, source.detach(), made.as_subclass(t.Tensor).detach())
    """
    assert_same(*evaluate(CLASSES + program, tg))


def test_it_has_no_history_where_none_is_recorded(tg: Any) -> None:
    program = """
    with t.no_grad():
        made = Plain(sources["result"])
    (made.requires_grad, Plain(t.ones(2, dtype=t.float64)).dtype)
    """
    assert_same(*evaluate(CLASSES + program, tg))
