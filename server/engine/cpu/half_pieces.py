"""Element-wise operations on large half-precision tensors: every piece goes through float32 while it is in the cache.

The operation's own kernel computes the pieces. Small tensors, and those whose elements do not lie side by side, are
left to the plan, which converts them as wholes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library.dtypes import HALVES, NUMPY_DTYPES
from server.engine.operators import OPERATORS, Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op

from .halves import is_half, narrow, widened
from .memory import BLOCK_BYTES, scratch

Array = Any
_STEP = BLOCK_BYTES // 4


def _prepare(request: Request) -> Launch | None:
    metas = [arg for arg in request.args if isinstance(arg, Meta)]
    if request.compute not in HALVES or len(request.outs) != 1 or not _lie_alike(request.outs[0], metas):
        return None
    if request.outs[0].numel <= _STEP or any([m.dtype is not request.compute for m in metas]):
        return None
    op = request.op
    function = OPERATORS[op.name].kernels[keys.CPU].function
    names = [param.name for param in op.params[op.positional :]]
    fixed = dict(zip(names, request.args[op.positional :], strict=True))
    out = request.outs[0]
    order = sorted(range(out.ndim), key=lambda d: -out.strides[d])
    return partial(_run, partial(function, np, **fixed), op.positional, _working_type(out.dtype), order)


def _lie_alike(out: Meta, metas: list[Meta]) -> bool:
    """Whether all elements lie in one dense order, so that pieces of memory match."""
    return out.is_dense and bool(metas) and all([m.shape == out.shape and m.strides == out.strides for m in metas])


def _working_type(dtype: DType) -> str:
    return "f" if dtype in HALVES else NUMPY_DTYPES[dtype].char


def _run(
    function: Callable[..., Any], positional: int, char: str, order: list[int], args: Any, outs: Any
) -> None:  # fmt: skip
    """``order`` is the dimensions' in memory, in which all operands become vectors."""
    target = outs[0].array.transpose(order).reshape(-1)
    operands = [arg.array.transpose(order).reshape(-1) if arg.__class__ is Value else arg for arg in args[:positional]]
    for start in range(0, target.size, _STEP):
        part = target[start : start + _STEP]
        result = scratch("half result", part.shape, char)
        function(*[_piece(item, start, place) for place, item in enumerate(operands)], out=result)
        narrow(result, part) if is_half(part) else np.copyto(part, result)


def _piece(item: Any, start: int, place: int) -> Any:
    return widened(item[start : start + _STEP], f"half operand {place}") if item.__class__ is np.ndarray else item


def _takes_pieces(op: Op) -> bool:
    info = OPERATORS[op.name].kernels.get(keys.CPU)
    if op.base is not op or not op.promotion or info is None:
        return False
    asks = info.movement or info.wants_meta or info.wants_generator
    has_tensor_options = any(param.kind.holds_tensors for param in op.params[op.positional :])
    return info.wants_out and not asks and not has_tensor_options


for _operator in OPERATORS.values():
    if _takes_pieces(_operator.op):
        prepares(_operator.op, keys.CPU, elementwise=True)(_prepare)
