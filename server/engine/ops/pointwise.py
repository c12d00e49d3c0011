"""Element-wise arithmetic. Kernels receive operands that were already cast to the dtype of the computation.

``out`` may be the memory of the first operand, so a kernel must not write it before it has read all that it needs.
"""

from __future__ import annotations

import numpy as np

from server.engine import functional as F
from server.engine.array_library import indexing as arrays
from server.engine.array_library.cache_blocks import number
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.registry import composite, implements, spending
from server.engine.value import Value
from telegrad_protocol.errors import DTypeError
from telegrad_protocol.ops import pointwise as ops

from .complex import conj
from .derivatives import not_differentiable, zero_gradient


def _scaled_gradient(grad, alpha):
    return grad if alpha == 1 else grad * conj(alpha)


def _scale(factor, alpha):
    return factor if alpha == 1 else factor * alpha


def times(x, alpha, dtype):
    """alpha * x in ``dtype``"""
    return x if alpha == 1 else number(x, dtype) * number(alpha, dtype) if is_number(x) else x * number(alpha, dtype)


def is_number(x):
    """Whether an operand is a Python number, not an array."""
    return isinstance(x, (bool, int, float, complex))


@implements(ops.add, input=lambda grad: grad, other=lambda grad, alpha: _scaled_gradient(grad, alpha))
def add(xp, input, other, *, alpha, out):
    xp.add(input, other if alpha == 1 else times(other, alpha, out.dtype), out=out)


@implements(ops.sub, input=lambda grad: grad, other=lambda grad, alpha: -_scaled_gradient(grad, alpha))
def sub(xp, input, other, *, alpha, out):
    xp.subtract(input, other if alpha == 1 else times(other, alpha, out.dtype), out=out)


@implements(ops.rsub, input=lambda grad, alpha: -_scaled_gradient(grad, alpha), other=lambda grad: grad)
def rsub(xp, input, other, *, alpha, out):
    xp.subtract(other, input if alpha == 1 else times(input, alpha, out.dtype), out=out)


@implements(
    ops.mul,
    input=spending(lambda grad, other: grad * conj(other)),
    other=spending(lambda grad, input: grad * conj(input)),
)
def mul(xp, input, other, *, out):
    xp.multiply(input, other, out=out)


def _div_other(grad, input, other):
    return -grad * conj((input / other) / other)


@implements(ops.div, input=lambda grad, other: grad / conj(other), other=_div_other)
def div(xp, input, other, *, out):
    xp.divide(input, other, out=out)


@implements(
    ops.div_mode,
    input=lambda grad, other, rounding_mode: zero_gradient(grad) if rounding_mode else grad / conj(other),
    other=lambda grad, input, other, rounding_mode: (
        zero_gradient(grad) if rounding_mode else _div_other(grad, input, other)
    ),
)
def div_mode(xp, input, other, *, rounding_mode, meta, out):
    if rounding_mode == "floor":
        floor_divide(xp, input, other, out=out)
    elif rounding_mode == "trunc":
        _divide_truncated(xp, input, other, meta, out)
    else:
        xp.divide(input, other, out=out)


def _divide_truncated(xp, input, other, meta, out):
    if out.dtype.kind == "f":
        # The quotient is rounded to the result's dtype before it is truncated, also in half precision.
        xp.trunc((input / other).astype(NUMPY_DTYPES[meta.dtype]).astype(out.dtype), out=out)
        return
    _refuse_zero(xp, "div", other, out)
    quotient, rest = xp.floor_divide(input, other), xp.remainder(input, other)
    has_other_sign = (rest != 0) & (xp.less(input, 0) != xp.less(other, 0))
    xp.add(quotient, has_other_sign, out=out, casting="unsafe")


def _refuse_zero(xp, name, other, out):
    """Integer division by zero is an error on the CPU; a GPU computes something, as in PyTorch."""
    if xp is np and out.size and not is_number(other) and other.dtype.kind in "iu" and not other.all():
        raise DTypeError(f"{name}: integer division by zero")


@implements(
    ops.floor_divide,
    input=not_differentiable("floor_divide", "input"),
    other=not_differentiable("floor_divide", "other"),
)
def floor_divide(xp, input, other, *, out):
    _refuse_zero(xp, "floor_divide", other, out)
    if xp is np or out.dtype.kind != "f":
        xp.floor_divide(input, other, out=out)
    else:
        _floor_divide_by_fmod(xp, input, other, out)


