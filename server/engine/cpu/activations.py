"""Activation functions of float32 and float64, in pieces that stay in cache and with reused temporaries.

Bounds are passed to NumPy as arrays, because its loops over an array and a scalar are not vectorised. A choice between
two branches is computed as their sum, where each branch is zero where the other one holds.
"""

from __future__ import annotations

import math
from functools import lru_cache
from threading import get_ident
from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.device import threads
from server.engine.ops import elementary as generic_elementary
from server.engine.ops import extremes as generic_extremes
from server.engine.ops.layers import activations as generic
from server.engine.registry import kernel
from telegrad_protocol.ops import elementary, extremes
from telegrad_protocol.ops.layers import activations as ops

from .memory import BLOCK_BYTES, filled, in_pieces, scratch
from .pointwise import log1p_unit

Array = Any
_BITS = {"f": "i", "d": "l"}
_ONE = np.int8(1)
_INVERSE_SQRT_2PI = 1 / math.sqrt(2 * math.pi)


def _is_real(array: Array) -> bool:
    return array.dtype.char in "fd"


def _loops(*arrays: Array) -> Any:
    """The compiled loops if they take all of these as vectors: float32, large, row-major, of one shape; else None."""
    first = arrays[0]
    if first.size < compiled.LEAST:
        return None
    for array in arrays:
        if array.dtype.char != "f" or not array.flags.c_contiguous or array.shape != first.shape:
            return None
    return compiled.kernels("elementwise")


@kernel(ops.relu, keys.CPU)
def relu(xp, input, *, out):
    if not _is_real(out):
        generic.relu(xp, input, out=out)
        return
    if out.nbytes > BLOCK_BYTES:
        _clamp(0, None, input, out)
    else:
        np.maximum(input, filled(0, out.shape, out.dtype.char), out=out)


@kernel(ops._relu_backward, keys.CPU)
def relu_backward(xp, gradient, result, *, out):
    """gradient where result > 0, else 0, by a mask of bits: a product would turn an infinite gradient into NaN"""
    bits = _BITS.get(out.dtype.char)
    if bits is None or gradient.dtype is not out.dtype:
        generic._relu_backward(xp, gradient, result, out=out)
        return
    if gradient.nbytes <= BLOCK_BYTES:  # what ``in_pieces`` gives as one piece, without the call
        _select_positive(gradient, result, out, bits)
        return
    for grad, y, target in in_pieces(gradient, result, out):
        _select_positive(grad, y, target, bits)


def _select_positive(grad: Array, y: Array, out: Array, bits: str) -> None:
    """out = grad where y > 0, else 0"""
    choice, is_zero, mask = (
        _kept_masks(y.shape, bits, get_ident()) if out.nbytes <= BLOCK_BYTES else _masks(y.shape, bits)
    )
    np.less_equal(y, filled(0, y.shape, y.dtype.char), out=is_zero)
    np.subtract(choice, _ONE, out=choice)
    np.copyto(mask, choice)
    np.bitwise_and(grad.view(bits), mask, out=out.view(bits))


def _masks(shape: tuple[int, ...], bits: str, thread: int = 0) -> tuple[Array, Array, Array]:
    """Scratch memory for a truth value per element: as int8, the same bytes as bool, and as integers like ``bits``."""
    choice = scratch("choice", shape, "b")
    return choice, choice.view(bool), scratch("mask", shape, bits)


_kept_masks = lru_cache(maxsize=1024)(_masks)
"""``_masks`` of shapes whose scratch memory is kept anyway, by thread; a hit is one call of C code."""


def _clamp(low: float | None, high: float | None, input: Array, out: Array) -> None:
    """Clip to both bounds, where an absent one is infinite: NumPy's clip with one bound is not vectorised."""
    input.clip(-np.inf if low is None else low, np.inf if high is None else high, out=out)


def _are_scalars_or_none(*limits: Any) -> bool:
    return all([limit.__class__ in (int, float, type(None)) for limit in limits])


@kernel(extremes.clamp, keys.CPU)
def clamp(xp, input, min, max, *, out):
    if _is_real(out) and _are_scalars_or_none(min, max) and not (min is None and max is None):
        _clamp(min, max, input, out)
    else:
        generic_extremes.clamp(xp, input, min, max, out=out)


@kernel(extremes.clamp_min, keys.CPU)
def clamp_min(xp, input, min, *, out):
    if _is_real(out) and _are_scalars_or_none(min):
        _clamp(min, None, input, out)
    else:
        generic_extremes.clamp_min(xp, input, min, out=out)


@kernel(extremes.clamp_max, keys.CPU)
def clamp_max(xp, input, max, *, out):
    if _is_real(out) and _are_scalars_or_none(max):
        _clamp(None, max, input, out)
    else:
        generic_extremes.clamp_max(xp, input, max, out=out)


@kernel(ops.hardtanh, keys.CPU)
def hardtanh(xp, input, min_val, max_val, *, out):
    if _is_real(out):
        _clamp(min_val, max_val, input, out)
    else:
        generic.hardtanh(xp, input, min_val, max_val, out=out)


