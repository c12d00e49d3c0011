"""Elementary and special functions. Those that NumPy lacks come from SciPy, on a GPU from cupyx.scipy."""

from __future__ import annotations

import math

from server.engine import functional as F
from server.engine.array_library import indexing as arrays
from server.engine.array_library.cache_blocks import in_blocks
from server.engine.array_library.special_functions import digamma as digamma_of
from server.engine.array_library.special_functions import erf as fast_erf
from server.engine.array_library.special_functions import special
from server.engine.registry import implements, spending
from server.engine.value import Value
from telegrad_protocol import dtypes
from telegrad_protocol.ops import elementary as ops

from .complex import conj
from .derivatives import zero_gradient


@implements(ops.exp, input=spending(lambda grad, out: grad * conj(out)))
def exp(xp, input, *, out):
    xp.exp(input, out=out)


@implements(ops.exp2, input=lambda grad, out: grad * conj(out) * math.log(2))
def exp2(xp, input, *, out):
    xp.exp2(input, out=out)


@implements(ops.expm1, input=lambda grad, out: grad * conj(out + 1))
def expm1(xp, input, *, out):
    xp.expm1(input, out=out)


@implements(ops.log, input=lambda grad, input: grad / conj(input))
def log(xp, input, *, out):
    xp.log(input, out=out)


@implements(ops.log2, input=lambda grad, input: grad / conj(input * math.log(2)))
def log2(xp, input, *, out):
    xp.log2(input, out=out)


@implements(ops.log10, input=lambda grad, input: grad / conj(input * math.log(10)))
def log10(xp, input, *, out):
    xp.log10(input, out=out)


@implements(ops.log1p, input=lambda grad, input: grad / conj(input + 1))
def log1p(xp, input, *, out):
    xp.log1p(input, out=out)


@implements(ops.sin, input=lambda grad, input: grad * conj(F.cos(input)))
def sin(xp, input, *, out):
    xp.sin(input, out=out)


@implements(ops.cos, input=lambda grad, input: grad * -conj(F.sin(input)))
def cos(xp, input, *, out):
    xp.cos(input, out=out)


@implements(ops.tan, input=lambda grad, out: grad * conj(1 + F.square(out)))
def tan(xp, input, *, out):
    xp.tan(input, out=out)


@implements(ops.asin, input=lambda grad, input: grad * conj(F.rsqrt(1 - F.square(input))))
def asin(xp, input, *, out):
    xp.arcsin(input, out=out)


@implements(ops.acos, input=lambda grad, input: grad * -conj(F.rsqrt(1 - F.square(input))))
def acos(xp, input, *, out):
    xp.arccos(input, out=out)


@implements(ops.atan, input=lambda grad, input: grad / conj(F.square(input) + 1))
def atan(xp, input, *, out):
    xp.arctan(input, out=out)


def _over_square(grad, input, other):
    """grad / (input ** 2 + other ** 2), and 0 where both are 0"""
    squared = F.square(input) + F.square(other)
    return F.where(squared == 0, 0.0, grad / squared)


@implements(
    ops.atan2,
    input=lambda grad, input, other: other * _over_square(grad, input, other),
    other=lambda grad, input, other: -input * _over_square(grad, input, other),
)
def atan2(xp, input, other, *, out):
    xp.arctan2(input, other, out=out)


@implements(ops.sinh, input=lambda grad, input: grad * conj(F.cosh(input)))
def sinh(xp, input, *, out):
    xp.sinh(input, out=out)


@implements(ops.cosh, input=lambda grad, input: grad * conj(F.sinh(input)))
def cosh(xp, input, *, out):
    xp.cosh(input, out=out)


@implements(ops.tanh, input=spending(lambda grad, out: F._tanh_backward(grad, out)))
def tanh(xp, input, *, out):
    xp.tanh(input, out=out)


@implements(
    ops._tanh_backward,
    gradient=lambda grad, result: F._tanh_backward(grad, conj(result)),
    result=lambda grad, gradient, result: conj(grad) * gradient * conj(result) * -2,
)
def _tanh_backward(xp, gradient, result, *, out):
    """gradient * (1 - result ** 2)"""
    for g, r, o in in_blocks(xp, gradient, result, out):
        slope = xp.multiply(r, r)
        xp.subtract(1, slope, out=slope)
        xp.multiply(g, xp.conjugate(slope) if slope.dtype.kind == "c" else slope, out=o)


@implements(ops.asinh, input=lambda grad, input: grad * conj(F.rsqrt(F.square(input) + 1)))
def asinh(xp, input, *, out):
    xp.arcsinh(input, out=out)


@implements(ops.acosh, input=lambda grad, input: grad * conj(F.rsqrt(input - 1) * F.rsqrt(input + 1)))
def acosh(xp, input, *, out):
    xp.arccosh(input, out=out)


@implements(ops.atanh, input=lambda grad, input: grad / conj(1 - F.square(input)))
def atanh(xp, input, *, out):
    xp.arctanh(input, out=out)


@implements(ops.sigmoid, input=spending(lambda grad, out: F._sigmoid_backward(grad, out)))
def sigmoid(xp, input, *, out):
    for x, o in in_blocks(xp, input, out):
        arrays.negative(xp, x, o)
        xp.exp(o, out=o)
        xp.add(o, 1, out=o)
        xp.divide(1, o, out=o)


@implements(
    ops._sigmoid_backward,
    gradient=lambda grad, result: F._sigmoid_backward(grad, conj(result)),
    result=lambda grad, gradient, result: conj(grad) * gradient * conj(1 - 2 * result),
)
def _sigmoid_backward(xp, gradient, result, *, out):
    """gradient * result * (1 - result)"""
    for g, r, o in in_blocks(xp, gradient, result, out):
        slope = xp.subtract(1, r)
        xp.multiply(slope, r, out=slope)
        xp.multiply(g, xp.conjugate(slope) if slope.dtype.kind == "c" else slope, out=o)


