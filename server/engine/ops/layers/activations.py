"""Activation functions: generic kernels and derivative formulas.

The functions that networks use most have backward kernels of their own; the derivatives of the others are compositions
of operations. Kernels pass over memory once, in blocks that stay in the cache.
"""

from __future__ import annotations

import math

from server.engine import functional as F
from server.engine.array_library.cache_blocks import in_blocks, number, select
from server.engine.array_library.special_functions import erf
from server.engine.ops.complex import conj
from server.engine.registry import composite, implements, spending
from telegrad_protocol.ops.layers import activations as ops


@implements(ops.relu, input=spending(lambda grad, out: F._relu_backward(grad, out)))
def relu(xp, input, *, out):
    xp.maximum(input, 0, out=out)


@implements(ops._relu_backward, gradient=lambda grad, result: F._relu_backward(grad, result), result=None)
def _relu_backward(xp, gradient, result, *, out):
    """gradient where result > 0, else 0; selected and not multiplied, because the gradient may be infinite"""
    select(xp, result <= 0, out.dtype.type(0), gradient, out)


_SQRT_HALF = math.sqrt(0.5)
_INVERSE_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


@implements(
    ops.gelu, input=spending(lambda grad, input, approximate: F._gelu_backward(grad, input, approximate=approximate))
)
def gelu(xp, input, *, approximate, out):
    cdf = _normal_cdf if approximate == "none" else _tanh_cdf
    for x, o in in_blocks(xp, input, out):
        xp.multiply(cdf(xp, x), x, out=o)


def _normal_cdf(xp, x):
    """The cumulative distribution function of the standard normal distribution: (1 + erf(x / sqrt(2))) / 2"""
    cdf = x * _SQRT_HALF
    erf(xp, cdf, cdf)
    cdf += 1
    cdf *= 0.5
    return cdf


def _tanh_cdf(xp, x):
    """GELU's approximation of the normal distribution function: (1 + tanh(argument)) / 2 (Hendrycks, Gimpel, 2016)"""
    cdf = _tanh_argument(xp, x)
    xp.tanh(cdf, out=cdf)
    cdf += 1
    cdf *= 0.5
    return cdf


def _tanh_argument(xp, x):
    """sqrt(2 / pi) * (x + 0.044715 * x ** 3)"""
    inner = x * x
    inner *= _TANH_SCALE * _TANH_CUBIC
    inner += _TANH_SCALE
    inner *= x
    return inner


def _gelu_double_backward(grad, gradient, input, approximate):
    squared = F.square(input)
    if approximate == "none":
        return grad * gradient * (2 - squared) * F.exp(squared * -0.5) * _INVERSE_SQRT_2PI
    slope = (1 + squared * (3 * _TANH_CUBIC)) * _TANH_SCALE
    tanh = F.tanh(input * (1 + squared * _TANH_CUBIC) * _TANH_SCALE)
    factor = slope + squared * (3 * _TANH_CUBIC * _TANH_SCALE) - input * F.square(slope) * tanh
    return grad * gradient * (1 - F.square(tanh)) * factor


@implements(
    ops._gelu_backward,
    gradient=lambda grad, input, approximate: F._gelu_backward(grad, input, approximate=approximate),
    input=_gelu_double_backward,
)
def _gelu_backward(xp, gradient, input, *, approximate, out):
    slope = _normal_slope if approximate == "none" else _tanh_slope
    for g, x, o in in_blocks(xp, gradient, input, out):
        xp.multiply(slope(xp, x), g, out=o)


def _normal_slope(xp, x):
    """The derivative of x * cdf(x): cdf(x) + x * pdf(x) of the standard normal distribution"""
    pdf = x * x
    pdf *= -0.5
    xp.exp(pdf, out=pdf)
    pdf *= _INVERSE_SQRT_2PI
    pdf *= x
    pdf += _normal_cdf(xp, x)
    return pdf


def _tanh_slope(xp, x):
    """The derivative of x * (1 + tanh(u)) / 2, where u is ``_tanh_argument``"""
    tanh = _tanh_argument(xp, x)
    xp.tanh(tanh, out=tanh)
    slope = x * x
    slope *= 3 * _TANH_CUBIC * _TANH_SCALE
    slope += _TANH_SCALE
    slope *= x
    slope *= 1 - tanh * tanh
    slope += tanh
    slope += 1
    slope *= 0.5
    return slope


def _sigmoid(xp, x):
    """1 / (1 + exp(-x))"""
    result = xp.negative(x)
    xp.exp(result, out=result)
    result += 1
    xp.divide(1, result, out=result)
    return result


@implements(ops.silu, input=spending(lambda grad, input: F._silu_backward(grad, input)))
def silu(xp, input, *, out):
    for x, o in in_blocks(xp, input, out):
        xp.multiply(_sigmoid(xp, x), x, out=o)


def _silu_double_backward(grad, gradient, input):
    sigmoid = F.sigmoid(input)
    return conj(grad) * gradient * conj(sigmoid * (1 - sigmoid) * (2 + input * (1 - 2 * sigmoid)))


@implements(
    ops._silu_backward,
    gradient=lambda grad, input: F._silu_backward(grad, conj(input)),
    input=_silu_double_backward,
)
def _silu_backward(xp, gradient, input, *, out):
    """gradient * s * (1 + input * (1 - s)), where s is the sigmoid of input"""
    for g, x, o in in_blocks(xp, gradient, input, out):
        sigmoid = _sigmoid(xp, x)
        slope = 1 - sigmoid
        slope *= x
        slope += 1
        slope *= sigmoid
        xp.multiply(g, xp.conjugate(slope) if slope.dtype.kind == "c" else slope, out=o)


