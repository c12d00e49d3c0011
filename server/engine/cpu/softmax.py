"""The softmax family over the last dimension.

Where all numbers of a block have exponentials that are far from the ends of the type's range, nothing is subtracted
first: finding the largest of each row costs as much as the exponentials do, and the result would be the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import keys
from server.engine.ops import softmax as generic
from server.engine.registry import kernel
from telegrad_protocol.ops import softmax as ops

from .fallback import call_generic
from .memory import constant, scratch
from .rows import add_column, in_row_blocks, is_fast_or_half, row_dots, row_sums, times_column

Array = Any
_FINITE = 1e26
"""Sums of exponentials up to here are far from the largest number of float32."""
PRECISE = 1.6e5
"""Sums up to here have logarithms up to 12, which are rounded hardly more than if the largest had been taken off."""
_SMALL = 1e-6
"""Rows whose exponentials add up to less come near the smallest numbers of float32."""


def matrices(dim: int, *arrays: Array) -> list[Array] | None:
    """The operands as matrices whose rows are what is normalized, if their types and layouts allow that."""
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
    """Write exp(x - shift), unshifted where no row's sum exceeds ``limit``; ``is_large`` says that one will.

    Returns the sums of the rows, their inverses, and the shifts or None.
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
    """Whether all elements are; mostly their sum is, which is found in less time than their largest."""
    ones = constant(1, len(positive), positive.dtype.char)
    return bool(positive.dot(ones) <= limit or np.maximum.reduce(positive) <= limit)


@kernel(ops.softmax, keys.CPU, movement=True)
def softmax(xp, input, dim, dtype, *, out):
    found = matrices(dim, out, input)
    if found is None:
        call_generic(generic.softmax, input, dim, dtype, out=out)
        return
    shifts = None
    for _, (x, y) in in_row_blocks((found[1],), (found[0],)):
        _, inverses, shifts = exponentials(x, y, _FINITE, shifts is not None)
        times_column(y, inverses, y)


@kernel(ops.log_softmax, keys.CPU, movement=True)
def log_softmax(xp, input, dim, dtype, *, out):
    found = matrices(dim, out, input)
    if found is None:
        call_generic(generic.log_softmax, input, dim, dtype, out=out)
        return
    shifts = None
    for _, (x, y) in in_row_blocks((found[1],), (found[0],)):
        sums, _, shifts = exponentials(x, y, PRECISE, shifts is not None)
        np.copyto(y, x)
        if shifts is not None:
            add_column(y, -shifts)
        add_column(y, -np.log(sums, out=sums))


@kernel(ops._softmax_backward_data, keys.CPU, movement=True)
def softmax_backward(xp, grad_output, output, dim, input_dtype, *, out):
    found = matrices(dim, out, grad_output, output)
    if found is None:
        call_generic(generic._softmax_backward_data, grad_output, output, dim, input_dtype, out=out)
        return
    for _, (grad, y, result) in in_row_blocks((found[1], found[2]), (found[0],)):
        weighted = row_dots(grad, y)
        np.copyto(result, grad)
        add_column(result, np.negative(weighted, out=weighted))
        np.multiply(result, y, out=result)


@kernel(ops._log_softmax_backward_data, keys.CPU, movement=True)
def log_softmax_backward(xp, grad_output, output, dim, input_dtype, *, out):
    found = matrices(dim, out, grad_output, output)
    if found is None:
        call_generic(generic._log_softmax_backward_data, grad_output, output, dim, input_dtype, out=out)
        return
    for _, (grad, y, result) in in_row_blocks((found[1], found[2]), (found[0],)):
        shares = np.exp(y, out=scratch("shares", y.shape, y.dtype.char))
        times_column(shares, row_sums(grad), shares)
        np.subtract(grad, shares, out=result)
