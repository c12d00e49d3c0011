"""Element-wise operations on large tensors: threads take parts of the result, computed by the operation's own kernel.

Half precision is left to ``half_pieces``, which is asked where this module declines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library.dtypes import COMPUTED_IN
from server.engine.device import threads
from server.engine.operators import OPERATORS, Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

from . import vector_loops
from .half_pieces import takes_pieces

Array = Any


def _prepare(request: Request) -> Launch | None:
    operands = [(place, arg) for place, arg in enumerate(request.args) if isinstance(arg, Meta)]
    if len(request.outs) != 1 or not operands or not _are_computed_as_they_are(request, operands):
        return None
    out = request.outs[0]
    nbytes = sum([meta.nbytes for _, meta in operands]) + out.nbytes
    if nbytes < threads.LEAST_BYTES or not out.is_dense:
        return None
    op = request.op
    function = OPERATORS[op.name].kernels[keys.CPU].function
    names = [param.name for param in op.params[op.positional :]]
    options = dict(zip(names, request.args[op.positional :], strict=True))
    function = partial(function, np, **options)
    are_vectors = all([meta.shape == out.shape and meta.strides == out.strides for _, meta in operands])
    order = sorted(range(out.ndim), key=lambda d: -out.strides[d])
    length, step = (out.numel, threads.VECTOR) if are_vectors else (out.shape[order[0]], 1)
    if length < 2:
        return None
    is_in_order = order == sorted(order)
    as_vector = _flat if is_in_order else partial(_as_vector, order)
    cut = as_vector if are_vectors else partial(_with_first, order, out.ndim)
    is_single = are_vectors and request.compute is out.dtype is dtypes.float32
    rule = vector_loops.rule_of(op.name, options) if is_single else None
    return partial(_run, function, rule, request.args[: op.positional], (length, nbytes, step), cut)


def _are_computed_as_they_are(request: Request, operands: list[tuple[int, Meta]]) -> bool:
    """Whether the kernel takes the operands, and writes the result, in the types that they have."""
    if request.compute is None or request.outs[0].dtype in COMPUTED_IN or request.compute in COMPUTED_IN:
        return False
    promoted = request.op.promoted
    return all([meta.dtype is request.compute or place not in promoted for place, meta in operands])


def _flat(array: Array) -> Array:
    return array.reshape(-1)


def _as_vector(order: list[int], array: Array) -> Array:
    return array.transpose(order).reshape(-1)


def _with_first(order: list[int], ndim: int, array: Array) -> Array:
    """A view with all of the result's dimensions, by its falling strides."""
    return array[(None,) * (ndim - array.ndim)].transpose(order)


def _run(
    function: Callable[..., Any], rule: Any, bound: tuple[Any, ...], work: tuple[int, int, int],
    cut: Callable[[Array], Array], args: Any, outs: Any,
) -> None:  # fmt: skip
    target = cut(outs[0].array)
    operands = [_operand(args[place], item, cut) for place, item in enumerate(bound)]
    if rule is not None and vector_loops.run(rule, operands, target):
        return
    parts = threads.shares_of(*work)

    def run(part: int) -> None:
        piece = parts[part]
        function(*[_cut_first(operand, piece) for operand in operands], out=target[piece])

    threads.run(run, len(parts))


def _operand(arg: Any, bound: Any, cut: Callable[[Array], Array]) -> Any:
    """An operand for all parts: a float may differ from call to call, an integer fits the operation's type."""
    if arg.__class__ is Value:
        return cut(arg.array)
    return arg if arg.__class__ is float else bound


def _cut_first(operand: Any, piece: slice) -> Any:
    """A part of an array's first dimension, unless it is broadcast along that; a number as it is."""
    return operand[piece] if operand.__class__ is np.ndarray and operand.shape[0] != 1 else operand


for _operator in OPERATORS.values():
    if takes_pieces(_operator.op):
        prepares(_operator.op, keys.CPU, elementwise=True)(_prepare)
