"""Weighted sums of images of bytes: in integers, rounded to bytes as PyTorch rounds them on a CPU."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from telegrad._functions.creation import tensor
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import int32

_WEIGHT_BITS: Final = 15
"""The largest weight has so many bits."""
_MAX_SHIFT: Final = 22


def combined_bytes(input: Tensor, dim: int, positions: Any, weights: Any) -> Tensor:
    """Return the sum of the elements at rows of ``positions`` along a dimension, times rows of ``weights``.

    ``input`` is int32 with values of bytes, and so is the result. Weights are multiples of a power of two.
    """
    positions, merged = np.array(positions), _merged(np.array(positions), np.array(weights, np.float64))
    shift = _shift_for(float(merged.max()))
    numbers = np.trunc(merged * (1 << shift) + np.where(merged < 0, -0.5, 0.5)).astype(np.int32)
    shape = (-1, *(1,) * (input.ndim - dim - 1))
    total: Any = 1 << (shift - 1)  # half of what is one after the shift: the sum is rounded
    for place, number in zip(positions, numbers, strict=True):
        factor = tensor(number, dtype=int32, device=input.device).reshape(shape)
        total = input.index_select(dim, tensor(place, device=input.device)) * factor + total
    return (total >> shift).clamp(0, 255)  # type: ignore[no-any-return]


def _merged(positions: Any, weights: Any) -> Any:
    """Return weights of which each position has one: at the edges several neighbours are the same element."""
    for row in range(len(positions) - 2, -1, -1):
        is_same = positions[row] == positions[row + 1]
        weights[row] += np.where(is_same, weights[row + 1], 0)
        weights[row + 1] = np.where(is_same, 0, weights[row + 1])
    return weights


def _shift_for(largest: float) -> int:
    """Return by how many bits weights are shifted to become integers of at most 15 bits."""
    shifts = (shift for shift in range(_MAX_SHIFT) if int(0.5 + largest * (1 << (shift + 1))) >= 1 << _WEIGHT_BITS)
    return next(shifts, _MAX_SHIFT - 1)
