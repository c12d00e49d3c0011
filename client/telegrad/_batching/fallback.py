"""Operations without a rule: they are computed for one element of the batch after another."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor

from .case import Case, Operand

_WARNED: Final[set[str]] = set()


def run(case: Case) -> Any:
    """Return the results for all elements, one call each; warns at the first call of an operation."""
    if case.name not in _WARNED:
        _WARNED.add(case.name)
        warnings.warn(
            f"There is a performance drop because we have not yet implemented the batching rule for {case.name}: it is "
            "called for each element of the batch.",
            stacklevel=2,
        )
    return looped(case)


def looped(case: Case, before_each: Callable[[], None] | None = None) -> Any:
    """Return the results for all elements, one call each; ``before_each`` is called before every one of them."""
    lines = []
    for number in range(case.size):
        if before_each is not None:
            before_each()
        lines.append(case.call(*[_element(value, number) for value in case.args]))
    first = lines[0]
    if isinstance(first, Tensor):
        return function("stack")(lines)
    if first is None:
        return None
    columns = [function("stack")(list(column)) for column in zip(*lines, strict=True)]
    return first._make(columns) if hasattr(first, "_make") else tuple(columns)


def _element(value: Any, number: int) -> Any:
    if isinstance(value, Operand):
        return value.tensor.select(0, number) if value.is_batched else value.tensor
    if isinstance(value, tuple):
        return tuple([_element(item, number) for item in value])
    return value


def empty(case: Case) -> Any:
    """Return the results for a batch of no elements."""
    device = case.operands()[0].tensor.device
    made = [function("zeros")((0, *out.shape), dtype=out.dtype, device=device) for out in case.outs]
    return made[0] if len(made) == 1 and not case.op.returns else tuple(made)
