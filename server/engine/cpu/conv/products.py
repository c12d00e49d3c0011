"""Convolutions whose kernel is a single element: products of matrices, which BLAS takes as they are in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from server.engine.device import threads

Array = Any
_PIECE = 1 << 25
"""Multiply-adds of a piece, about."""
_SUMS = 8
"""The sums of weight gradients that are made apart, whatever the number of threads."""


def are_products(
    input: Array, kernel: Sequence[int], stride: Any, padding: Any, groups: int, out: Array
) -> bool:  # fmt: skip
    """Whether each position of a result is a product of the weights and the same position of the input."""
    return (
        groups == 1
        and math.prod(kernel) == 1
        and input.shape[2:] == out.shape[2:]
        and not np.any(padding)
        and input.dtype.char in "fd"
        and out.dtype is input.dtype
        and input.size > 0
        and out.size > 0
        and (out.flags.c_contiguous or np.moveaxis(out, 1, -1).flags.c_contiguous)
    )


def _by_positions(array: Array) -> Array:
    """(n, channels, ...) as (n, channels, positions)"""
    return array.reshape(*array.shape[:2], -1)


def multiply(input: Array, weight: Array, bias: Array | None, out: Array) -> None:
    """Write the products of the weights, (o, c), and every position's channels."""
    source, result = _by_positions(input), _by_positions(out)
    count = source.shape[2]
    parts = threads.parts_of(count, max(1, min(count, weight.size * count // _PIECE)))

    def run(number: int) -> None:
        sample, part = divmod(number, len(parts))
        left, target = source[sample, :, parts[part]], result[sample, :, parts[part]]
        if target.strides[0] < target.strides[1]:
            np.matmul(left.T, weight.T, out=target.T)
        else:
            np.matmul(weight, left, out=target)
        if bias is not None:
            np.add(target, bias[:, None], out=target)

    threads.run(run, len(source) * len(parts))


def multiply_gradients(grad: Array, input: Array, out: Array) -> None:
    """Write the sums, over all positions, of products of the gradient's channels, (o), and the input's, (c)."""
    left, right = _by_positions(grad), _by_positions(input)
    chunks = threads.parts_of(len(left), min(len(left), _SUMS))
    totals = np.empty((len(chunks), *out.shape), out.dtype)

    def add(chunk: int) -> None:
        samples = range(*chunks[chunk].indices(len(left)))
        np.matmul(left[samples[0]], right[samples[0]].T, out=totals[chunk])
        for sample in samples[1:]:
            np.add(totals[chunk], np.matmul(left[sample], right[sample].T), out=totals[chunk])

    threads.run(add, len(chunks))
    np.sum(totals, axis=0, out=out)
