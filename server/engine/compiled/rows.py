"""Loops over the rows of matrices in single or half precision, each a table of functions by the character of the type.

Half precision is taken as integers of 16 bits. Some rows at a time are widened into the first-level cache, computed
there, and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arithmetic import (
    GREATEST_KEY,
    LEAST_KEY,
    compiled,
    exp,
    f32,
    inlined,
    key_of,
    largest,
    number_of,
    rounded,
    typed,
    wide,
)

Array = Any
_VECTOR, _MATRIX, _ELEMENTS, _HALVES = "float32[::1]", "float32[:,::1]", "T[:,::1]", "eE"
_BLOCK = 2048
"""Elements of half precision that are in single precision at a time, unless a row is longer."""
_STRETCH, _ROWS = 2048, 256
"""Elements of a row, and of a column, that are summed in single precision."""


@inlined
def _rows_at_a_time(x: Array) -> Any:
    return max(1, _BLOCK // max(1, x.shape[1]))


@inlined
def _widen(x: Array, first: int, block: Array) -> None:
    """Copy rows from ``first`` on into a block of single precision."""
    for r in range(block.shape[0]):
        row, target = x[first + r], block[r]
        for c in range(row.size):
            target[c] = wide(row[c])


@inlined
def _narrow(block: Array, first: int, out: Array) -> None:
    for r in range(block.shape[0]):
        row, target = block[r], out[first + r]
        for c in range(row.size):
            target[c] = rounded(row[c], target)


@typed(_ELEMENTS, _VECTOR)
def row_sums(x: Array, out: Array) -> None:
    """The sums of rows: of stretches in single precision, which are added in double."""
    for r in range(x.shape[0]):
        row, total = x[r], 0.0
        for start in range(0, row.size, _STRETCH):
            stretch = row[start : min(start + _STRETCH, row.size)]
            part = f32(0.0)
            for c in range(stretch.size):
                part += wide(stretch[c])
            total += part
        out[r] = total


@inlined
def _extreme_keys(row: Array) -> Any:
    """The largest and the smallest key of a row's elements."""
    top, least = key_of(wide(row[0])), key_of(wide(row[0]))
    for c in range(row.size):
        key = key_of(wide(row[c]))
        top, least = max(top, key), min(least, key)
    return top, least


@typed(_ELEMENTS, _VECTOR)
def row_maxima(x: Array, out: Array) -> None:
    """The largest element of every row; NaN where there is one."""
    for r in range(x.shape[0]):
        top, least = _extreme_keys(x[r])
        out[r] = f32(np.nan) if least < LEAST_KEY or top > GREATEST_KEY else number_of(top)


@typed(_ELEMENTS, _VECTOR)
def row_minima(x: Array, out: Array) -> None:
    """The smallest element of every row; NaN where there is one."""
    for r in range(x.shape[0]):
        top, least = _extreme_keys(x[r])
        out[r] = f32(np.nan) if least < LEAST_KEY or top > GREATEST_KEY else number_of(least)


@typed(_ELEMENTS, "int64", _VECTOR)
def column_sums(x: Array, first: int, out: Array) -> None:
    """The sums of as many columns as ``out`` is long: of some rows in single precision, which are added in double."""
    totals, part = np.zeros(out.size, np.float64), np.empty(out.size, f32)
    for start in range(0, x.shape[0], _ROWS):
        part[:] = f32(0.0)
        for r in range(start, min(start + _ROWS, x.shape[0])):
            row = x[r, first : first + part.size]
            for c in range(part.size):
                part[c] += wide(row[c])
        for c in range(part.size):
            totals[c] += part[c]
    for c in range(out.size):
        out[c] = totals[c]


@typed(_ELEMENTS, _VECTOR)
def row_logsumexp(x: Array, out: Array) -> None:
    """log(sum(exp(x))) of every row."""
    for r in range(x.shape[0]):
        row = x[r]
        top, least = _extreme_keys(row)
        highest = number_of(top)
        shift = highest if np.isfinite(highest) else f32(0.0)
        total = f32(0.0)
        for c in range(row.size):
            total += exp(wide(row[c]) - shift)
        result = np.log(total) + shift
        out[r] = f32(np.nan) if least < LEAST_KEY or top > GREATEST_KEY else result


@compiled(_MATRIX, _VECTOR, _VECTOR, "float64", _MATRIX, _VECTOR, _VECTOR)
def _layer_norm(x: Array, weight: Array, bias: Array, eps: float, out: Array, means: Array, rstds: Array) -> None:
    """(x - mean) * rstd * weight + bias; deviations are kept in between, so that a rounded mean can be corrected."""
    length = x.shape[1]
    for r in range(x.shape[0]):
        row, result = x[r], out[r]
        total = f32(0.0)
        for c in range(length):
            total += row[c]
        mean = total / f32(length)
        squares, rest = f32(0.0), f32(0.0)
        for c in range(length):
            deviation = row[c] - mean
            result[c] = deviation
            squares += deviation * deviation
            rest += deviation
        rest /= f32(length)
        rstd = f32(1.0) / np.sqrt(max(squares / f32(length) - rest * rest, f32(0.0)) + f32(eps))
        means[r] = mean + rest
        rstds[r] = rstd
        for c in range(length):
            result[c] = (result[c] - rest) * rstd * weight[c] + bias[c]


