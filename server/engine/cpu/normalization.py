"""Layer and RMS normalization in blocks of rows that stay in cache.

The sums of x and x * x give a row's mean and variance in one pass if the mean is at most a few standard deviations from
zero. Otherwise the two terms would cancel, and the rows of the block are centred first. Backward does the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.device import threads
from server.engine.ops.layers import normalization as generic
from server.engine.registry import kernel
from telegrad_protocol.ops.layers import normalization as ops

from .fallback import call_generic
from .halves import is_half, widen, words
from .memory import constant, scratch
from .row_loops import loops_for, run_rows
from .rows import (  # fmt: skip
    add_column,
    add_outer,
    add_row,
    in_row_blocks,
    is_fast,
    is_fast_or_half,
    row_dots,
    row_products,
    row_sums,
    times_column,
    write_outer,
)

Array = Any
_MOST_DEVIATIONS = 2.0
"""The largest |mean|, in standard deviations, up to which rows need not be centred first."""
_SUMMED_ROWS = 256
"""The most rows that are summed in single precision."""


def _are_plain(first: Array, *others: Array | None) -> bool:
    """Whether all arrays are row-major and of one dtype that ``in_row_blocks`` takes."""
    kind = first.dtype
    return is_fast_or_half(first) and all([a is None or (a.dtype is kind and is_fast_or_half(a)) for a in others])


def _vector(parameter: Array | None) -> Array | None:
    """A weight or bias as a vector, in the dtype of the computation."""
    if parameter is None or not is_half(parameter):
        return None if parameter is None else parameter.reshape(-1)
    wide = np.empty(parameter.size, np.float32)
    widen(parameter.reshape(-1), wide)
    return wide


@kernel(ops._layer_norm, keys.CPU, movement=True)
def layer_norm(xp, input, normalized_shape, weight, bias, eps, *, out):
    result, mean, rstd = out
    if not _are_plain(result, input, weight, bias):
        call_generic(generic._layer_norm, input, normalized_shape, weight, bias, eps, out=out)
        return
    length = math.prod(normalized_shape)
    mean, rstd, weight, bias = mean.reshape(-1), rstd.reshape(-1), _vector(weight), _vector(bias)
    loops = loops_for(result, input, weight, bias)
    if loops is not None:
        weight, bias = _filled(weight, 1, length), _filled(bias, 0, length)
        run_rows(
            loops.layer_norm[result.dtype.char], (input.reshape(-1, length), result.reshape(-1, length)),
            lambda rows, x, y: (x, weight, bias, eps, y, mean[rows], rstd[rows]),
        )  # fmt: skip
        return
    for block, (x, y) in in_row_blocks((input.reshape(-1, length),), (result.reshape(-1, length),)):
        centre, scale = mean[block], rstd[block]
        if not _moments(x, eps, centre, scale):
            x = _centred(x, eps, centre, scale)
            centre = np.zeros_like(centre)
        _scale_and_shift(x, y, centre, scale, weight, bias)


def _filled(parameter: Array | None, number: float, length: int) -> Array:
    """The parameter in float32, or a vector that stands for an absent one."""
    return np.full(length, number, "f") if parameter is None else parameter


def _moments(x: Array, eps: float, mean: Array, rstd: Array) -> bool:
    """Write mean and 1 / sqrt(variance + eps) of every row; False if the subtraction cancelled too many digits."""
    inverse_length = 1 / x.shape[1]
    np.multiply(row_sums(x), inverse_length, out=mean)
    squared = mean * mean
    variance = row_dots(x, x)
    variance *= inverse_length
    variance -= squared
    squared *= 1 / _MOST_DEVIATIONS**2
    is_accurate = np.logical_and.reduce(squared <= variance)
    variance += eps
    np.divide(1, np.sqrt(variance, out=variance), out=rstd)
    return bool(is_accurate)


def _centred(x: Array, eps: float, mean: Array, rstd: Array) -> Array:
    """x minus the mean of every row, in scratch memory; writes corrected means and rstd."""
    centred = scratch("centred", x.shape, x.dtype.char)
    np.copyto(centred, x)
    add_column(centred, -mean)
    residual = row_sums(centred)  # the rounding errors of the means
    residual *= 1 / x.shape[1]
    add_column(centred, -residual)
    mean += residual
    variance = row_dots(centred, centred)
    variance *= 1 / x.shape[1]
    variance += eps
    np.divide(1, np.sqrt(variance, out=variance), out=rstd)
    return centred


def _scale_and_shift(x: Array, y: Array, mean: Array, rstd: Array, weight: Array | None, bias: Array | None) -> None:
    """y = x * (rstd weight) - mean * (rstd weight) + bias"""
    shift = mean * rstd
    np.negative(shift, out=shift)
    if weight is None:
        times_column(x, rstd, y)
        add_column(y, shift)
    else:
        write_outer(y, rstd, weight)
        np.multiply(y, x, out=y)
        add_outer(y, shift, weight)
    if bias is not None:
        add_row(y, bias)


@kernel(ops._layer_norm_backward, keys.CPU, movement=True)
def layer_norm_backward(xp, grad_out, input, mean, rstd, weight, *, out):
    if not _are_plain(out, grad_out, input, weight) or not (is_fast(mean) and is_fast(rstd)):
        call_generic(generic._layer_norm_backward, grad_out, input, mean, rstd, weight, out=out)
        return
    length = input.size // mean.size
    grad, x, result = (a.reshape(-1, length) for a in (grad_out, input, out))
    mean, rstd, weight = mean.reshape(-1), rstd.reshape(-1), _vector(weight)
    for block, (g, v, y) in in_row_blocks((grad, x), (result,)):
        _backward_block(g, v, y, mean[block], rstd[block], weight)


def _backward_block(grad: Array, x: Array, out: Array, mean: Array, rstd: Array, weight: Array | None) -> None:
    """out = w - mean(w) - z * mean(w z), where w = grad * weight * rstd and z = (x - mean) * rstd"""
    inverse_length = 1 / x.shape[1]
    _scale(grad, rstd, weight, out)
    average = row_sums(out) if weight is None else row_products(grad, weight) * rstd
    if _need_no_centring(mean, rstd):
        slope = (row_dots(out, x) - mean * average) * (rstd * rstd * -inverse_length)
        shift = slope * mean
        shift += average * inverse_length
        along = scratch("along", x.shape, x.dtype.char)
    else:
        along = x - mean[:, None]
        slope = row_dots(out, along) * (rstd * rstd * -inverse_length)
        shift = average * inverse_length
        x = along
    times_column(x, slope, along)
    out += along
    add_column(out, np.negative(shift, out=shift))


def _need_no_centring(mean: Array, rstd: Array) -> bool:
    """Whether all means are within ``_MOST_DEVIATIONS`` standard deviations from zero."""
    return bool(np.maximum.reduce(np.abs(mean) * rstd) <= _MOST_DEVIATIONS)


@kernel(ops._layer_norm_weight_backward, keys.CPU, movement=True)
def layer_norm_weight_backward(xp, grad_out, input, mean, rstd, normalized_shape, *, out):
    if not _are_plain(out, grad_out, input) or not (is_fast(mean) and is_fast(rstd)):
        call_generic(generic._layer_norm_weight_backward, grad_out, input, mean, rstd, normalized_shape, out=out)
        return
    length = out.size
    mean, rstd = mean.reshape(-1), rstd.reshape(-1)
    total = np.zeros(length)
    for block, (grad, x) in in_row_blocks((grad_out.reshape(-1, length), input.reshape(-1, length)), ()):
        total += _weight_gradient(grad, x, mean[block], rstd[block])
    np.copyto(out, total.reshape(out.shape), casting="unsafe")


def _weight_gradient(grad: Array, x: Array, mean: Array, rstd: Array) -> Array:
    """The sum over rows of grad * (x - mean) * rstd"""
    product = scratch("along", x.shape, x.dtype.char)
    if _need_no_centring(mean, rstd):
        return rstd.dot(np.multiply(grad, x, out=product)) - (mean * rstd).dot(grad)
    np.subtract(x, mean[:, None], out=product)
    return rstd.dot(np.multiply(product, grad, out=product))


@kernel(ops._layer_norm_gradients, keys.CPU, movement=True)
def layer_norm_gradients(xp, grad_out, input, mean, rstd, weight, normalized_shape, *, out):
    by_input, by_weight, by_bias = out
    are_plain = _are_plain(by_input, grad_out, input, weight, by_weight, by_bias)
    if not are_plain or not (is_fast(mean) and is_fast(rstd)):
        call_generic(
            generic._layer_norm_gradients, grad_out, input, mean, rstd, weight, normalized_shape, out=out
        )  # fmt: skip
        return
    length = by_weight.size
    grad, x, result = (a.reshape(-1, length) for a in (grad_out, input, by_input))
    mean, rstd, weight = mean.reshape(-1), rstd.reshape(-1), _vector(weight)
    loops = loops_for(by_input, grad_out, input, mean, rstd)
    if loops is not None:
        totals = _gradients_by_loops(loops, grad, x, result, mean, rstd, _filled(weight, 1, length))
    else:
        totals = _gradients_in_blocks(grad, x, result, mean, rstd, weight)
    for parameter, total in zip((by_weight, by_bias), totals, strict=True):
        np.copyto(parameter, total.reshape(parameter.shape), casting="unsafe")


def _gradients_by_loops(
    loops: Any, grad: Array, x: Array, result: Array, mean: Array, rstd: Array, weight: Array
) -> Array:
    """Write the gradient of the input; return those of weight and bias in float64."""
    loop = loops.layer_norm_gradients[x.dtype.char]
    grad, x, result = words(grad), words(x), words(result)
    starts = range(0, len(x), _SUMMED_ROWS)
    sums = np.zeros((len(starts), 2, len(weight)), "f")
    parts = [slice(start, start + _SUMMED_ROWS) for start in starts]
    calls = [
        (grad[part], x[part], mean[part], rstd[part], weight, result[part], *own)
        for part, own in zip(parts, sums, strict=True)
    ]
    threads.run_loop(loop, calls)
    return sums.sum(axis=0, dtype=np.float64)


def _gradients_in_blocks(
    grad: Array, x: Array, result: Array, mean: Array, rstd: Array, weight: Array | None
) -> Array:  # fmt: skip
    """The same by NumPy's functions."""
    totals = np.zeros((2, x.shape[1]))
    for block, (g, v, y) in in_row_blocks((grad, x), (result,)):
        _backward_block(g, v, y, mean[block], rstd[block], weight)
        totals[0] += _weight_gradient(g, v, mean[block], rstd[block])
        totals[1] += constant(1, len(g), g.dtype.char).dot(g)
    return totals


