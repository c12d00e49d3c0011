"""Batch and group normalization of (n, channels, positions) in single or half precision, by the character of the type.

Statistics are sums over positions in single precision, which are added in double; elements of half precision are
widened where they are read, and results rounded once. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

import math
from typing import Any

from ..arithmetic import f32, inlined, rounded, typed, wide

Array = Any
_STACK, _VECTOR = "T[:,:,::1]", "float32[::1]"


@inlined
def _sum(row: Array) -> Any:
    total = f32(0.0)
    for p in range(row.size):
        total += wide(row[p])
    return total


@inlined
def _deviations(row: Array, mean: float) -> Any:
    """The sums of the squares of deviations from a mean, and of these themselves."""
    squares, rest = f32(0.0), f32(0.0)
    for p in range(row.size):
        deviation = wide(row[p]) - mean
        squares += deviation * deviation
        rest += deviation
    return squares, rest


@inlined
def _scale(row: Array, mean: float, scale: float, shift: float, out: Array) -> None:
    for p in range(row.size):
        out[p] = rounded((wide(row[p]) - mean) * scale + shift, out)


@inlined
def _products(grad: Array, row: Array, mean: float) -> Any:
    """The sums of gradients, and of their products with deviations from a mean."""
    total, along = f32(0.0), f32(0.0)
    for p in range(row.size):
        total += wide(grad[p])
        along += wide(grad[p]) * (wide(row[p]) - mean)
    return total, along


@inlined
def _write_gradient(
    grad: Array, row: Array, mean: float, factor: float, average: float, slope: float, scale: float, out: Array
) -> None:  # fmt: skip
    """out = (grad * factor - average - (x - mean) * slope) * scale"""
    for p in range(row.size):
        out[p] = rounded((wide(grad[p]) * factor - average - (wide(row[p]) - mean) * slope) * scale, out)


@typed("int64", "int64", _STACK, _VECTOR, _VECTOR, "float64", _STACK, _VECTOR, _VECTOR, _VECTOR)
def batch_norm(
    first: int, last: int, x: Array, weight: Array, bias: Array, eps: float, out: Array, means: Array,
    variances: Array, rstds: Array,
) -> None:  # fmt: skip
    """Normalize channels ``first`` to ``last`` over samples and positions."""
    count = x.shape[0] * x.shape[2]
    for c in range(first, last):
        total = 0.0
        for n in range(x.shape[0]):
            total += _sum(x[n, c])
        mean = f32(total / count)
        squares, rest = 0.0, 0.0
        for n in range(x.shape[0]):
            part, off = _deviations(x[n, c], mean)
            squares += part
            rest += off
        rest /= count
        variance = max(squares / count - rest * rest, 0.0)
        rstd = 1.0 / math.sqrt(variance + eps)
        means[c], variances[c], rstds[c] = mean + rest, variance, rstd
        scale = f32(rstd) * weight[c]
        shift = bias[c] - f32(rest) * scale
        for n in range(x.shape[0]):
            _scale(x[n, c], mean, scale, shift, out[n, c])


@typed("int64", "int64", _STACK, _STACK, _VECTOR, _VECTOR, _VECTOR, _STACK, _VECTOR, _VECTOR)
def batch_norm_gradients(
    first: int, last: int, grad: Array, x: Array, means: Array, rstds: Array, weight: Array, out: Array,
    by_weight: Array, by_bias: Array,
) -> None:  # fmt: skip
    """The gradients of input, weight and bias, for channels ``first`` to ``last``."""
    count = x.shape[0] * x.shape[2]
    for c in range(first, last):
        mean, rstd = means[c], rstds[c]
        total, along = 0.0, 0.0
        for n in range(x.shape[0]):
            part, product = _products(grad[n, c], x[n, c], mean)
            total += part
            along += product
        along *= rstd
        by_bias[c], by_weight[c] = total, along
        average, slope, scale = f32(total / count), f32(along / count) * rstd, rstd * weight[c]
        for n in range(x.shape[0]):
            _write_gradient(grad[n, c], x[n, c], mean, f32(1.0), average, slope, scale, out[n, c])


@typed("int64", "int64", _STACK, "int64", _VECTOR, _VECTOR, "float64", _STACK, _VECTOR, _VECTOR)
def group_norm(
    first: int, last: int, x: Array, groups: int, weight: Array, bias: Array, eps: float, out: Array, means: Array,
    rstds: Array,
) -> None:  # fmt: skip
    """Normalize groups of channels over their positions: unit u is group u % groups of sample u // groups."""
    size = x.shape[1] // groups
    count = size * x.shape[2]
    for unit in range(first, last):
        n = unit // groups
        begin = (unit - n * groups) * size
        total = 0.0
        for c in range(begin, begin + size):
            total += _sum(x[n, c])
        mean = f32(total / count)
        squares, rest = 0.0, 0.0
        for c in range(begin, begin + size):
            part, off = _deviations(x[n, c], mean)
            squares += part
            rest += off
        rest /= count
        rstd = 1.0 / math.sqrt(max(squares / count - rest * rest, 0.0) + eps)
        means[unit], rstds[unit] = mean + rest, rstd
        for c in range(begin, begin + size):
            scale = f32(rstd) * weight[c]
            _scale(x[n, c], mean, scale, bias[c] - f32(rest) * scale, out[n, c])


@typed("int64", "int64", _STACK, _STACK, "int64", _VECTOR, _VECTOR, _VECTOR, _STACK, "float32[:,::1]", "float32[:,::1]")
def group_norm_gradients(
    first: int, last: int, grad: Array, x: Array, groups: int, means: Array, rstds: Array, weight: Array, out: Array,
    along: Array, totals: Array,
) -> None:  # fmt: skip
    """The gradient of the input for those units, and what a sample adds to those of weight, and of bias."""
    size = x.shape[1] // groups
    count = size * x.shape[2]
    for unit in range(first, last):
        n = unit // groups
        begin = (unit - n * groups) * size
        mean, rstd = means[unit], rstds[unit]
        average, slope = 0.0, 0.0
        for c in range(begin, begin + size):
            part, product = _products(grad[n, c], x[n, c], mean)
            product *= rstd
            totals[n, c], along[n, c] = part, product
            average += part * weight[c]
            slope += product * weight[c]
        middle, incline = f32(average / count), f32(slope / count) * rstd
        for c in range(begin, begin + size):
            _write_gradient(grad[n, c], x[n, c], mean, weight[c], middle, incline, rstd, out[n, c])
