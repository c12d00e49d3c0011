"""The softmax family over the last dimension.

If the exponentials of a block's elements are far from overflow and underflow, the row maxima are not subtracted first:
finding a maximum costs as much as the exponentials do, and the result would be the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import keys
from server.engine.ops.layers import softmax as generic
from server.engine.registry import kernel
from telegrad_protocol.ops.layers import softmax as ops

from .fallback import call_generic
from .memory import constant, scratch
from .row_loops import loops_for, run_rows
from .rows import (  # fmt: skip
    add_column,
    in_row_blocks,
    is_fast_or_half,
    row_dots,
    row_sums,
    times_column,
)

Array = Any
_FINITE = 1e26
"""The largest sum of exponentials that counts as far from overflow in float32."""
PRECISE = 1.6e5
"""The largest sum whose logarithm (12) is rounded hardly more than if the maximum had been subtracted."""
_SMALL = 1e-6
"""The smallest sum of exponentials that counts as far from underflow in float32."""


def matrices(dim: int, *arrays: Array) -> list[Array] | None:
    """The operands as matrices whose rows are normalized, if their dtypes and layouts allow that; else None."""
    first = arrays[0]
    if first.ndim == 0 or dim not in (-1, first.ndim - 1):
        return None
    kind = first.dtype
    for array in arrays:
        if array.dtype is not kind or not is_fast_or_half(array):
            return None
    return list(arrays) if first.ndim == 2 else [a.reshape(-1, first.shape[-1]) for a in arrays]


def exponentials(
    x: Array, out: Array, limit: float, is_large: bool = False
) -> tuple[Array, Array, Array | None]:  # fmt: skip
    """Write exp(x - shift), with shift 0 if no row's sum exceeds ``limit``; ``is_large`` tells that one will.

    Return the sums of the rows, their inverses, and the shifts or None.
    """
    if not is_large:
        sums = row_sums(np.exp(x, out=out))
        inverses = np.divide(1, sums)
        if _are_below(sums, limit) and _are_below(inverses, 1 / _SMALL):
            return sums, inverses, None
    largest = np.maximum.reduce(x, axis=1)
    np.copyto(out, x)
    add_column(out, -largest)
    sums = row_sums(np.exp(out, out=out))
    return sums, np.divide(1, sums), largest


def _are_below(positive: Array, limit: float) -> bool:
    """Whether all positive elements are at most ``limit``; usually their sum is, which is faster than their maximum."""
    ones = constant(1, len(positive), positive.dtype.char)
    return bool(positive.dot(ones) <= limit or np.maximum.reduce(positive) <= limit)


@kernel(ops.softmax, keys.CPU, movement=True)
def softmax(xp, input, dim, dtype, *, out):
    operands = matrices(dim, out, input)
    if operands is None:
        call_generic(generic.softmax, input, dim, dtype, out=out)
        return
    loops = loops_for(*operands)
    if loops is not None:
        run_rows(loops.softmax[out.dtype.char], (operands[1], operands[0]), lambda rows, x, y: (x, y, False))
        return
    shifts = None
    for _, (x, y) in in_row_blocks((operands[1],), (operands[0],)):
        _, inverses, shifts = exponentials(x, y, _FINITE, shifts is not None)
        times_column(y, inverses, y)


@kernel(ops.log_softmax, keys.CPU, movement=True)
def log_softmax(xp, input, dim, dtype, *, out):
    operands = matrices(dim, out, input)
    if operands is None:
        call_generic(generic.log_softmax, input, dim, dtype, out=out)
        return
    loops = loops_for(*operands)
    if loops is not None:
        run_rows(loops.softmax[out.dtype.char], (operands[1], operands[0]), lambda rows, x, y: (x, y, True))
        return
    shifts = None
    for _, (x, y) in in_row_blocks((operands[1],), (operands[0],)):
        sums, _, shifts = exponentials(x, y, PRECISE, shifts is not None)
        np.copyto(y, x)
        if shifts is not None:
            add_column(y, -shifts)
        add_column(y, -np.log(sums, out=sums))


@kernel(ops._softmax_backward_data, keys.CPU, movement=True)
def softmax_backward(xp, grad_output, output, dim, input_dtype, *, out):
    operands = matrices(dim, out, grad_output, output)
    if operands is None:
        call_generic(generic._softmax_backward_data, grad_output, output, dim, input_dtype, out=out)
        return
    loops = loops_for(*operands)
    if loops is not None:
        run_rows(
            loops.softmax_backward[out.dtype.char], (*operands[1:], operands[0]), lambda rows, g, y, x: (g, y, x, False)
        )
        return
    for _, (grad, y, result) in in_row_blocks((operands[1], operands[2]), (operands[0],)):
        weighted = row_dots(grad, y)
        np.copyto(result, grad)
        add_column(result, np.negative(weighted, out=weighted))
        np.multiply(result, y, out=result)


@kernel(ops._log_softmax_backward_data, keys.CPU, movement=True)
def log_softmax_backward(xp, grad_output, output, dim, input_dtype, *, out):
    operands = matrices(dim, out, grad_output, output)
    if operands is None:
        call_generic(generic._log_softmax_backward_data, grad_output, output, dim, input_dtype, out=out)
        return
    loops = loops_for(*operands)
    if loops is not None:
        run_rows(
            loops.softmax_backward[out.dtype.char], (*operands[1:], operands[0]), lambda rows, g, y, x: (g, y, x, True)
        )
        return
    for _, (grad, y, result) in in_row_blocks((operands[1], operands[2]), (operands[0],)):
        probabilities = np.exp(y, out=scratch("shares", y.shape, y.dtype.char))
        times_column(probabilities, row_sums(grad), probabilities)
        np.subtract(grad, probabilities, out=result)
