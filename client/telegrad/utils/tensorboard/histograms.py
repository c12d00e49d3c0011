"""Counts of values between limits, as TensorBoard's files hold them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from tensorboard.compat.proto.summary_pb2 import HistogramProto

from telegrad_protocol.errors import ArgumentError

_SMALLEST: Final = 1e-12
_LARGEST: Final = 1e20
_GROWTH: Final = 1.1


def exponential_limits() -> list[float]:
    """Return TensorFlow's limits, each a tenth more than the one before, on both sides of zero."""
    limits, limit = [], _SMALLEST
    while limit < _LARGEST:
        limits.append(limit)
        limit *= _GROWTH
    return [*[-limit for limit in reversed(limits)], 0.0, *limits]


def histogram_of(values: np.ndarray[Any, Any], bins: Any, max_bins: int | None) -> Any:
    """Return the histogram of an array's elements; ``bins`` is ``tensorflow``, or what NumPy's ``histogram`` takes."""
    if values.size == 0:
        raise ArgumentError("The input has no element.")
    flat = values.reshape(-1).astype(np.float64)
    counts, edges = np.histogram(flat, exponential_limits() if bins == "tensorflow" else bins)
    counts, edges = _coarser(counts, edges, max_bins)
    occupied = np.flatnonzero(counts)
    if not occupied.size:
        raise ArgumentError("The histogram is empty, please file a bug report.")
    # One empty bin stands before the first that holds something; TensorBoard takes each limit for the end of its bin.
    shown = slice(occupied[0], occupied[-1] + 2)
    return HistogramProto(
        min=flat.min(),
        max=flat.max(),
        num=len(flat),
        sum=flat.sum(),
        sum_squares=flat.dot(flat),
        bucket_limit=edges[shown].tolist(),
        bucket=np.concatenate([[0], counts])[shown].tolist(),
    )


def _coarser(counts: Any, edges: Any, max_bins: int | None) -> tuple[Any, Any]:
    """Join neighbouring bins until there are no more than ``max_bins``."""
    if max_bins is None or len(counts) <= max_bins:
        return counts, edges
    joined = len(counts) // max_bins
    counts = np.pad(counts, (0, -len(counts) % joined)).reshape(-1, joined).sum(axis=1)
    ends = edges[::joined]
    return counts, ends if len(ends) > len(counts) else np.append(ends, edges[-1])
