"""Loops over float32 arrays that NumPy would need several passes for; importing this compiles them, or loads them.

They release the GIL, look at no signal, and run on one thread: callers give them pieces.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arithmetic import compiled, exp, f32, inlined, largest

Array = Any
_VECTOR, _MATRIX, _STACK = "float32[::1]", "float32[:,::1]", "float32[:,:,::1]"


WHOLE = 64
"""Elements that loops compute at a time: what is left of a row takes as long as several times as many."""


@inlined
def whole(count: int) -> int:
    """The next multiple of what loops compute at a time."""
    return (count + WHOLE - 1) // WHOLE * WHOLE


@inlined
def _fill(part: Array, number: float) -> None:
    for c in range(part.size):
        part[c] = number


@compiled(_STACK, "float32", "int64", "int64", _MATRIX, _MATRIX)
def attention_weights(
    scores: Array, scale: float, first_row: int, columns: int, tops: Array, totals: Array
) -> None:  # fmt: skip
    """Replace scores by exp(scale * scores - top), and give each row's top and its sum of these.

    Row i sees the columns up to ``first_row`` + i, all if that is negative. What it does not see, and what is beyond
    ``columns``, is computed as if it were the row's first element, and becomes 0. A row without any finite score gets
    zeros.
    """
    for h in range(scores.shape[0]):
        for r in range(scores.shape[1]):
            row = scores[h, r]
            seen = columns if first_row < 0 else min(columns, first_row + r + 1)
            part = row[: min(row.size, whole(seen))]
            _fill(row[seen : part.size], part[0])
            top = largest(part, part.size)
            top = f32(0.0) if top == f32(-np.inf) else top * scale
            for c in range(part.size):
                part[c] = exp(part[c] * scale - top)
            _fill(row[seen:], f32(0.0))
            total = f32(0.0)
            for c in range(part.size):
                total += part[c]
            tops[h, r] = top
            totals[h, r] = total


@compiled(_STACK, _STACK, "float32", "int64", "int64", _MATRIX)
def attention_changes(
    scores: Array, changes: Array, scale: float, first_row: int, columns: int, logsumexp: Array
) -> None:  # fmt: skip
    """Replace scores by weights, and derivatives by weights by those by unscaled scores.

    ``first_row`` and ``columns`` are as for ``attention_weights``.
    """
    for h in range(scores.shape[0]):
        for r in range(scores.shape[1]):
            row, change = scores[h, r], changes[h, r]
            seen = columns if first_row < 0 else min(columns, first_row + r + 1)
            part = row[: min(row.size, whole(seen))]
            slopes = change[: part.size]
            shift = logsumexp[h, r]
            shift = f32(np.inf) if shift == f32(-np.inf) else shift
            _fill(row[seen : part.size], part[0])
            _fill(change[seen:], f32(0.0))
            mean = f32(0.0)
            for c in range(part.size):
                weight = exp(part[c] * scale - shift)
                part[c] = weight
                mean += weight * slopes[c]
            _fill(row[seen:], f32(0.0))
            for c in range(part.size):
                slopes[c] = part[c] * (slopes[c] - mean) * scale
            _fill(change[seen:], f32(0.0))


@compiled(_MATRIX, "int64[::1]", "int64", "int64", _MATRIX)
def sum_rows(rows: Array, places: Array, first: int, last: int, out: Array) -> None:
    """Write rows ``first`` to ``last`` of the result: the sums of the rows whose places they are."""
    for r in range(first, last):
        for c in range(out.shape[1]):
            out[r, c] = f32(0.0)
    for r in range(rows.shape[0]):
        place = places[r]
        if first <= place < last:
            for c in range(out.shape[1]):
                out[place, c] += rows[r, c]


@compiled(_MATRIX, _MATRIX, _VECTOR, _VECTOR)
def softmax_parts(x: Array, out: Array, tops: Array, logarithms: Array) -> None:
    """The softmax of every row, its largest element, and the logarithm of its sum of exponentials beside that."""
    for r in range(x.shape[0]):
        row, result = x[r], out[r]
        top = largest(row, row.size)
        total = f32(0.0)
        for c in range(row.size):
            power = exp(row[c] - top)
            total += power
            result[c] = power
        inverse = f32(1.0) / total
        for c in range(row.size):
            result[c] = result[c] * inverse
        tops[r], logarithms[r] = top, np.log(total)


@compiled(_VECTOR, "float32", _VECTOR)
def scaled(x: Array, factor: float, out: Array) -> None:
    for i in range(x.size):
        out[i] = x[i] * factor


@compiled(*[_VECTOR] * 4, *["float32"] * 8)
def adam(
    param: Array, grad: Array, average: Array, square: Array, rate: float, eps: float, sign: float, decay: float,
    shrink: float, beta1: float, beta2: float, scale: float,
) -> None:  # fmt: skip
    """One step of Adam, as ``server.engine.ops.optim`` writes it; ``scale`` multiplies the gradient."""
    for i in range(param.size):
        slope = sign * (grad[i] * scale) + decay * param[i]
        average[i] = beta1 * average[i] + (f32(1.0) - beta1) * slope
        square[i] = beta2 * square[i] + (f32(1.0) - beta2) * slope * slope
        param[i] = shrink * param[i] - rate * (average[i] / (np.sqrt(square[i]) + eps))
