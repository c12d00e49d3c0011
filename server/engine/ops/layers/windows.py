"""Sliding windows over the last dimensions of an array, as views of its memory; for NumPy and CuPy alike.

Knows arrays and sizes only. Sizes, strides and dilations count elements, one number for each dimension.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

Size = tuple[int, ...]


def pad(xp: Any, array: Any, before: Size, after: Size, fill: Any = 0) -> Any:
    """The array with ``fill`` around its last dimensions; the array itself if there is nothing to add."""
    if not any(before) and not any(after):
        return array
    dims = len(before)
    size = [b + n + a for n, b, a in zip(array.shape[-dims:], before, after, strict=True)]
    larger = xp.full((*array.shape[:-dims], *size), fill, array.dtype)
    crop(larger, before, array.shape[-dims:])[...] = array
    return larger


def crop(array: Any, before: Size, size: Size) -> Any:
    """The view of ``size`` elements of the last dimensions that begins at ``before``."""
    return array[(..., *(slice(b, b + n) for b, n in zip(before, size, strict=True)))]


def span(kernel: Size, stride: Size, dilation: Size, count: Size) -> Size:
    """How many elements ``count`` windows span: (count - 1) * stride + dilation * (kernel - 1) + 1"""
    rows = zip(kernel, stride, dilation, count, strict=True)
    return tuple((n - 1) * s + d * (k - 1) + 1 for k, s, d, n in rows)


def sliding_windows(xp: Any, array: Any, kernel: Size, stride: Size, dilation: Size, count: Size) -> Any:
    """The windows at ``count`` positions, as a view of shape (..., *kernel, *count)."""
    lead = array.ndim - len(kernel)
    steps = array.strides[lead:]
    within = [d * step for d, step in zip(dilation, steps, strict=True)]
    across = [s * step for s, step in zip(stride, steps, strict=True)]
    view = xp.lib.stride_tricks.as_strided
    return view(array, (*array.shape[:lead], *kernel, *count), (*array.strides[:lead], *within, *across))


def kernel_positions(kernel: Size) -> Iterator[Size]:
    """The positions within a kernel, row-major."""
    return itertools.product(*map(range, kernel))


def elements_at(array: Any, position: Size, stride: Size, dilation: Size, count: Size) -> Any:
    """The element of every window at one position of the kernel, as a view of shape (..., *count)."""
    rows = zip(position, stride, dilation, count, strict=True)
    return array[(..., *(slice(k * d, k * d + (n - 1) * s + 1, s) for k, s, d, n in rows))]
