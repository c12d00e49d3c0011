"""The second half of eigenvalues of small real matrices: Francis' implicit double shifts, to the real Schur form.

Matrices are in column-major order: element (i, j) is at [j, i]. A step chases its bulge with reflections of three rows
and three columns. Columns behind those that the bulge has reached get the reflections of their rows later, several
columns at a time in the lanes of vectors. Deflation is that of Ahues and Tisseur. Functions release the GIL and run on
one thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..slots import specialized

Array = Any
LANES = 8
"""Columns that get the reflections of their rows at the same time."""
_STEPS = 30
"""Steps for each eigenvalue, of which one to three are usual; at the tenth and the twentieth shifts are made up."""


@specialized
def _is_small(h: Array, k: int, unit: float, least: float) -> bool:
    """Whether element (k, k - 1) may be neglected."""
    beside, across = abs(np.float64(h[k - 1, k])), abs(np.float64(h[k, k - 1]))
    if beside <= least:
        return True
    upper, lower = np.float64(h[k - 1, k - 1]), np.float64(h[k, k])
    size = abs(upper) + abs(lower)
    if size == 0:
        size += abs(h[k - 2, k - 1]) if k >= 2 else 0.0
        size += abs(h[k, k + 1]) if k + 1 < h.shape[0] else 0.0
    if beside > unit * size:
        return False
    larger, smaller = max(beside, across), min(beside, across)
    gap = abs(upper - lower)
    top, bottom = max(abs(lower), gap), min(abs(lower), gap)
    total = top + larger
    return bool(smaller * (larger / total) <= max(least, unit * (bottom * (top / total))))


@specialized
def _shifts(h: Array, first: int, last: int, step: int) -> tuple[float, float, float, float]:
    """Real and imaginary parts of two shifts: eigenvalues of the last 2 x 2 block, at times made-up ones."""
    if step == 10 or step == 20:
        at = first if step == 10 else last - 2
        size = abs(np.float64(h[at, at + 1])) + abs(np.float64(h[at + 1, at + 2]))
        a = d = 0.75 * size + np.float64(h[first, first] if step == 10 else h[last, last])
        b, c = -0.4375 * size, size
    else:
        a, b = np.float64(h[last - 1, last - 1]), np.float64(h[last, last - 1])
        c, d = np.float64(h[last - 1, last]), np.float64(h[last, last])
    size = abs(a) + abs(b) + abs(c) + abs(d)
    if size == 0:
        return 0.0, 0.0, 0.0, 0.0
    a, b, c, d = a / size, b / size, c / size, d / size
    middle = (a + d) / 2
    squared = (a - middle) * (d - middle) - b * c
    root = math.sqrt(abs(squared))
    if squared >= 0:
        return middle * size, root * size, middle * size, -root * size
    nearer = middle + root if abs(middle + root - d) <= abs(middle - root - d) else middle - root
    return nearer * size, 0.0, nearer * size, 0.0


@specialized
def _beginning(
    h: Array, m: int, r1: float, i1: float, r2: float, i2: float
) -> tuple[float, float, float]:  # fmt: skip
    """What the first column of the product of both shifted matrices is along, for a bulge that begins at row m."""
    at, next_at, below = np.float64(h[m, m]), np.float64(h[m + 1, m + 1]), np.float64(h[m, m + 1])
    size = abs(at - r2) + abs(i2) + abs(below)
    if size == 0:
        return 1.0, 0.0, 0.0
    below /= size
    x = below * np.float64(h[m + 1, m]) + (at - r1) * ((at - r2) / size) - i1 * (i2 / size)
    y = below * (at + next_at - r1 - r2)
    z = below * np.float64(h[m + 1, m + 2])
    total = abs(x) + abs(y) + abs(z)
    if total == 0:
        return 1.0, 0.0, 0.0
    return x / total, y / total, z / total


@specialized
def _reflect_columns(h: Array, k: int, count: int, begin: int, end: int, t: float, y: float, z: float) -> None:
    """Apply a reflection of two or three columns to some rows, which unsigned numbers count: vectors need no more."""
    a, b = h[k], h[k + 1]
    if count == 3:
        c = h[k + 2]
        for i in range(np.uint64(begin), np.uint64(end)):
            along = t * (a[i] + y * b[i] + z * c[i])
            a[i] -= along
            b[i] -= along * y
            c[i] -= along * z
    else:
        for i in range(np.uint64(begin), np.uint64(end)):
            along = t * (a[i] + y * b[i])
            a[i] -= along
            b[i] -= along * y


@specialized
def _reflect_rows(h: Array, k: int, count: int, end: int, t: float, y: float, z: float) -> None:
    """Apply a reflection of two or three rows to the columns from ``k`` on, one after the other."""
    if count == 3:
        for j in range(k, end):
            along = t * (h[j, k] + y * h[j, k + 1] + z * h[j, k + 2])
            h[j, k] -= along
            h[j, k + 1] -= along * y
            h[j, k + 2] -= along * z
    else:
        for j in range(k, end):
            along = t * (h[j, k] + y * h[j, k + 1])
            h[j, k] -= along
            h[j, k + 1] -= along * y


@specialized
def _catch_up(
    h: Array, first: int, columns: int, start: int, end: int, last: int, reflections: Array, lanes: Array
) -> None:  # fmt: skip
    """Apply the reflections from ``start`` to before ``end`` to the rows of some columns, at most ``LANES``."""
    rows = min(end + 2, last + 1)
    for lane in range(columns):
        column = h[first + lane]
        for i in range(np.uint64(start), np.uint64(rows)):
            lanes[i, lane] = column[i]
    for k in range(start, end):
        t, y, z = reflections[k, 0], reflections[k, 1], reflections[k, 2]
        if k + 2 < rows:
            for lane in range(LANES):
                along = t * (lanes[k, lane] + y * lanes[k + 1, lane] + z * lanes[k + 2, lane])
                lanes[k, lane] -= along
                lanes[k + 1, lane] -= along * y
                lanes[k + 2, lane] -= along * z
        else:
            for lane in range(LANES):
                along = t * (lanes[k, lane] + y * lanes[k + 1, lane])
                lanes[k, lane] -= along
                lanes[k + 1, lane] -= along * y
    for lane in range(columns):
        column = h[first + lane]
        for i in range(np.uint64(start), np.uint64(rows)):
            column[i] = lanes[i, lane]


@specialized
def _sweep(
    h: Array, z: Array, first: int, begin: int, last: int, x: float, y: float, w: float, reflections: Array,
    lanes: Array,
) -> None:  # fmt: skip
    """Chase a bulge from one row to the last; without ``z`` only the block from ``first`` to ``last`` is updated."""
    wants_all = z.size > 0
    columns, top = (h.shape[0], 0) if wants_all else (last + 1, first)
    reached = min(begin + LANES, columns)
    kind = h.dtype.type
    for k in range(begin, last):
        count = min(3, last - k + 1)
        if k > begin:
            x, y = np.float64(h[k - 1, k]), np.float64(h[k - 1, k + 1])
            w = np.float64(h[k - 1, k + 2]) if count == 3 else 0.0
        elif count == 2:
            w = 0.0
        size = abs(x) + abs(y) + abs(w)
        factor = 0.0
        if abs(y) + abs(w) > 0:
            x, y, w = x / size, y / size, w / size
            length = -math.copysign(math.sqrt(x * x + y * y + w * w), x)
            factor = (length - x) / length
            inverse = 1 / (x - length)
            y, w, x = y * inverse, w * inverse, length * size
        if k > begin:
            h[k - 1, k] = x
            h[k - 1, k + 1] = 0
            if count == 3:
                h[k - 1, k + 2] = 0
        elif begin > first:
            h[k - 1, k] = h[k - 1, k] * (1 - factor)
        t, v, u = kind(factor), kind(y), kind(w)
        reflections[k, 0], reflections[k, 1], reflections[k, 2] = t, v, u
        while reached < min(k + 4, columns):
            block = min(LANES, columns - reached)
            _catch_up(h, reached, block, begin, k, last, reflections, lanes)
            reached += block
        _reflect_rows(h, k, count, reached, t, v, u)
        _reflect_columns(h, k, count, top, min(k + 3, last) + 1, t, v, u)
        if wants_all:
            _reflect_columns(z, k, count, 0, z.shape[1], t, v, u)
    while reached < columns:
        block = min(LANES, columns - reached)
        _catch_up(h, reached, block, begin, last, last, reflections, lanes)
        reached += block


@specialized
def _rotation(a: float, b: float, c: float, d: float) -> tuple[float, float, float, float, float, float]:
    """Cosine and sine that make a block triangular, or its diagonal one number; and the block's elements after it."""
    if c == 0:
        return 1.0, 0.0, a, b, 0.0, d
    if b == 0:
        return 0.0, 1.0, d, -c, 0.0, a
    half = (a - d) / 2
    largest, smallest = max(abs(b), abs(c)), min(abs(b), abs(c))
    scale = max(abs(half), largest)
    sign = 1.0 if (b > 0) == (c > 0) else -1.0
    squared = half / scale * half + sign * (largest / scale) * smallest
    if squared >= 0:
        root = half + math.copysign(math.sqrt(scale) * math.sqrt(squared), half)
        length = math.hypot(c, root)
        return root / length, c / length, d + root, b - c, 0.0, d - largest / root * smallest * sign
    if half == 0:
        return 1.0, 0.0, a, b, c, d
    total = b + c
    length = math.hypot(total, a - d)
    cosine = math.sqrt((1 + abs(total) / length) / 2)
    sine = -(half / (length * cosine)) * math.copysign(1.0, total)
    a, b, c, d = (
        a * cosine + b * sine, b * cosine - a * sine, c * cosine + d * sine, d * cosine - c * sine,
    )  # fmt: skip
    a, b, c, d = (
        a * cosine + c * sine, b * cosine + d * sine, c * cosine - a * sine, d * cosine - b * sine,
    )  # fmt: skip
    middle = (a + d) / 2
    if c == 0 or (b < 0) != (c < 0):
        return cosine, sine, middle, b, c, middle
    if b == 0:
        return -sine, cosine, middle, -c, 0.0, middle
    of_b, of_c = math.sqrt(abs(b)), math.sqrt(abs(c))
    size = 1 / math.sqrt(abs(b + c))
    other_cosine, other_sine = of_b * size, of_c * size
    more = math.copysign(of_b * of_c, c)
    return (
        cosine * other_cosine - sine * other_sine, cosine * other_sine + sine * other_cosine, middle + more, b - c,
        0.0, middle - more,
    )  # fmt: skip


