"""Element-wise loops over vectors in single or half precision, each a table of functions by the character of the type.

Half precision is taken as integers of 16 bits, and converted in the processor's registers; see ``arithmetic.typed``.
Those with the flags ``EXACT`` give what NumPy's arithmetic gives, to the bit. LLVM reads elements one by one where what
is written may overlap what is read, unless it is told that both are one array: loops that are called in place have a
branch for that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arithmetic import (
    EXACT,
    f32,
    full_exp,
    full_logistic,
    inlined,
    is_same,
    logistic,
    normal_cdf,
    rounded,
    typed,
    wide,
)
from .arithmetic import exp as exponential
from .arithmetic import tanh as hyperbolic_tangent
from .error_function import COEFFICIENTS, END

Array = Any
_VECTOR, _HALVES = "T[::1]", "eE"
_SQRT_2_BY_PI, _CUBIC = f32(math.sqrt(2 / math.pi)), f32(0.044715)
_INVERSE_SQRT_2PI = f32(1 / math.sqrt(2 * math.pi))
_ERF_END = f32(END)
_ERF_0, _ERF_1, _ERF_2, _ERF_3, _ERF_4, _ERF_5, _ERF_6 = map(f32, COEFFICIENTS)


@typed(_VECTOR, "float32[::1]", chars=_HALVES)
def widen(source: Array, target: Array) -> None:
    for i in range(source.size):
        target[i] = wide(source[i])


@typed("float32[::1]", _VECTOR, chars=_HALVES)
def narrow(source: Array, target: Array) -> None:
    for i in range(source.size):
        target[i] = rounded(source[i], target)


@typed(_VECTOR, _VECTOR)
def gelu(x: Array, out: Array) -> None:
    for i in range(x.size):
        v = wide(x[i])
        out[i] = rounded(v * normal_cdf(v), out)


@typed(_VECTOR, _VECTOR)
def gelu_tanh(x: Array, out: Array) -> None:
    """x * (1 + tanh(u)) / 2, which is x * logistic(2 u), for u = sqrt(2 / pi) * (x + 0.044715 x ** 3)"""
    for i in range(x.size):
        v = wide(x[i])
        out[i] = rounded(v * logistic(f32(2.0) * _SQRT_2_BY_PI * v * (f32(1.0) + _CUBIC * v * v)), out)


@typed(_VECTOR, _VECTOR, _VECTOR)
def gelu_backward(grad: Array, x: Array, out: Array) -> None:
    for i in range(x.size):
        v = wide(x[i])
        density = _INVERSE_SQRT_2PI * exponential(f32(-0.5) * v * v)
        slope = normal_cdf(v) + v * density
        out[i] = rounded(wide(grad[i]) * slope, out)


@typed(_VECTOR, _VECTOR, _VECTOR)
def gelu_tanh_backward(grad: Array, x: Array, out: Array) -> None:
    for i in range(x.size):
        v = wide(x[i])
        square = _CUBIC * v * v
        cdf = logistic(f32(2.0) * _SQRT_2_BY_PI * v * (f32(1.0) + square))
        change = f32(2.0) * _SQRT_2_BY_PI * v * (f32(1.0) + f32(3.0) * square)
        out[i] = rounded(wide(grad[i]) * (cdf + cdf * (f32(1.0) - cdf) * change), out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def silu(x: Array, out: Array) -> None:
    for i in range(x.size):
        v = wide(x[i])
        out[i] = rounded(v / (full_exp(-v) + f32(1.0)), out)


@typed(_VECTOR, _VECTOR, _VECTOR, flags=EXACT)
def silu_backward(grad: Array, x: Array, out: Array) -> None:
    for i in range(x.size):
        v = wide(x[i])
        s = full_logistic(v)
        out[i] = rounded(((f32(1.0) - s) * v + f32(1.0)) * s * wide(grad[i]), out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def exp(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(full_exp(wide(x[i])), out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def tanh(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(hyperbolic_tangent(wide(x[i])), out)


@typed(_VECTOR, _VECTOR, _VECTOR, flags=EXACT)
def tanh_backward(grad: Array, result: Array, out: Array) -> None:
    for i in range(result.size):
        y = wide(result[i])
        out[i] = rounded(wide(grad[i]) * (f32(1.0) - y * y), out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def sigmoid(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(full_logistic(wide(x[i])), out)


@typed(_VECTOR, _VECTOR, _VECTOR, flags=EXACT)
def sigmoid_backward(grad: Array, result: Array, out: Array) -> None:
    for i in range(result.size):
        y = wide(result[i])
        out[i] = rounded(wide(grad[i]) * (f32(1.0) - y) * y, out)


@inlined
def _relu(x: Array, out: Array) -> None:
    for i in range(x.size):
        v = wide(x[i])
        out[i] = rounded(f32(0.0) if v <= f32(0.0) else v, out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def relu(x: Array, out: Array) -> None:
    if is_same(x, out):
        _relu(out, out)
    else:
        _relu(x, out)


@typed(_VECTOR, _VECTOR, _VECTOR, flags=EXACT)
def relu_backward(grad: Array, result: Array, out: Array) -> None:
    for i in range(result.size):
        out[i] = rounded(f32(0.0) if wide(result[i]) <= f32(0.0) else wide(grad[i]), out)


@inlined
def _div_number(x: Array, number: float, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(wide(x[i]) / number, out)


@typed(_VECTOR, "float32", _VECTOR, flags=EXACT)
def div_number(x: Array, number: float, out: Array) -> None:
    if is_same(x, out):
        _div_number(out, number, out)
    else:
        _div_number(x, number, out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def sqrt(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(np.sqrt(wide(x[i])), out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def rsqrt(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(f32(1.0) / np.sqrt(wide(x[i])), out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def absolute(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(np.abs(wide(x[i])), out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def sign(x: Array, out: Array) -> None:
    """0 for NaN, too."""
    for i in range(x.size):
        v = wide(x[i])
        up = f32(1.0) if v > f32(0.0) else f32(0.0)
        out[i] = rounded(f32(-1.0) if v < f32(0.0) else up, out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def floor(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(np.floor(wide(x[i])), out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def ceil(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(np.ceil(wide(x[i])), out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def rint(x: Array, out: Array) -> None:
    """The nearest integer, ties to even."""
    for i in range(x.size):
        out[i] = rounded(np.rint(wide(x[i])), out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def erf(x: Array, out: Array) -> None:
    """tanh(x * p(x ** 2)), with the polynomial of ``error_function``"""
    for i in range(x.size):
        v = wide(x[i])
        v = -_ERF_END if v < -_ERF_END else v
        v = _ERF_END if v > _ERF_END else v
        s = v * v
        p = s * _ERF_0
        p = (p + _ERF_1) * s
        p = (p + _ERF_2) * s
        p = (p + _ERF_3) * s
        p = (p + _ERF_4) * s
        p = (p + _ERF_5) * s
        out[i] = rounded(hyperbolic_tangent((p + _ERF_6) * v), out)


@inlined
def _clamp(x: Array, low: float, high: float, out: Array) -> None:
    for i in range(x.size):
        v = wide(x[i])
        v = low if v < low else v
        out[i] = rounded(high if v > high else v, out)


@typed(_VECTOR, "float32", "float32", _VECTOR, flags=EXACT)
def clamp(x: Array, low: float, high: float, out: Array) -> None:
    if is_same(x, out):
        _clamp(out, low, high, out)
    else:
        _clamp(x, low, high, out)


@typed(_VECTOR, "float32", _VECTOR, flags=EXACT)
def leaky_relu(x: Array, slope: float, out: Array) -> None:
    for i in range(x.size):
        v = wide(x[i])
        out[i] = rounded(v if v > f32(0.0) else v * slope, out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def hardswish(x: Array, out: Array) -> None:
    for i in range(x.size):
        v = wide(x[i])
        gate = v + f32(3.0)
        gate = f32(0.0) if gate < f32(0.0) else gate
        gate = f32(6.0) if gate > f32(6.0) else gate
        out[i] = rounded(v * gate / f32(6.0), out)


@inlined
def _affine(x: Array, factor: float, number: float, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(wide(x[i]) * factor + number, out)


@typed(_VECTOR, "float32", "float32", _VECTOR, flags=EXACT)
def affine(x: Array, factor: float, number: float, out: Array) -> None:
    """factor * x + number; a product is kept as it is by the number -0."""
    if is_same(x, out):
        _affine(out, factor, number, out)
    else:
        _affine(x, factor, number, out)


@inlined
def _add(x: Array, y: Array, factor: float, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(wide(x[i]) + factor * wide(y[i]), out)


@typed(_VECTOR, _VECTOR, "float32", _VECTOR, flags=EXACT)
def add(x: Array, y: Array, factor: float, out: Array) -> None:
    """x + factor * y"""
    if is_same(x, out):
        _add(out, y, factor, out)
    else:
        _add(x, y, factor, out)


@inlined
def _mul(x: Array, y: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(wide(x[i]) * wide(y[i]), out)


@typed(_VECTOR, _VECTOR, _VECTOR, flags=EXACT)
def mul(x: Array, y: Array, out: Array) -> None:
    if is_same(x, out):
        _mul(out, y, out)
    else:
        _mul(x, y, out)


@typed(_VECTOR, _VECTOR, _VECTOR, flags=EXACT)
def div(x: Array, y: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(wide(x[i]) / wide(y[i]), out)


@typed(_VECTOR, _VECTOR, _VECTOR, flags=EXACT)
def maximum(x: Array, y: Array, out: Array) -> None:
    """The larger of both; NaN where either is."""
    for i in range(x.size):
        v, w = wide(x[i]), wide(y[i])
        larger = v if v > w or v != v else w
        out[i] = rounded(larger, out)


@typed(_VECTOR, _VECTOR, _VECTOR, flags=EXACT)
def minimum(x: Array, y: Array, out: Array) -> None:
    """The smaller of both; NaN where either is."""
    for i in range(x.size):
        v, w = wide(x[i]), wide(y[i])
        smaller = v if v < w or v != v else w
        out[i] = rounded(smaller, out)


@inlined
def _addcmul(x: Array, y: Array, z: Array, factor: float, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(wide(x[i]) + wide(y[i]) * wide(z[i]) * factor, out)


@typed(_VECTOR, _VECTOR, _VECTOR, "float32", _VECTOR, flags=EXACT)
def addcmul(x: Array, y: Array, z: Array, factor: float, out: Array) -> None:
    """x + factor * y * z"""
    if is_same(x, out):
        _addcmul(out, y, z, factor, out)
    else:
        _addcmul(x, y, z, factor, out)


@inlined
def _lerp(x: Array, y: Array, weight: float, out: Array) -> None:
    rest, is_near = f32(1.0) - weight, np.abs(weight) < f32(0.5)
    for i in range(x.size):
        v, w = wide(x[i]), wide(y[i])
        out[i] = rounded(v + weight * (w - v) if is_near else w - (w - v) * rest, out)


@typed(_VECTOR, _VECTOR, "float32", _VECTOR, flags=EXACT)
def lerp(x: Array, y: Array, weight: float, out: Array) -> None:
    """x + weight * (y - x), from the end that is nearer"""
    if is_same(x, out):
        _lerp(out, y, weight, out)
    else:
        _lerp(x, y, weight, out)
