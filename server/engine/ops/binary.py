"""Further element-wise functions of two numbers, and the parts of floating-point numbers."""

from __future__ import annotations

import numpy as np

from server.engine import functional as F
from server.engine.registry import implements
from telegrad_protocol.ops import binary as ops

from .derivatives import not_differentiable, zero_gradient


@implements(ops.gcd)
def gcd(xp, input, other, *, out):
    xp.gcd(input, other, out=out)


@implements(ops.lcm)
def lcm(xp, input, other, *, out):
    xp.lcm(input, other, out=out)


@implements(
    ops.nextafter,
    input=lambda grad, input, other: F.where(F.ne(input, other), grad, 0),
    other=zero_gradient,
)
def nextafter(xp, input, other, *, meta, out):
    if meta.dtype.itemsize > 2:
        xp.nextafter(input, other, out=out)
    elif meta.dtype.name == "float16":
        bits = _next_bits(xp, input, other, input.astype(np.float16).view(np.int16), 1)
        out[...] = _unless_nan(xp, input, other, bits.view(np.float16))
    else:  # a bfloat16 is the upper half of a float32
        bits = _next_bits(xp, input, other, xp.ascontiguousarray(input, dtype=np.float32).view(np.int32), 1 << 16)
        out[...] = _unless_nan(xp, input, other, bits.view(np.float32))


def _next_bits(xp, input, other, bits, step):
    """The bits of the neighbours of ``input``, which ascend with the distance from 0."""
    outwards = xp.greater(other, input) == xp.greater(input, 0)
    moved = xp.where(outwards, bits + bits.dtype.type(step), bits - bits.dtype.type(step))
    smallest = xp.where(xp.greater(other, 0), step, step + np.iinfo(bits.dtype).min).astype(bits.dtype)
    return xp.where(xp.equal(input, other), bits, xp.where(xp.equal(input, 0), smallest, moved))


def _unless_nan(xp, input, other, neighbours):
    is_nan = xp.isnan(input) | xp.isnan(other)
    return xp.where(is_nan, xp.nan, xp.where(xp.equal(input, other), other, neighbours))


@implements(
    ops.heaviside,
    input=not_differentiable("heaviside", "input"),
    values=not_differentiable("heaviside", "values"),
)
def heaviside(xp, input, values, *, out):
    out[...] = xp.where(xp.equal(input, 0), values, xp.greater(input, 0))


@implements(
    ops.logaddexp2,
    input=lambda grad, input, other: grad / (1 + F.exp2(other - input)),
    other=lambda grad, input, other: grad / (1 + F.exp2(input - other)),
)
def logaddexp2(xp, input, other, *, out):
    xp.logaddexp2(input, other, out=out)


@implements(ops.frexp, input=lambda grad_mantissa, exponent: F.div(grad_mantissa, F.pow(2.0, exponent)))
def frexp(xp, input, *, out):
    mantissa, exponent = out
    parts = xp.frexp(input)
    mantissa[...], exponent[...] = parts