def _logit_backward(grad, input, eps):
    slope = grad / (input * (1 - input))
    if eps is None:
        return F.where(F.logical_or(input < 0, input > 1), math.nan, slope)
    return F.where(F.logical_or(input < eps, input > 1 - eps), 0.0, slope)


@implements(ops.logit, input=_logit_backward)
def logit(xp, input, eps, *, out):
    x = input if eps is None else xp.minimum(xp.maximum(input, eps), 1 - eps)
    xp.log(x / (1 - x), out=out)


_SLOPE_OF_ERF = 2 / math.sqrt(math.pi)


@implements(ops.erf, input=lambda grad, input: grad * F.exp(-F.square(input)) * _SLOPE_OF_ERF)
def erf(xp, input, *, out):
    fast_erf(xp, input, out)


@implements(ops.erfc, input=lambda grad, input: grad * F.exp(-F.square(input)) * -_SLOPE_OF_ERF)
def erfc(xp, input, *, out):
    special(xp).erfc(input, out=out)


@implements(ops.erfinv, input=lambda grad, out: grad * F.exp(F.square(out)) / _SLOPE_OF_ERF)
def erfinv(xp, input, *, out):
    special(xp).erfinv(input, out=out)


@implements(ops.lgamma, input=lambda grad, input: grad * F.digamma(input))
def lgamma(xp, input, *, out):
    is_infinite = xp.isinf(input)  # SciPy returns -inf at -inf, PyTorch inf
    special(xp).gammaln(input, out=out)
    xp.copyto(out, xp.inf, where=is_infinite)


@implements(ops.digamma, input=lambda grad, input: grad * F._polygamma(input, 1))
def digamma(xp, input, *, out):
    digamma_of(xp, input, out)


@implements(
    ops.logaddexp,
    input=lambda grad, input, other: grad / conj(1 + F.exp(other - input)),
    other=lambda grad, input, other: grad / conj(1 + F.exp(input - other)),
)
def logaddexp(xp, input, other, *, out):
    if out.dtype.kind != "c":
        xp.logaddexp(input, other, out=out)
        return
    is_first = input.real >= other.real
    larger, smaller = xp.where(is_first, input, other), xp.where(is_first, other, input)
    out[...] = larger + xp.log1p(xp.exp(smaller - larger))


def _xlogy_input(grad, input, other):
    is_flat = F.logical_and(F.eq(input, 0), F.le(other, 0)) if other.__class__ is Value else input == 0
    if other.__class__ is not Value:
        return F.xlogy(grad, other) if other > 0 else F.where(is_flat, 0.0, F.xlogy(grad, other))
    return F.where(is_flat, 0.0, F.xlogy(grad, other))


@implements(ops.xlogy, input=_xlogy_input, other=lambda grad, input, other: grad * input / other)
def xlogy(xp, input, other, *, out):
    logarithm = xp.log(other)
    product = input * logarithm
    xp.copyto(out, xp.where(xp.logical_and(xp.equal(input, 0), ~xp.isnan(other)), 0, product))


@implements(ops.floor, input=zero_gradient)
def floor(xp, input, *, out):
    _round_by(xp, xp.floor, input, out)


@implements(ops.ceil, input=zero_gradient)
def ceil(xp, input, *, out):
    _round_by(xp, xp.ceil, input, out)


@implements(ops.trunc, input=zero_gradient)
def trunc(xp, input, *, out):
    _round_by(xp, xp.trunc, input, out)


def _round_by(xp, function, input, out):
    if input.dtype.kind == "f":
        function(input, out=out)
    else:
        xp.copyto(out, input)


@implements(ops.frac, input=lambda grad: grad)
def frac(xp, input, *, out):
    xp.subtract(input, xp.trunc(input), out=out)


@implements(ops.round, input=zero_gradient)
def round(xp, input, *, decimals, out):
    if decimals == 0:
        _round_by(xp, xp.rint, input, out)
        return
    places = decimals if decimals > 0 else -decimals
    factor = 10.0**places if places <= 308 else math.inf  # beyond, all is NaN, as in PyTorch
    shifted = xp.rint(input * factor if decimals > 0 else input / factor)
    (xp.divide if decimals > 0 else xp.multiply)(shifted, factor, out=out)


@implements(ops.deg2rad, input=lambda grad: F.deg2rad(grad))
def deg2rad(xp, input, *, out):
    xp.multiply(input, math.pi / 180, out=out)


@implements(ops.rad2deg, input=lambda grad: F.rad2deg(grad))
def rad2deg(xp, input, *, out):
    xp.multiply(input, 180 / math.pi, out=out)


_LARGEST = {
    dtypes.float16: 65504.0, dtypes.bfloat16: 3.3895313892515355e38, dtypes.float32: 3.4028234663852886e38,
    dtypes.float64: 1.7976931348623157e308,
}  # fmt: skip


@implements(ops.nan_to_num, input=lambda grad, input: F.where(F.isfinite(input), grad, 0.0))
def nan_to_num(xp, input, nan, posinf, neginf, *, meta, out):
    largest = _LARGEST.get(meta.dtype.to_real())
    if largest is None:
        xp.copyto(out, input)
        return
    for part, target in zip(_parts(input), _parts(out), strict=True):
        replaced = xp.where(xp.isnan(part), nan or 0.0, part)
        replaced = xp.where(replaced == xp.inf, largest if posinf is None else posinf, replaced)
        target[...] = xp.where(replaced == -xp.inf, -largest if neginf is None else neginf, replaced)


def _parts(array):
    return (array.real, array.imag) if array.dtype.kind == "c" else (array,)