@compiled(_MATRIX, _MATRIX, _VECTOR, _VECTOR, _VECTOR, _MATRIX, _VECTOR, _VECTOR)
def _layer_norm_gradients(
    grad: Array, x: Array, means: Array, rstds: Array, weight: Array, out: Array, by_weight: Array, by_bias: Array
) -> None:  # fmt: skip
    """The gradient of the input; those of weight and bias are added to."""
    length = x.shape[1]
    for r in range(x.shape[0]):
        mean, rstd = means[r], rstds[r]
        total, along = f32(0.0), f32(0.0)
        for c in range(length):
            weighted = grad[r, c] * weight[c]
            z = (x[r, c] - mean) * rstd
            total += weighted
            along += weighted * z
            by_weight[c] += grad[r, c] * z
            by_bias[c] += grad[r, c]
        total /= f32(length)
        along /= f32(length)
        for c in range(length):
            z = (x[r, c] - mean) * rstd
            out[r, c] = (grad[r, c] * weight[c] - total - z * along) * rstd


@compiled(_MATRIX, _MATRIX, "boolean")
def _softmax(x: Array, out: Array, takes_logarithm: bool) -> None:
    """The softmax of every row, or its logarithm."""
    for r in range(x.shape[0]):
        row, result = x[r], out[r]
        top = largest(row, row.size)
        total = f32(0.0)
        if takes_logarithm:
            for c in range(row.size):
                result[c] = row[c] - top
            for c in range(row.size):
                total += exp(result[c])
            logarithm = np.log(total)
            for c in range(row.size):
                result[c] = result[c] - logarithm
        else:
            for c in range(row.size):
                power = exp(row[c] - top)
                total += power
                result[c] = power
            inverse = f32(1.0) / total
            for c in range(row.size):
                result[c] = result[c] * inverse


@compiled(_MATRIX, _MATRIX, _MATRIX, "boolean")
def _softmax_backward(grad: Array, result: Array, out: Array, is_logarithm: bool) -> None:
    """(grad - sum(grad * y)) * y, or grad - exp(y) * sum(grad) for the logarithm"""
    for r in range(grad.shape[0]):
        g, y, target = grad[r], result[r], out[r]
        total = f32(0.0)
        if is_logarithm:
            for c in range(g.size):
                total += g[c]
            for c in range(g.size):
                target[c] = g[c] - exp(y[c]) * total
        else:
            for c in range(g.size):
                total += g[c] * y[c]
            for c in range(g.size):
                target[c] = (g[c] - total) * y[c]


@typed(_ELEMENTS, _ELEMENTS, "boolean", chars=_HALVES)
def _softmax_of_halves(x: Array, out: Array, takes_logarithm: bool) -> None:
    step = _rows_at_a_time(x)
    given, result = np.empty((step, x.shape[1]), f32), np.empty((step, x.shape[1]), f32)
    for first in range(0, x.shape[0], step):
        count = min(step, x.shape[0] - first)
        _widen(x, first, given[:count])
        _softmax(given[:count], result[:count], takes_logarithm)
        _narrow(result[:count], first, out)


@typed(_ELEMENTS, _ELEMENTS, _ELEMENTS, "boolean", chars=_HALVES)
def _softmax_backward_of_halves(grad: Array, y: Array, out: Array, is_logarithm: bool) -> None:
    step = _rows_at_a_time(y)
    given, result = np.empty((step, y.shape[1]), f32), np.empty((step, y.shape[1]), f32)
    for first in range(0, y.shape[0], step):
        count = min(step, y.shape[0] - first)
        _widen(grad, first, given[:count])
        _widen(y, first, result[:count])
        _softmax_backward(given[:count], result[:count], given[:count], is_logarithm)
        _narrow(given[:count], first, out)


@typed(_ELEMENTS, _VECTOR, _VECTOR, "float64", _ELEMENTS, _VECTOR, _VECTOR, chars=_HALVES)
def _layer_norm_of_halves(
    x: Array, weight: Array, bias: Array, eps: float, out: Array, means: Array, rstds: Array
) -> None:
    step = _rows_at_a_time(x)
    given, result = np.empty((step, x.shape[1]), f32), np.empty((step, x.shape[1]), f32)
    for first in range(0, x.shape[0], step):
        last = min(first + step, x.shape[0])
        count = last - first
        _widen(x, first, given[:count])
        _layer_norm(given[:count], weight, bias, eps, result[:count], means[first:last], rstds[first:last])
        _narrow(result[:count], first, out)


@typed(_ELEMENTS, _ELEMENTS, _VECTOR, _VECTOR, _VECTOR, _ELEMENTS, _VECTOR, _VECTOR, chars=_HALVES)
def _layer_norm_gradients_of_halves(
    grad: Array, x: Array, means: Array, rstds: Array, weight: Array, out: Array, by_weight: Array, by_bias: Array
) -> None:
    step = _rows_at_a_time(x)
    slopes, given = np.empty((step, x.shape[1]), f32), np.empty((step, x.shape[1]), f32)
    result = np.empty((step, x.shape[1]), f32)
    for first in range(0, x.shape[0], step):
        last = min(first + step, x.shape[0])
        count = last - first
        _widen(grad, first, slopes[:count])
        _widen(x, first, given[:count])
        _layer_norm_gradients(
            slopes[:count], given[:count], means[first:last], rstds[first:last], weight, result[:count], by_weight,
            by_bias,
        )  # fmt: skip
        _narrow(result[:count], first, out)


softmax = {"f": _softmax, **_softmax_of_halves}
softmax_backward = {"f": _softmax_backward, **_softmax_backward_of_halves}
layer_norm = {"f": _layer_norm, **_layer_norm_of_halves}
layer_norm_gradients = {"f": _layer_norm_gradients, **_layer_norm_gradients_of_halves}