@implements(
    ops.leaky_relu,
    input=lambda grad, input, negative_slope: F.where(input > 0, grad, grad * negative_slope),
)
def leaky_relu(xp, input, negative_slope, *, out):
    for x, o in in_blocks(xp, input, out):
        select(xp, x > 0, x, x * negative_slope, o)


def _elu_backward(grad, input, alpha):
    return F.where(input > 0, grad, grad * F.exp(input) * alpha)


@implements(ops.elu, input=_elu_backward)
def elu(xp, input, alpha, *, out):
    _elu_family(xp, input, alpha, 1.0, 1.0, out)


def _elu_family(xp, input, alpha, scale, input_scale, out):
    """scale * (x, or alpha * (exp(input_scale * x) - 1) where x is negative)"""
    for x, o in in_blocks(xp, input, out):
        negative = xp.empty_like(x)
        xp.minimum(x, 0, out=negative)
        negative *= input_scale
        xp.expm1(negative, out=negative)
        negative *= alpha * scale
        select(xp, x > 0, x * scale, negative, o)


SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946
"""G. Klambauer et al., Self-Normalizing Neural Networks (2017)"""


@implements(ops.selu, input=lambda grad, input: _elu_backward(grad, input, SELU_ALPHA) * SELU_SCALE)
def selu(xp, input, *, out):
    _elu_family(xp, input, SELU_ALPHA, SELU_SCALE, 1.0, out)


@implements(ops.celu, input=lambda grad, input, alpha: F.where(input > 0, grad, grad * F.exp(input / alpha)))
def celu(xp, input, alpha, *, out):
    _elu_family(xp, input, alpha, 1.0, 1.0 / alpha, out)


def _softplus_backward(grad, input, beta, threshold):
    return F.where(input * beta > threshold, grad, grad * F.sigmoid(input * beta))


@implements(ops.softplus, input=_softplus_backward)
def softplus(xp, input, beta, threshold, *, out):
    for x, o in in_blocks(xp, input, out):
        scaled = x * beta
        soft = xp.log1p(xp.exp(scaled))
        soft /= beta
        select(xp, scaled > threshold, x, soft, o)


def _grad_between(grad, input, low, high):
    """grad where the input lies strictly between two bounds, else 0"""
    return F.where(F.logical_or(input <= low, input >= high), 0.0, grad)


@implements(ops.hardtanh, input=lambda grad, input, min_val, max_val: _grad_between(grad, input, min_val, max_val))
def hardtanh(xp, input, min_val, max_val, *, out):
    xp.maximum(input, number(min_val, out.dtype), out=out)
    xp.minimum(out, number(max_val, out.dtype), out=out)


@implements(ops.relu6, input=lambda grad, input: _grad_between(grad, input, 0, 6))
def relu6(xp, input, *, out):
    xp.maximum(input, 0, out=out)
    xp.minimum(out, 6, out=out)


@implements(ops.hardsigmoid, input=lambda grad, input: _grad_between(grad / 6, input, -3, 3))
def hardsigmoid(xp, input, *, out):
    for x, o in in_blocks(xp, input, out):
        xp.add(x, 3, out=o)
        xp.maximum(o, 0, out=o)
        xp.minimum(o, 6, out=o)
        xp.divide(o, 6, out=o)


def _hardswish_backward(grad, input):
    middle = F.where(input < 3, grad * (input / 3 + 0.5), grad)
    return F.where(input <= -3, 0.0, middle)


@implements(ops.hardswish, input=_hardswish_backward)
def hardswish(xp, input, *, out):
    for x, o in in_blocks(xp, input, out):
        gate = x + 3
        xp.maximum(gate, 0, out=gate)
        xp.minimum(gate, 6, out=gate)
        gate *= x
        xp.divide(gate, 6, out=o)


def _mish_backward(grad, input):
    tanh = F.tanh(F.softplus(input))
    return grad * (tanh + input * F.sigmoid(input) * (1 - F.square(tanh)))


@implements(ops.mish, input=_mish_backward)
def mish(xp, input, *, out):
    for x, o in in_blocks(xp, input, out):
        soft = xp.logaddexp(x, 0)
        xp.tanh(soft, out=soft)
        xp.multiply(soft, x, out=o)


@implements(ops.logsigmoid, input=lambda grad, input: grad * F.sigmoid(-input))
def logsigmoid(xp, input, *, out):
    for x, o in in_blocks(xp, input, out):
        tail = xp.abs(x)
        xp.negative(tail, out=tail)
        xp.exp(tail, out=tail)
        xp.log1p(tail, out=tail)
        xp.subtract(xp.minimum(x, 0), tail, out=o)


@composite(ops.tanhshrink)
def tanhshrink(input):
    return input - F.tanh(input)


@composite(ops.softsign)
def softsign(input):
    return input / (F.abs(input) + 1)


@implements(ops.threshold, input=lambda grad, input, threshold: F.where(input <= threshold, 0.0, grad))
def threshold(xp, input, threshold, value, *, out):
    select(xp, input <= threshold, number(value, out.dtype), input, out)


def _shrink_backward(grad, input, lambd):
    return F.where(F.logical_and(input >= -lambd, input <= lambd), 0.0, grad)


@implements(ops.hardshrink, input=_shrink_backward)
def hardshrink(xp, input, lambd, *, out):
    select(xp, (input >= -lambd) & (input <= lambd), out.dtype.type(0), input, out)


@implements(ops.softshrink, input=_shrink_backward)
def softshrink(xp, input, lambd, *, out):
    for x, o in in_blocks(xp, input, out):
        # Subtracting clamp(x, -lambd, lambd) gives 0 between the bounds and moves all other elements by lambd.
        xp.subtract(x, xp.minimum(xp.maximum(x, -lambd), lambd), out=o)