@specialized
def _rotate_columns(a: Array, k: int, end: int, cosine: float, sine: float) -> None:
    for i in range(end):
        x, y = a[k, i], a[k + 1, i]
        a[k, i] = cosine * x + sine * y
        a[k + 1, i] = cosine * y - sine * x


@specialized
def _split_pair(h: Array, z: Array, at: int, real: Array, imaginary: Array) -> None:
    """Bring the 2 x 2 block that ends at a row into standard form, and write its eigenvalues."""
    k, kind = at - 1, h.dtype.type
    cosine, sine, a, b, c, d = _rotation(
        np.float64(h[k, k]), np.float64(h[at, k]), np.float64(h[k, at]), np.float64(h[at, at])
    )
    h[k, k], h[at, k], h[k, at], h[at, at] = a, b, c, d
    root = math.sqrt(abs(b)) * math.sqrt(abs(c)) if h[k, at] != 0 else 0.0
    real[k], real[at], imaginary[k], imaginary[at] = a, d, root, -root
    if z.size:
        s, t = kind(cosine), kind(sine)
        for j in range(at + 1, h.shape[0]):
            x, y = h[j, k], h[j, at]
            h[j, k] = s * x + t * y
            h[j, at] = s * y - t * x
        _rotate_columns(h, k, k, s, t)
        _rotate_columns(z, k, z.shape[1], s, t)


