"""Sums of shifted planes: convolutions in which each channel of the result has few channels to sum over.

A plane is the image of one channel, flat, in which a tap of the kernel is an offset. Functions release the GIL and run
on one thread.
"""

from __future__ import annotations

from typing import Any

from .arithmetic import compiled, f32, inlined

Array = Any
_PIECE = 2048
"""Positions whose sums stay in the first-level cache."""
_PLANES, _WEIGHTS, _OFFSETS = "float32[:,::1]", "float32[:,:,::1]", "int64[::1]"


@inlined
def _add_three(sums: Array, a: Array, b: Array, c: Array, by_a: float, by_b: float, by_c: float) -> None:
    for i in range(sums.size):
        sums[i] += by_a * a[i] + by_b * b[i] + by_c * c[i]


@inlined
def _add(sums: Array, plane: Array, weight: float) -> None:
    for i in range(sums.size):
        sums[i] += weight * plane[i]


@compiled(_PLANES, _WEIGHTS, "float32[::1]", _OFFSETS, _PLANES)
def convolve(source: Array, weights: Array, bias: Array, offsets: Array, out: Array) -> None:
    """Write the sums of a group's planes by weights (lanes, channels, taps): (groups * lanes, positions)."""
    lanes, channels, taps = weights.shape[0] * weights.shape[1] // source.shape[0], weights.shape[1], offsets.size
    for o in range(out.shape[0]):
        first = o // lanes * channels
        for start in range(0, out.shape[1], _PIECE):
            end = min(start + _PIECE, out.shape[1])
            sums = out[o, start:end]
            for i in range(sums.size):
                sums[i] = bias[o]
            for c in range(channels):
                plane = source[first + c]
                for t in range(0, taps - 2, 3):
                    i, j, k = offsets[t], offsets[t + 1], offsets[t + 2]
                    _add_three(
                        sums, plane[i + start : i + end], plane[j + start : j + end], plane[k + start : k + end],
                        weights[o, c, t], weights[o, c, t + 1], weights[o, c, t + 2],
                    )  # fmt: skip
                for t in range(taps // 3 * 3, taps):
                    _add(sums, plane[offsets[t] + start : offsets[t] + end], weights[o, c, t])


@compiled(_PLANES, _PLANES, _OFFSETS, _WEIGHTS)
def add_gradients(grad: Array, source: Array, offsets: Array, out: Array) -> None:
    """Add the weights' gradients, (groups * lanes, channels, taps), given the result's, (groups * lanes, positions)."""
    lanes, channels = out.shape[0] * out.shape[1] // source.shape[0], out.shape[1]
    for o in range(grad.shape[0]):
        first = o // lanes * channels
        for start in range(0, grad.shape[1], _PIECE):
            end = min(start + _PIECE, grad.shape[1])
            factors = grad[o, start:end]
            for c in range(channels):
                for t in range(offsets.size):
                    plane = source[first + c, offsets[t] + start : offsets[t] + end]
                    total = f32(0.0)
                    for i in range(factors.size):
                        total += factors[i] * plane[i]
                    out[o, c, t] += total