def _floor_divide_by_fmod(xp, input, other, out):
    """``floor_divide`` for CuPy, whose own rounds the quotient before the floor and differs for infinities and NaN."""
    rest = xp.fmod(input, other)
    quotient = (input - rest) / other
    quotient -= (rest != 0) & (xp.less(rest, 0) != xp.less(other, 0))
    floor = xp.floor(quotient)
    floor += quotient - floor > 0.5
    exact = xp.true_divide(input, other)
    floor = xp.where(quotient == 0, xp.copysign(xp.zeros_like(exact), exact), floor)
    xp.copyto(out, xp.where(xp.equal(other, 0), exact, floor))


@implements(
    ops.remainder,
    input=lambda grad: grad,
    other=lambda grad, input, other: -grad * F.div(input, other, rounding_mode="floor"),
)
def remainder(xp, input, other, *, out):
    _refuse_zero(xp, "remainder", other, out)
    if out.dtype.kind != "f":
        xp.remainder(input, other, out=out)
    elif xp is np:
        is_negative = np.signbit(input)  # the result may be written over the operands
        np.remainder(input, other, out=out)
        has_other_sign = np.equal(out, 0) & (np.signbit(out) != is_negative)  # a zero of NumPy's has the divisor's
        np.negative(out, out=out, where=has_other_sign)
    else:
        _remainder_by_fmod(xp, input, other, out)


def _remainder_by_fmod(xp, input, other, out):
    """``remainder`` for CuPy, whose own multiplies the quotient back, which is NaN for an infinite divisor."""
    xp.fmod(input, other, out=out)
    differs = (out != 0) & (xp.less(out, 0) != xp.less(other, 0))
    xp.copyto(out, out + other, where=differs)


@implements(
    ops.fmod,
    input=lambda grad: grad,
    other=lambda grad, input, other: -grad * F.div(input, other, rounding_mode="trunc"),
)
def fmod(xp, input, other, *, out):
    _refuse_zero(xp, "fmod", other, out)
    xp.fmod(input, other, out=out)


def _pow_input(grad, input, exponent):
    if exponent.__class__ is not Value:
        return zero_gradient(grad) if exponent == 0 else grad * conj(exponent * F.pow(input, exponent - 1))
    return grad * conj(F.where(exponent == 0, 0.0, exponent * F.pow(input, exponent - 1)))


def _pow_exponent(grad, input, exponent, out):
    """grad * out * log(input), but 0 where the input is 0 and the exponent is not negative"""
    if input.__class__ is not Value:
        slope = out * F.log(F.full((), input, dtype=out.dtype, device=out.device))
        return F.where(_real(exponent) >= 0, 0.0, grad * conj(slope)) if input == 0 else grad * conj(slope)
    is_flat = F.logical_and(input == 0, _real(exponent) >= 0)
    if out.meta.dtype.is_complex and not input.meta.dtype.is_complex:
        input = F._to_copy(input, dtype=out.meta.dtype)  # real numbers below zero have no real logarithm
    return F.where(is_flat, 0.0, grad * conj(out * F.log(input)))


def _real(value):
    return F.real(value) if value.meta.dtype.is_complex else value


@implements(ops.pow, input=_pow_input, exponent=_pow_exponent)
def pow(xp, input, exponent, *, out):
    if out.dtype.kind in "iub":
        _pow_integer(xp, input, exponent, out)
    elif is_number(exponent) and exponent == 2:
        xp.multiply(input, input, out=out)
    elif is_number(exponent) and exponent == 0.5:
        xp.sqrt(input, out=out)
    elif is_number(exponent) and exponent == 3:
        xp.multiply(input * input, input, out=out)
    else:
        xp.power(input, exponent, out=out)


def _pow_integer(xp, input, exponent, out):
    """Integer powers; negative exponents give 0, except for the bases 1 and -1."""
    if is_number(exponent):
        xp.power(input, number(exponent, out.dtype), out=out)
        return
    base = xp.asarray(number(input, out.dtype) if is_number(input) else input)
    powers = xp.power(base, xp.maximum(exponent, 0))
    inverse = xp.where(base == 1, 1, xp.where(base == -1, 1 - 2 * (exponent % 2), 0))
    out[...] = xp.where(exponent < 0, inverse, powers)


@implements(ops.neg, input=lambda grad: -grad)
def neg(xp, input, *, out):
    arrays.negative(xp, input, out)


@composite(ops.positive)
def positive(input):
    return F.view(input, input.meta.shape)


@implements(ops.abs, input=spending(lambda grad, input: grad * F.sgn(input)))
def abs(xp, input, *, out):
    xp.absolute(input, out=out)


