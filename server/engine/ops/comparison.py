"""Comparisons, tests for special values, logic, bits, and selection by a mask."""

from __future__ import annotations

import numpy as np

from server.engine import functional as F
from server.engine.array_library.cache_blocks import number, select
from server.engine.registry import implements
from telegrad_protocol.ops import comparison as ops


@implements(ops.eq)
def eq(xp, input, other, *, out):
    xp.equal(input, other, out=out)


@implements(ops.ne)
def ne(xp, input, other, *, out):
    xp.not_equal(input, other, out=out)


@implements(ops.lt)
def lt(xp, input, other, *, out):
    xp.less(input, other, out=out)


@implements(ops.le)
def le(xp, input, other, *, out):
    xp.less_equal(input, other, out=out)


@implements(ops.gt)
def gt(xp, input, other, *, out):
    xp.greater(input, other, out=out)


@implements(ops.ge)
def ge(xp, input, other, *, out):
    xp.greater_equal(input, other, out=out)


@implements(ops.isclose)
def isclose(xp, input, other, rtol, atol, equal_nan, *, out):
    if input.dtype.kind in "iub":
        input, other = input.astype(np.float64), other.astype(np.float64)
    allowed = atol + xp.abs(rtol * other)
    near = xp.isfinite(other) & xp.isfinite(input) & (xp.abs(input - other) <= allowed)
    close = (input == other) | near
    xp.copyto(out, close | (xp.isnan(input) & xp.isnan(other)) if equal_nan else close)


@implements(ops.isnan)
def isnan(xp, input, *, out):
    xp.isnan(input, out=out)


@implements(ops.isinf)
def isinf(xp, input, *, out):
    xp.isinf(input, out=out)


@implements(ops.isfinite)
def isfinite(xp, input, *, out):
    xp.isfinite(input, out=out)


@implements(ops.isposinf)
def isposinf(xp, input, *, out):
    xp.equal(input, xp.inf, out=out)


@implements(ops.isneginf)
def isneginf(xp, input, *, out):
    xp.equal(input, -xp.inf, out=out)


@implements(ops.signbit)
def signbit(xp, input, *, out):
    if input.dtype.kind == "f" and xp is np:
        out[...] = np.signbit(input)  # NumPy 2.4 writes wrong elements into an ``out`` with gaps
    elif input.dtype.kind == "f":
        xp.signbit(input, out=out)
    else:
        xp.less(input, 0, out=out)


def _as_truth(xp, x):
    """An operand of a logical function, as a truth value if CuPy's logical functions do not take its complex dtype."""
    return x != 0 if xp is not np and getattr(x, "dtype", np.dtype(bool)).kind == "c" else x


@implements(ops.logical_and)
def logical_and(xp, input, other, *, out):
    xp.logical_and(_as_truth(xp, input), _as_truth(xp, other), out=out)


@implements(ops.logical_or)
def logical_or(xp, input, other, *, out):
    xp.logical_or(_as_truth(xp, input), _as_truth(xp, other), out=out)


@implements(ops.logical_xor)
def logical_xor(xp, input, other, *, out):
    xp.logical_xor(_as_truth(xp, input), _as_truth(xp, other), out=out)


@implements(ops.logical_not)
def logical_not(xp, input, *, out):
    xp.logical_not(_as_truth(xp, input), out=out)


@implements(ops.bitwise_and)
def bitwise_and(xp, input, other, *, out):
    xp.bitwise_and(input, other, out=out)


@implements(ops.bitwise_or)
def bitwise_or(xp, input, other, *, out):
    xp.bitwise_or(input, other, out=out)


@implements(ops.bitwise_xor)
def bitwise_xor(xp, input, other, *, out):
    xp.bitwise_xor(input, other, out=out)


@implements(ops.bitwise_not)
def bitwise_not(xp, input, *, out):
    xp.invert(input, out=out)


def _as_arrays(xp, dtype, *operands):
    return [xp.asarray(x if hasattr(x, "dtype") else number(x, dtype)) for x in operands]


@implements(ops.bitwise_left_shift)
def bitwise_left_shift(xp, input, other, *, out):
    input, other = _as_arrays(xp, out.dtype, input, other)
    is_beyond = (other < 0) | (other >= 8 * out.itemsize)
    shifted = xp.left_shift(input, xp.where(is_beyond, 0, other).astype(out.dtype))
    xp.copyto(out, xp.where(is_beyond, 0, shifted).astype(out.dtype))


@implements(ops.bitwise_right_shift)
def bitwise_right_shift(xp, input, other, *, out):
    input, other = _as_arrays(xp, out.dtype, input, other)
    limit = 8 * out.itemsize - (out.dtype.kind == "i")
    is_beyond = (other < 0) | (other >= limit)
    # An unsigned number is shifted in two steps, because a shift by its whole width is undefined.
    saturated = (
        xp.right_shift(xp.right_shift(input, limit - 1), 1) if out.dtype.kind == "u" else xp.right_shift(input, limit)
    )
    near = xp.right_shift(input, xp.where(is_beyond, 0, other).astype(out.dtype))
    xp.copyto(out, xp.where(is_beyond, saturated, near))


@implements(
    ops.where,
    movement=True,
    condition=None,
    input=lambda grad, condition: F.where(condition, grad, 0.0),
    other=lambda grad, condition: F.where(condition, 0.0, grad),
)
def where(xp, condition, input, other, *, out):
    mask = condition if condition.dtype.kind == "b" else condition != 0
    first, second = (x if hasattr(x, "dtype") else number(x, out.dtype) for x in (input, other))
    select(xp, mask, first, second, out)


@implements(ops.masked_fill, movement=True, mask=None, input=lambda grad, mask: F.masked_fill(grad, mask, 0))
def masked_fill(xp, input, mask, value, *, out):
    select(xp, mask, number(value, out.dtype), input, out)


@implements(
    ops.masked_fill_tensor,
    movement=True,
    mask=None,
    input=lambda grad, mask: F.masked_fill(grad, mask, 0),
    value=lambda grad, mask: F.where(mask, grad, 0.0),
)
def masked_fill_tensor(xp, input, mask, value, *, out):
    select(xp, mask, value.astype(out.dtype), input, out)