@specialized
def schur(
    h: Array, z: Array, real: Array, imaginary: Array, reflections: Array, lanes: Array, unit: float, least: float
) -> bool:  # fmt: skip
    """Reduce a Hessenberg matrix to real Schur form, and multiply what is in ``z`` by the reflections.

    Without ``z`` only eigenvalues are computed. False where that does not converge.
    """
    last, left = h.shape[0] - 1, _STEPS * max(10, h.shape[0])
    while last >= 0:
        step = 0
        while True:
            first = last
            while first > 0 and not _is_small(h, first, unit, least):
                first -= 1
            if first > 0:
                h[first - 1, first] = 0
            if first >= last - 1:
                break
            if left == 0:
                return False
            r1, i1, r2, i2 = _shifts(h, first, last, step)
            step, left = step + 1, left - 1
            begin = last - 2
            x, y, w = _beginning(h, begin, r1, i1, r2, i2)
            while begin > first:
                around = (
                    abs(np.float64(h[begin - 1, begin - 1])) + abs(np.float64(h[begin, begin]))
                    + abs(np.float64(h[begin + 1, begin + 1]))
                )  # fmt: skip
                if abs(np.float64(h[begin - 1, begin])) * (abs(y) + abs(w)) <= unit * abs(x) * around:
                    break
                begin -= 1
                x, y, w = _beginning(h, begin, r1, i1, r2, i2)
            _sweep(h, z, first, begin, last, x, y, w, reflections, lanes)
        if first == last:
            real[last], imaginary[last] = h[last, last], 0
            last -= 1
        else:
            _split_pair(h, z, last, real, imaginary)
            last -= 2
    return True
