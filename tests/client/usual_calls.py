"""Calls that are done in C, and such that are left to Python, by what is particular about them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from telegrad._ops import functions
from telegrad_protocol.errors import ShapeError

TURNS = 100
"""How often each is made where it is looked whether something is left behind."""
EACH = {name: functions.function(f"_foreach_{name}") for name in ("add_", "mul", "mul_", "neg", "zero_")}


@cache
def own_class(tg: Any) -> type:
    """A class of the program's tensors."""
    return type("Own", (tg.Tensor,), {})


def usual_calls(tg: Any) -> dict[str, Callable[[], Any]]:
    """Calls that are done in C, such that every branch is taken, and such that are left to Python."""
    x, y, leaf, scalar = tg.ones(2, 3), tg.ones(2, 3), tg.ones(2, 3, requires_grad=True), tg.tensor(2.0)
    own, parameter = x.as_subclass(own_class(tg)), tg.nn.Parameter(tg.ones(3))
    mean, base = tg.zeros(3), tg.ones(2, 3)
    root = tg.ones(3, 2)
    view = root.t()
    index = tg.tensor([1, 0])

    def refused() -> None:
        with pytest.raises(ShapeError):
            x @ y

    def overdue() -> Any:
        changed = tg.zeros(2, 3)
        view = changed.view(6)
        changed.add_(leaf)
        return view + 1

    def written_into_a_view() -> Any:
        with tg.no_grad():
            return view.add_(y)

    def written_into_what_it_shares() -> Any:
        with tg.no_grad():
            return view.add_(root.t())

    def in_inference_mode() -> Any:
        with tg.inference_mode():
            return x + y, x.t()

    return {
        "two operands": lambda: x + y, "a number": lambda: x * 0.5, "zero": lambda: x * -0.0,
        "reflected": lambda: 2 - x, "recorded": lambda: leaf * y + leaf, "a parameter": lambda: leaf + parameter,
        "an attribute": lambda: tg.softmax(x, dim=-1), "integers": lambda: tg.nn.functional.layer_norm(x, (3,)),
        "a view": lambda: x.t(), "a recorded view": lambda: leaf.view(3, 2), "a subclass": lambda: own + y,
        "a changed base": overdue, "constants": lambda: tg.nn.functional.batch_norm(leaf, mean, parameter),
        "inference": in_inference_mode, "in turn": lambda: tg.where(x > 0, x, leaf), "refused": refused,
        "a list": lambda: tg.cat([x, y]), "a recorded list": lambda: tg.stack((x, leaf, *[leaf] * 9)),
        "parts in a list": lambda: tg.stack([root[0], root[1]]), "a list beside an operand": lambda: leaf[index],
        "lists that are changed": lambda: EACH["add_"]([base, root], 1.5), "sizes": lambda: x.view(root.shape),
        "lists that give lists": lambda: EACH["neg"]([x, y]), "an item of a shape": lambda: root[1],
        "several": lambda: leaf.max(0), "in place": lambda: base.mul_(scalar),
        "a number in place": lambda: base.add_(1), "copied": lambda: base.copy_(mean), "filled": lambda: base.zero_(),
        "a view in place": written_into_a_view, "a base in place": lambda: root.add_(mean[:2]),
        "shared in place": written_into_what_it_shares,
        "recorded in place": lambda: (leaf * 2).mul_(scalar),
        "no operand": lambda: tg.zeros(2), "a shape": lambda: tg.ones(2, device="meta") + 1, "unary": lambda: -leaf,
    }  # fmt: skip