@kernel(ops._rms_norm, keys.CPU, movement=True)
def rms_norm(xp, input, normalized_shape, weight, eps, *, out):
    result, rstd = out
    if not _are_plain(result, input, weight):
        call_generic(generic._rms_norm, input, normalized_shape, weight, eps, out=out)
        return
    length = math.prod(normalized_shape)
    rstd, weight = rstd.reshape(-1), _vector(weight)
    for block, (x, y) in in_row_blocks((input.reshape(-1, length),), (result.reshape(-1, length),)):
        power = row_dots(x, x)
        power *= 1 / length
        power += eps
        np.divide(1, np.sqrt(power, out=power), out=rstd[block])
        _scale(x, rstd[block], weight, y)


def _scale(x: Array, rstd: Array, weight: Array | None, out: Array) -> None:
    """out = x * rstd * weight"""
    if weight is None:
        times_column(x, rstd, out)
    else:
        write_outer(out, rstd, weight)
        np.multiply(out, x, out=out)


@kernel(ops._rms_norm_gradients, keys.CPU, movement=True)
def rms_norm_gradients(xp, grad_out, input, rstd, weight, normalized_shape, *, out):
    by_input, by_weight = out
    if not _are_plain(by_input, grad_out, input, weight, by_weight) or not is_fast(rstd):
        call_generic(generic._rms_norm_gradients, grad_out, input, rstd, weight, normalized_shape, out=out)
        return
    length = by_weight.size
    grad, x, result = (a.reshape(-1, length) for a in (grad_out, input, by_input))
    rstd, weight = rstd.reshape(-1), _vector(weight)
    total = np.zeros(length)
    for block, (g, v, y) in in_row_blocks((grad, x), (result,)):
        _rms_backward_block(g, v, y, rstd[block], weight)
        total += rstd[block].dot(np.multiply(g, v, out=scratch("along", v.shape, v.dtype.char)))
    np.copyto(by_weight, total.reshape(by_weight.shape), casting="unsafe")


def _rms_backward_block(grad: Array, x: Array, out: Array, rstd: Array, weight: Array | None) -> None:
    """out = w - z * mean(w z), where w = grad * weight * rstd and z = x * rstd"""
    _scale(grad, rstd, weight, out)
    slope = row_dots(out, x)
    slope *= rstd * rstd * (-1 / x.shape[1])
    along = scratch("along", x.shape, x.dtype.char)
    times_column(x, slope, along)
    out += along
