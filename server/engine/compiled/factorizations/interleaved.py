"""Factorizations of many small real matrices at once: every step is done for a group of matrices side by side.

Elements (i, j) of all matrices of a group are neighbours in scratch memory, at [i, j, :], so that the processor's
vectors hold one element of several matrices. Pivots and signs are LAPACK's. Functions release the GIL and run on one
thread. Element (i, j) of matrix b is at [b, i, j] of what is given and of what is written, whatever their layout.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arithmetic import compiled_for_reals, inlined
from ..signals import lanes_of, transpose_block
from ..slots import specialized

Array = Any
_LARGE, _SMALL = 1e150, 1e-150
"""Between these, products of numbers are collected before their logarithm is taken."""


@specialized
def _in_blocks(matrices: Array, first: int, group: Array, count: int, reads: bool) -> Any:
    """Read or write as many matrices as fill vectors, in squares of numbers; returns how many.

    None where neither rows nor columns of matrices are contiguous, and as long as a vector.
    """
    one, size = group[0, 0, 0], group.itemsize
    lanes, step = lanes_of(one), matrices.strides[0]
    inner = 2 if matrices.strides[2] == size else 1
    outer, length = 3 - inner, group.shape[inner - 1]
    if matrices.strides[inner] != size or length < lanes:
        return 0
    near, far = matrices.ctypes.data + first * step, group.ctypes.data
    whole = count // lanes * lanes
    for w in range(0, whole, lanes):
        for o in range(group.shape[outer - 1]):
            for start in range(0, length, lanes):
                n = min(start, length - lanes)
                outside = near + w * step + o * matrices.strides[outer] + n * size
                inside = far + o * group.strides[outer - 1] + n * group.strides[inner - 1] + w * size
                if reads:
                    transpose_block(one, outside, step, inside, group.strides[inner - 1])
                else:
                    transpose_block(one, inside, group.strides[inner - 1], outside, step)
    return whole


@specialized
def _load(source: Array, first: int, group: Array) -> None:
    """Read matrices from a number on into a group; where there are no more, it gets identities."""
    count = min(source.shape[0] - first, group.shape[2])
    done = _in_blocks(source, first, group, count, True)
    if done == group.shape[2]:
        return
    for i in range(group.shape[0]):
        for j in range(group.shape[1]):
            for w in range(done, count):
                group[i, j, w] = source[first + w, i, j]
            for w in range(count, group.shape[2]):
                group[i, j, w] = 1 if i == j else 0


@specialized
def _store(group: Array, first: int, out: Array) -> None:
    """Write the matrices of a group that there are."""
    count = min(out.shape[0] - first, group.shape[2])
    for w in range(_in_blocks(out, first, group, count, False), count):
        for j in range(group.shape[1]):
            for i in range(group.shape[0]):
                out[first + w, i, j] = group[i, j, w]


@inlined
def _subtract(target: Array, factor: Array, row: Array) -> None:
    for w in range(target.size):
        target[w] -= factor[w] * row[w]


@inlined
def _divide(target: Array, divisor: Array) -> None:
    for w in range(target.size):
        target[w] = target[w] / divisor[w]


@inlined
def _pivot(group: Array, k: int, chosen: Array, tops: Array) -> None:
    """Find the rows of the largest elements of column k, from the diagonal on."""
    for w in range(tops.size):
        tops[w] = abs(group[k, k, w])
        chosen[w] = k
    for i in range(k + 1, group.shape[0]):
        for w in range(tops.size):
            size = abs(group[i, k, w])
            chosen[w] = i if size > tops[w] else chosen[w]
            tops[w] = size if size > tops[w] else tops[w]


@inlined
def _exchange(group: Array, k: int, chosen: Array) -> None:
    """Exchange row k of each matrix and the one that was chosen."""
    for w in range(chosen.size):
        row = chosen[w]
        if row != k:
            for j in range(group.shape[1]):
                group[k, j, w], group[row, j, w] = group[row, j, w], group[k, j, w]


@inlined
def _eliminate(group: Array, k: int, tops: Array) -> None:
    """Divide column k below the diagonal by the pivots and subtract; where the pivot is 0, all of it is 0."""
    for w in range(tops.size):
        tops[w] = 1 if group[k, k, w] == 0 else group[k, k, w]
    for i in range(k + 1, group.shape[0]):
        _divide(group[i, k], tops)
        for j in range(k + 1, group.shape[1]):
            _subtract(group[i, j], group[i, k], group[k, j])


@compiled_for_reals("T[:,:,:]", "T[:,:,:]", "int32[:,::1]", "int32[::1]", "T[:,:,::1]", "T[::1]", "int32[::1]",
                    returns="int64")  # fmt: skip
def lu_factor(
    source: Array, out: Array, pivots: Array, infos: Array, group: Array, tops: Array, chosen: Array
) -> int:  # fmt: skip
    """Write factorizations, the rows exchanged, counted from 1, and info; return how many matrices are singular.

    The last three are scratch memory.
    """
    rows, columns, width = group.shape
    failures = 0
    for first in range(0, source.shape[0], width):
        count = min(source.shape[0] - first, width)
        _load(source, first, group)
        for w in range(count):
            infos[first + w] = 0
        for k in range(min(rows, columns)):
            _pivot(group, k, chosen, tops)
            _exchange(group, k, chosen)
            for w in range(count):
                pivots[first + w, k] = chosen[w] + 1
                if tops[w] == 0 and infos[first + w] == 0:
                    infos[first + w] = k + 1
                    failures += 1
            _eliminate(group, k, tops)
        _store(group, first, out)
    return failures


@compiled_for_reals(
    "T[:,:,:]", "T[:,:,:]", "T[:,:,:]", "int32[::1]", "T[:,:,::1]", "T[:,:,::1]", "T[::1]", "int32[::1]",
    returns="int64",
)  # fmt: skip
def solve(
    source: Array, given: Array, out: Array, infos: Array, group: Array, sides: Array, tops: Array, chosen: Array
) -> int:  # fmt: skip
    """Write solutions of systems and info; one right side in ``given`` is that of all. The last four are scratch.

    Return how many matrices are singular.
    """
    size, width = group.shape[0], group.shape[2]
    failures = 0
    for first in range(0, source.shape[0], width):
        count = min(source.shape[0] - first, width)
        _load(source, first, group)
        for i in range(size):
            for j in range(sides.shape[1]):
                for w in range(width):
                    b = min(first + w, given.shape[0] - 1)
                    sides[i, j, w] = given[b, i, j]
        for w in range(count):
            infos[first + w] = 0
        for k in range(size):
            _pivot(group, k, chosen, tops)
            _exchange(group, k, chosen)
            _exchange(sides, k, chosen)
            for w in range(count):
                if tops[w] == 0 and infos[first + w] == 0:
                    infos[first + w] = k + 1
                    failures += 1
            _eliminate(group, k, tops)
            for i in range(k + 1, size):
                for j in range(sides.shape[1]):
                    _subtract(sides[i, j], group[i, k], sides[k, j])
        for k in range(size - 1, -1, -1):
            for j in range(sides.shape[1]):
                _divide(sides[k, j], group[k, k])
            for i in range(k):
                for j in range(sides.shape[1]):
                    _subtract(sides[i, j], group[i, k], sides[k, j])
        _store(sides, first, out)
    return failures


@compiled_for_reals("T[:,:,:]", "T[::1]", "T[::1]", "boolean", "T[:,:,::1]", "T[::1]", "int32[::1]")
def determinants(
    source: Array, signs: Array, sizes: Array, as_logarithms: bool, group: Array, tops: Array, chosen: Array
) -> None:  # fmt: skip
    """Write determinants to ``sizes``, or their signs and the logarithms of their absolute values."""
    size, width = group.shape[0], group.shape[2]
    for first in range(0, source.shape[0], width):
        count = min(source.shape[0] - first, width)
        _load(source, first, group)
        for w in range(count):
            signs[first + w] = 1
        for k in range(size):
            _pivot(group, k, chosen, tops)
            _exchange(group, k, chosen)
            for w in range(count):
                signs[first + w] = -signs[first + w] if chosen[w] != k else signs[first + w]
            _eliminate(group, k, tops)
        for w in range(count):
            b = first + w
            if not as_logarithms:
                product = signs[b]
                for k in range(size):
                    product *= group[k, k, w]
                sizes[b] = product
                continue
            total, collected = 0.0, 1.0
            for k in range(size):
                element = np.float64(group[k, k, w])
                signs[b] = -signs[b] if element < 0 else signs[b] * abs(element) if element == 0 else signs[b]
                signs[b] = element if element != element else signs[b]
                collected *= abs(element)
                if not _SMALL < collected < _LARGE:
                    total += math.log(collected)
                    collected = 1.0
            sizes[b] = total + math.log(collected)


@compiled_for_reals("T[:,:,:]", "T[:,:,:]", "int32[::1]", "T[:,:,::1]", "T[::1]", returns="int64")
def cholesky(source: Array, out: Array, infos: Array, group: Array, reciprocals: Array) -> int:
    """Write the lower factors of ``source``, of whose elements only those of the lower triangle matter, and info.

    Return how many matrices are not positive-definite. The last two arguments are scratch memory.
    """
    size, width = group.shape[0], group.shape[2]
    failures = 0
    for first in range(0, source.shape[0], width):
        count = min(source.shape[0] - first, width)
        _load(source, first, group)
        for w in range(count):
            infos[first + w] = 0
        for k in range(size):
            for w in range(count):
                if not group[k, k, w] > 0 and infos[first + w] == 0:
                    infos[first + w] = k + 1
                    failures += 1
            for w in range(width):
                root = math.sqrt(group[k, k, w])
                group[k, k, w] = root
                reciprocals[w] = 1 / root
            for i in range(k + 1, size):
                for w in range(width):
                    group[i, k, w] *= reciprocals[w]
                    group[k, i, w] = 0
            for i in range(k + 1, size):
                for j in range(k + 1, i + 1):
                    _subtract(group[i, j], group[i, k], group[j, k])
        _store(group, first, out)
    return failures
