"""Which form of an operation takes the arguments of a call, and the arguments as it has them."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.ops import PUBLIC, Op


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def bound_call(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Op, tuple[Any, ...]] | None:
    """Return the operation that takes these arguments, and the arguments in declared order; None if there is none."""
    for op in PUBLIC[public]:
        if op.form == "out":
            continue
        try:
            return op, op.normalize(op.bind(args, kwargs), _is_tensor)
        except ArgumentTypeError:
            continue
    return None
