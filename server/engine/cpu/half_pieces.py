"""Element-wise operations on large half-precision tensors: every piece passes through float32 while it is in the cache.

A compiled loop converts elements in registers where there is one (``vector_loops``). Otherwise the operation's own
kernel computes pieces. Small tensors, and operands of different layouts, are left to the plan,
which converts whole tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.dtypes import HALVES, NUMPY_DTYPES
from server.engine.device import threads
from server.engine.operators import OPERATORS, Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op

from . import vector_loops
from .halves import is_half, narrow, widened
from .memory import BLOCK_BYTES, scratch

Array = Any
_STEP = BLOCK_BYTES // 4
"""Elements of a piece: a block of float32."""


def _prepare(request: Request) -> Launch | None:
    metas = [arg for arg in request.args if isinstance(arg, Meta)]
    if request.compute not in HALVES or len(request.outs) != 1 or not _have_one_layout(request.outs[0], metas):
        return None
    if request.outs[0].numel < compiled.LEAST or any([m.dtype is not request.compute for m in metas]):
        return None
    op = request.op
    function = OPERATORS[op.name].kernels[keys.CPU].function
    names = [param.name for param in op.params[op.positional :]]
    fixed = dict(zip(names, request.args[op.positional :], strict=True))
    out = request.outs[0]
    order = sorted(range(out.ndim), key=lambda d: -out.strides[d])
    rule = vector_loops.rule_of(op.name, fixed) if out.dtype is request.compute else None
    if rule is None and out.numel <= _STEP:
        return None
    return partial(_run, partial(function, np, **fixed), rule, op.positional, _working_type(out.dtype), order)


def _have_one_layout(out: Meta, metas: list[Meta]) -> bool:
    """Whether all operands and the result are dense and have the same strides, so that pieces of memory correspond."""
    return out.is_dense and bool(metas) and all([m.shape == out.shape and m.strides == out.strides for m in metas])


def _working_type(dtype: DType) -> str:
    return "f" if dtype in HALVES else NUMPY_DTYPES[dtype].char


def _run(
    function: Callable[..., Any], rule: Any, positional: int, char: str, order: list[int], args: Any, outs: Any
) -> None:  # fmt: skip
    """Run a compiled loop, or else the function piece by piece.

    ``order``, dimensions by falling stride, makes vectors of all operands.
    """
    target = outs[0].array.transpose(order).reshape(-1)
    operands = [arg.array.transpose(order).reshape(-1) if arg.__class__ is Value else arg for arg in args[:positional]]
    if rule is not None and vector_loops.run(rule, operands, target):
        return

    def run(piece: int) -> None:
        start = piece * _STEP
        part = target[start : start + _STEP]
        result = scratch("half result", part.shape, char)
        function(*[_piece(operand, start, i) for i, operand in enumerate(operands)], out=result)
        narrow(result, part) if is_half(part) else np.copyto(part, result)

    threads.run(run, -(-target.size // _STEP))


def _piece(operand: Any, start: int, position: int) -> Any:
    """An array's piece in float32; a scalar operand as it is."""
    if operand.__class__ is not np.ndarray:
        return operand
    return widened(operand[start : start + _STEP], f"half operand {position}")


def takes_pieces(op: Op) -> bool:
    """Whether the operation is element-wise and its kernel asks for nothing but operands, scalars and ``out``."""
    info = OPERATORS[op.name].kernels.get(keys.CPU)
    if op.base is not op or not op.promotion or info is None:
        return False
    asks = info.movement or info.wants_meta or info.wants_generator
    has_tensor_options = any(param.kind.holds_tensors for param in op.params[op.positional :])
    return info.wants_out and not asks and not has_tensor_options


for _operator in OPERATORS.values():
    if takes_pieces(_operator.op):
        prepares(_operator.op, keys.CPU, elementwise=True)(_prepare)