@kernel(ops.relu6, keys.CPU)
def relu6(xp, input, *, out):
    if _is_real(out):
        _clamp(0, 6, input, out)
    else:
        generic.relu6(xp, input, out=out)


# Coefficients of artanh(erf(x / sqrt(2))) / x as a polynomial in x ** 2, the highest power first; the error of erf is
# 1.3e-7. The highest coefficient is positive, so that tanh of the polynomial keeps its limits for large x.
_ERF_COEFFICIENTS = (
    1.756170594465248e-09, -1.3226333562548428e-07, 3.9647443810781865e-06, -5.530619353551306e-05,
    -3.259497591638649e-05, 0.036333084573860794, 0.7978849414605632,
)  # fmt: skip


def _normal_cdf(x: Array, squared: Array) -> Array:
    """(1 + erf(x / sqrt(2))) / 2 in float32, in scratch memory; ``squared`` is x ** 2."""
    total = np.multiply(squared, _ERF_COEFFICIENTS[0], out=scratch("erf", x.shape, x.dtype.char))
    for coefficient in _ERF_COEFFICIENTS[1:-1]:
        total += coefficient
        total *= squared
    total += _ERF_COEFFICIENTS[-1]
    total *= x
    np.tanh(total, out=total)
    total += 1
    total *= 0.5
    return total


@kernel(ops.gelu, keys.CPU)
def gelu(xp, input, *, approximate, out):
    """x * cdf(x), where cdf is the standard normal distribution function"""
    loops = _loops(out, input)
    if loops is not None:
        threads.run_vectors((loops.gelu if approximate == "none" else loops.gelu_tanh)["f"], input, out)
        return
    if out.dtype.char != "f" or approximate != "none":
        generic.gelu(xp, input, approximate=approximate, out=out)
        return
    for x, y in in_pieces(input, out):
        cdf = _normal_cdf(x, np.multiply(x, x, out=scratch("squared", x.shape, x.dtype.char)))
        np.multiply(cdf, x, out=y)


@kernel(ops._gelu_backward, keys.CPU)
def gelu_backward(xp, gradient, input, *, approximate, out):
    """gradient * (cdf(x) + x * pdf(x)), where cdf and pdf are those of the standard normal distribution"""
    loops = _loops(out, gradient, input)
    if loops is not None:
        loop = loops.gelu_backward if approximate == "none" else loops.gelu_tanh_backward
        threads.run_vectors(loop["f"], gradient, input, out)
        return
    if out.dtype.char != "f" or approximate != "none":
        generic._gelu_backward(xp, gradient, input, approximate=approximate, out=out)
        return
    for grad, x, y in in_pieces(gradient, input, out):
        pdf = np.multiply(x, x, out=scratch("squared", x.shape, x.dtype.char))
        cdf = _normal_cdf(x, pdf)
        pdf *= -0.5
        np.exp(pdf, out=pdf)
        pdf *= _INVERSE_SQRT_2PI
        pdf *= x
        cdf += pdf
        np.multiply(cdf, grad, out=y)


def _one_plus_exp(x: Array) -> Array:
    """1 + exp(-x), in scratch memory"""
    result = np.negative(x, out=scratch("exponential", x.shape, x.dtype.char))
    np.exp(result, out=result)
    result += 1
    return result


@kernel(elementary.exp, keys.CPU)
def exp(xp, input, *, out):
    loops = _loops(out, input)
    if loops is not None:
        threads.run_vectors(loops.exp["f"], input, out)
    else:
        generic_elementary.exp(xp, input, out=out)


@kernel(elementary.tanh, keys.CPU)
def tanh(xp, input, *, out):
    loops = _loops(out, input)
    if loops is not None:
        threads.run_vectors(loops.tanh["f"], input, out)
    else:
        generic_elementary.tanh(xp, input, out=out)


@kernel(elementary.sigmoid, keys.CPU)
def sigmoid(xp, input, *, out):
    if not _is_real(out):
        generic_elementary.sigmoid(xp, input, out=out)
        return
    loops = _loops(out, input)
    if loops is not None:
        threads.run_vectors(loops.sigmoid["f"], input, out)
        return
    for x, y in in_pieces(input, out):
        np.divide(1, _one_plus_exp(x), out=y)


@kernel(ops.silu, keys.CPU)
def silu(xp, input, *, out):
    if not _is_real(out):
        generic.silu(xp, input, out=out)
        return
    loops = _loops(out, input)
    if loops is not None:
        threads.run_vectors(loops.silu["f"], input, out)
        return
    for x, y in in_pieces(input, out):
        np.divide(x, _one_plus_exp(x), out=y)


@kernel(ops._silu_backward, keys.CPU)
def silu_backward(xp, gradient, input, *, out):
    """gradient * s * (1 + input * (1 - s)), where s is the sigmoid of input"""
    if not _is_real(out):
        generic._silu_backward(xp, gradient, input, out=out)
        return
    loops = _loops(out, gradient, input)
    if loops is not None:
        threads.run_vectors(loops.silu_backward["f"], gradient, input, out)
        return
    for grad, x, y in in_pieces(gradient, input, out):
        sigmoid = _one_plus_exp(x)
        np.divide(1, sigmoid, out=sigmoid)
        slope = np.subtract(1, sigmoid, out=scratch("slope", x.shape, x.dtype.char))
        slope *= x
        slope += 1
        slope *= sigmoid
        np.multiply(slope, grad, out=y)


