"""Element-wise loops over vectors in single or half precision, each a table of functions by the character of the type.

Half precision is taken as integers of 16 bits, and converted in the processor's registers; see ``arithmetic.typed``.
Those with the flags ``EXACT`` give what NumPy's arithmetic gives, to the bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arithmetic import EXACT, f32, full_exp, full_logistic, logistic, normal_cdf, rounded, typed, wide
from .arithmetic import exp as exponential
from .arithmetic import tanh as hyperbolic_tangent

Array = Any
_VECTOR, _HALVES = "T[::1]", "eE"
_SQRT_2_BY_PI, _CUBIC = f32(math.sqrt(2 / math.pi)), f32(0.044715)
_INVERSE_SQRT_2PI = f32(1 / math.sqrt(2 * math.pi))


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


@typed(_VECTOR, _VECTOR, flags=EXACT)
def relu(x: Array, out: Array) -> None:
    for i in range(x.size):
        v = wide(x[i])
        out[i] = rounded(f32(0.0) if v <= f32(0.0) else v, out)


@typed(_VECTOR, _VECTOR, _VECTOR, flags=EXACT)
def relu_backward(grad: Array, result: Array, out: Array) -> None:
    for i in range(result.size):
        out[i] = rounded(f32(0.0) if wide(result[i]) <= f32(0.0) else wide(grad[i]), out)


@typed(_VECTOR, "float32", _VECTOR, flags=EXACT)
def div_number(x: Array, number: float, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(wide(x[i]) / number, out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def sqrt(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(np.sqrt(wide(x[i])), out)


@typed(_VECTOR, _VECTOR, flags=EXACT)
def rsqrt(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(f32(1.0) / np.sqrt(wide(x[i])), out)


@typed(_VECTOR, "float32", "float32", _VECTOR, flags=EXACT)
def affine(x: Array, factor: float, number: float, out: Array) -> None:
    """factor * x + number; a product is kept as it is by the number -0."""
    for i in range(x.size):
        out[i] = rounded(wide(x[i]) * factor + number, out)


@typed(_VECTOR, _VECTOR, "float32", _VECTOR, flags=EXACT)
def add(x: Array, y: Array, factor: float, out: Array) -> None:
    """x + factor * y"""
    for i in range(x.size):
        out[i] = rounded(wide(x[i]) + factor * wide(y[i]), out)


@typed(_VECTOR, _VECTOR, _VECTOR, flags=EXACT)
def mul(x: Array, y: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(wide(x[i]) * wide(y[i]), out)


@typed(_VECTOR, _VECTOR, _VECTOR, flags=EXACT)
def div(x: Array, y: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = rounded(wide(x[i]) / wide(y[i]), out)