@implements(ops.sign, input=zero_gradient)
def sign(xp, input, *, out):
    if input.dtype.kind == "b":
        xp.copyto(out, input)
        return
    xp.sign(input, out=out)
    if out.dtype.kind == "f":
        xp.copyto(out, 0, where=xp.isnan(out))  # as in PyTorch, the sign of NaN is 0


def _sgn_backward(grad, input, out):
    """The component of grad orthogonal to the number, divided by its absolute value; zeros for a real number."""
    if not input.meta.dtype.is_complex:
        return zero_gradient(grad)
    magnitude = F.abs(input)
    orthogonal = grad - F.real(conj(grad) * out) * out
    return F.where(magnitude == 0, 0.0, orthogonal / magnitude)


@implements(ops.sgn, input=_sgn_backward)
def sgn(xp, input, *, out):
    if input.dtype.kind != "c":
        sign(xp, input, out=out)
        return
    magnitude = xp.absolute(input)
    xp.copyto(out, xp.where(magnitude == 0, 0, input / magnitude))


@implements(ops.square, input=spending(lambda grad, input: grad * conj(input * 2)))
def square(xp, input, *, out):
    xp.multiply(input, input, out=out)


@implements(ops.reciprocal, input=lambda grad, out: -grad * conj(out * out))
def reciprocal(xp, input, *, out):
    xp.divide(1, input, out=out)


@implements(ops.sqrt, input=lambda grad, out: grad / conj(out * 2))
def sqrt(xp, input, *, out):
    xp.sqrt(input, out=out)


@implements(ops.rsqrt, input=lambda grad, out: grad * conj(F.pow(out, 3)) * -0.5)
def rsqrt(xp, input, *, out):
    xp.sqrt(input, out=out)
    xp.divide(1, out, out=out)


@implements(
    ops.hypot,
    input=lambda grad, input, out: grad * (input / out),
    other=lambda grad, other, out: grad * (other / out),
)
def hypot(xp, input, other, *, out):
    xp.hypot(input, other, out=out)


@implements(
    ops.copysign,
    input=lambda grad, input, out: F.where(input == 0, 0.0, grad * (out / input)),
    other=zero_gradient,
)
def copysign(xp, input, other, *, out):
    xp.copysign(input, other, out=out)


@implements(
    ops.lerp,
    input=lambda grad, weight: grad * conj(1 - weight),
    end=lambda grad, weight: grad * conj(weight),
    weight=lambda grad, input, end: grad * conj(end - input),
)
def lerp(xp, input, end, weight, *, out):
    step = end - input
    # The result is computed from the nearer end, so that weights 0 and 1 give the ends exactly.
    is_near_input = (np if is_number(weight) else xp).abs(weight) < 0.5
    if is_number(weight):
        xp.add(input, weight * step, out=out) if is_near_input else xp.subtract(end, step * (1 - weight), out=out)
    else:
        xp.copyto(out, xp.where(is_near_input, input + weight * step, end - step * (1 - weight)))


@implements(
    ops.addcmul,
    input=lambda grad: grad,
    tensor1=lambda grad, tensor2, value: grad * conj(_scale(tensor2, value)),
    tensor2=lambda grad, tensor1, value: grad * conj(_scale(tensor1, value)),
)
def addcmul(xp, input, tensor1, tensor2, *, value, out):
    product = times(tensor1, value, out.dtype) * tensor2
    xp.add(input, product, out=out)


@implements(
    ops.addcdiv,
    input=lambda grad: grad,
    tensor1=lambda grad, tensor2, value: grad * conj(value / tensor2),
    tensor2=lambda grad, tensor1, tensor2, value: -grad * conj(_scale(tensor1, value) / (tensor2 * tensor2)),
)
def addcdiv(xp, input, tensor1, tensor2, *, value, out):
    xp.add(input, times(tensor1 / tensor2, value, out.dtype), out=out)


@implements(ops._to_copy, movement=True, input=lambda grad: grad)  # the engine casts it back
def _to_copy(xp, input, *, dtype, device, out):
    cast_into(xp, out, input)


_REAL_KINDS = "fiub"
"""The kinds of types that NumPy itself has and whose elements have no imaginary parts."""


def cast_into(xp, target, source):
    """Copy with a cast; the imaginary parts of complex numbers are dropped if the target is real."""
    if source.dtype.kind in _REAL_KINDS:
        xp.copyto(target, source, casting="unsafe")
        return
    if source.dtype.name == "complex32":
        source = source.astype(np.complex64)
    is_narrowing = source.dtype.kind == "c" and target.dtype.kind not in "cb" and target.dtype.name != "complex32"
    xp.copyto(target, source.real if is_narrowing else source, casting="unsafe")
