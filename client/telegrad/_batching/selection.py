"""Operations whose results have a shape that elements decide, where all elements of a batch share these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad_protocol.layout import broadcast_shapes
from telegrad_protocol.ops import Op

from .case import dim_of
from .tensor import BatchedTensor


def fixed_selection(op: Op, bound: Sequence[Any], level: int) -> Any:
    """Return the result for the whole batch; None where each element of it has a shape of its own."""
    x = bound[0]
    if len(bound) < 2 or not _is_batched(x, level) or _is_batched(bound[1], level):
        return None
    if op.public == "masked_select":
        shape = broadcast_shapes("masked_select", tuple(x.shape), tuple(bound[1].shape))
        physical = x._physical
        size = physical.shape[0]
        spread = physical.reshape(size, *(1,) * (len(shape) - x.ndim), *x.shape).expand(size, *shape)
        places = function("nonzero")(bound[1].expand(shape).reshape(-1))[:, 0]
        return BatchedTensor(level, spread.reshape(size, math.prod(shape)).index_select(1, places))
    if op.name == "repeat_interleave.Tensor":
        repeats, dim, *rest = bound[1:]
        physical = x._physical
        if dim is None:
            physical, dim = physical.reshape(physical.shape[0], x.numel()), 0
        result = function("repeat_interleave")(physical, repeats, dim_of(dim, max(x.ndim, 1)), output_size=rest[0])
        return BatchedTensor(level, result)
    return None


def _is_batched(value: Any, level: int) -> bool:
    return isinstance(value, BatchedTensor) and value._level == level
