"""Element-wise functions of float32 and float64 that NumPy does not vectorise, and others in cache-sized pieces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.ops import elementary as generic_elementary
from server.engine.ops import pointwise as generic
from server.engine.registry import kernel
from telegrad_protocol.ops import elementary
from telegrad_protocol.ops import pointwise as ops

from .memory import filled, in_pieces, scratch

Array = Any
_LEAST_CORRECTION = -(2.0**-23)
"""A lower bound of the relative error of rounding 1 + x to float32."""


def log1p_unit(x: Array) -> None:
    """x = log(1 + x) in place, for x in [0, 1]: the logarithm of the rounded sum plus the rounding error."""
    total = np.add(x, 1, out=scratch("total", x.shape, x.dtype.char))
    rounded = np.subtract(total, 1, out=scratch("rounded", x.shape, x.dtype.char))
    x -= rounded
    x += np.log(total, out=total)


@kernel(elementary.log1p, keys.CPU)
def log1p(xp, input, *, out):
    """log(u) + (x - (u - 1)) / u, where u is 1 + x rounded; at -1 and infinity the correction is NaN and is dropped."""
    if out.dtype.char != "f":
        generic_elementary.log1p(xp, input, out=out)
        return
    for x, y in in_pieces(input, out):
        total = np.add(x, 1, out=scratch("total", x.shape, x.dtype.char))
        correction = np.subtract(total, 1, out=scratch("rounded", x.shape, x.dtype.char))
        np.subtract(x, correction, out=correction)
        correction /= total
        np.fmax(correction, filled(_LEAST_CORRECTION, correction.shape, correction.dtype.char), out=correction)
        np.add(np.log(total, out=total), correction, out=y)


@kernel(ops.pow, keys.CPU)
def pow(xp, input, exponent, *, out):
    is_plain = out.dtype.char in "fd" and exponent.__class__ in (int, float) and hasattr(input, "dtype")
    if not is_plain or exponent in (0.5, 2, 3) or not math.isfinite(exponent):
        generic.pow(xp, input, exponent, out=out)
        return
    power = _RECIPROCALS.get(exponent)
    for x, y in in_pieces(input, out):
        _power(x, float(exponent), y) if power is None else np.divide(1, power(x, out=y), out=y)


_RECIPROCALS = {-1: np.positive, -2: np.square, -0.5: np.sqrt}
"""The functions whose reciprocal PyTorch computes for these exponents."""


def _power(x: Array, exponent: float, out: Array) -> None:
    """|x| ** exponent, with the sign, or the NaN, of a negative base: NumPy is slow where its own result is NaN."""
    is_whole = exponent.is_integer()
    if not is_whole and np.fmin.reduce(x, axis=None, initial=0) == -np.inf:
        np.power(x, exponent, out=out)
        return
    mark = scratch("mark", x.shape, x.dtype.char)
    np.copyto(mark, x) if is_whole else np.minimum(np.sqrt(x, out=mark), filled(0, x.shape, x.dtype.char), out=mark)
    np.power(np.absolute(x, out=out), exponent, out=out)
    if not is_whole:
        np.add(out, mark, out=out)
    elif exponent % 2:
        np.copysign(out, mark, out=out)


@kernel(ops.lerp, keys.CPU)
def lerp(xp, input, end, weight, *, out):
    if out.dtype.char not in "fd" or not generic.is_number(weight) or input.shape != end.shape:
        generic.lerp(xp, input, end, weight, out=out)
        return
    for first, last, y in in_pieces(input, end, out):
        step = np.subtract(last, first, out=scratch("step", y.shape, y.dtype.char))
        if abs(weight) < 0.5:
            step *= weight
            np.add(first, step, out=y)
        else:
            step *= 1 - weight
            np.subtract(last, step, out=y)


@kernel(ops.addcmul, keys.CPU)
def addcmul(xp, input, tensor1, tensor2, *, value, out):
    if out.dtype.char not in "fd" or not input.shape == tensor1.shape == tensor2.shape:
        generic.addcmul(xp, input, tensor1, tensor2, value=value, out=out)
        return
    for base, a, b, y in in_pieces(input, tensor1, tensor2, out):
        product = np.multiply(a, b, out=scratch("product", y.shape, y.dtype.char))
        if value != 1:
            product *= value
        np.add(base, product, out=y)


@kernel(ops.rsqrt, keys.CPU)
def rsqrt(xp, input, *, out):
    for x, y in in_pieces(input, out):
        np.divide(1, np.sqrt(x, out=y), out=y)