@kernel(ops.leaky_relu, keys.CPU)
def leaky_relu(xp, input, negative_slope, *, out):
    if not _is_real(out) or not 0 < negative_slope <= 1:
        generic.leaky_relu(xp, input, negative_slope, out=out)
        return
    for x, y in in_pieces(input, out):
        np.maximum(x, np.multiply(x, negative_slope, out=scratch("slope", x.shape, x.dtype.char)), out=y)


def _elu_family(input: Array, alpha: float, scale: float, input_scale: float, out: Array) -> None:
    """scale * max(x, 0) + alpha * scale * (exp(input_scale * min(x, 0)) - 1)"""
    for x, y in in_pieces(input, out):
        below = np.minimum(x, filled(0, x.shape, x.dtype.char), out=scratch("below", x.shape, x.dtype.char))
        if input_scale != 1:
            below *= input_scale
        np.expm1(below, out=below)
        if alpha * scale != 1:
            below *= alpha * scale
        np.maximum(x, filled(0, x.shape, x.dtype.char), out=y)
        if scale != 1:
            np.multiply(y, scale, out=y)
        np.add(y, below, out=y)


@kernel(ops.elu, keys.CPU)
def elu(xp, input, alpha, *, out):
    if _is_real(out) and math.isfinite(alpha):
        _elu_family(input, alpha, 1, 1, out)
    else:
        generic.elu(xp, input, alpha, out=out)


@kernel(ops.selu, keys.CPU)
def selu(xp, input, *, out):
    if _is_real(out):
        _elu_family(input, generic.SELU_ALPHA, generic.SELU_SCALE, 1, out)
    else:
        generic.selu(xp, input, out=out)


@kernel(ops.celu, keys.CPU)
def celu(xp, input, alpha, *, out):
    if _is_real(out) and math.isfinite(alpha) and alpha > 0:
        _elu_family(input, alpha, 1, 1 / alpha, out)
    else:
        generic.celu(xp, input, alpha, out=out)


_SATURATED_SOFTPLUS = 17.5
"""For a larger x, exp(-x) is less than half of the last bit of x in float32, so softplus(x) is x."""


@kernel(ops.softplus, keys.CPU)
def softplus(xp, input, beta, threshold, *, out):
    """(max(z, 0) + log(1 + exp(-|z|))) / beta, where z = beta * x; a high threshold does not change the result."""
    if out.dtype.char != "f" or threshold < _SATURATED_SOFTPLUS or not beta > 0:
        generic.softplus(xp, input, beta, threshold, out=out)
        return
    for x, y in in_pieces(input, out):
        z = x if beta == 1 else np.multiply(x, beta, out=scratch("scaled", x.shape, x.dtype.char))
        soft = np.absolute(z, out=scratch("soft", x.shape, x.dtype.char))
        np.negative(soft, out=soft)
        log1p_unit(np.exp(soft, out=soft))
        np.add(soft, np.maximum(z, filled(0, z.shape, z.dtype.char), out=y), out=y)
        if beta != 1:
            np.divide(y, beta, out=y)


def _relu6_of_shifted(x: Array, out: Array) -> None:
    """out = min(max(x + 3, 0), 6)"""
    np.add(x, 3, out=out)
    np.maximum(out, filled(0, out.shape, out.dtype.char), out=out)
    np.minimum(out, filled(6, out.shape, out.dtype.char), out=out)


@kernel(ops.hardsigmoid, keys.CPU)
def hardsigmoid(xp, input, *, out):
    if not _is_real(out):
        generic.hardsigmoid(xp, input, out=out)
        return
    for x, y in in_pieces(input, out):
        _relu6_of_shifted(x, y)
        np.divide(y, 6, out=y)


@kernel(ops.hardswish, keys.CPU)
def hardswish(xp, input, *, out):
    if not _is_real(out):
        generic.hardswish(xp, input, out=out)
        return
    for x, y in in_pieces(input, out):
        gate = scratch("gate", x.shape, x.dtype.char)
        _relu6_of_shifted(x, gate)
        gate *= x
        np.divide(gate, 6, out=y)


_SATURATED = 20.0
"""For a larger x, tanh(log(1 + exp(x))) is 1, in float64 too."""


@kernel(ops.mish, keys.CPU)
def mish(xp, input, *, out):
    """x * tanh(softplus(x)) = x * n / (n + 2), where n = e * (e + 2) and e = exp(x)"""
    if not _is_real(out):
        generic.mish(xp, input, out=out)
        return
    for x, y in in_pieces(input, out):
        power = np.minimum(x, filled(_SATURATED, x.shape, x.dtype.char), out=scratch("power", x.shape, x.dtype.char))
        np.exp(power, out=power)
        ratio = np.add(power, 2, out=scratch("share", x.shape, x.dtype.char))
        ratio *= power
        np.add(ratio, 2, out=power)
        ratio /= power
        np.multiply(ratio, x, out=y)
