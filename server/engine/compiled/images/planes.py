"""Sums of shifted planes: convolutions in which each channel of the result has few channels to sum over.

A plane is the image of one channel, flat, in which a tap of the kernel is an offset. Functions release the GIL and run
on one thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arithmetic import compiled, f32, inlined

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


_IMAGES, _GEOMETRY = "float32[:,:,:,::1]", "int64[::1]"


@inlined
def _lay(image: Array, geometry: Array, planes: Array) -> None:
    """Write an image as planes with zeros around it, one for each pair of remainders by the strides."""
    top, left, down, across, rows, columns = geometry[:6]
    for y in range(down):
        for x in range(across):
            for r in range(rows):
                begin = ((y * across + x) * rows + r) * columns
                line, place = planes[begin : begin + columns], top + y + down * r
                line[:] = f32(0.0)
                if 0 <= place < image.shape[0]:
                    source, first = image[place], left + x
                    start = max(0, -(first // across))
                    end = min(columns, -((first - source.size) // across))
                    for c in range(start, end):
                        line[c] = source[first + across * c]
    planes[down * across * rows * columns :] = f32(0.0)


@compiled(_IMAGES, _WEIGHTS, "float32[::1]", _OFFSETS, _GEOMETRY, "int64", "int64", "int64", _IMAGES)
def convolve_images(
    source: Array, weights: Array, bias: Array, offsets: Array, geometry: Array, sample: int, first: int, last: int,
    out: Array,
) -> None:  # fmt: skip
    """Write the channels of the groups ``first`` to ``last`` of a sample's result.

    ``geometry`` is: the first line and the first element in reach, the strides, the lines and elements of a plane, and
    the elements that all planes of an image take.
    """
    channels, height, width = weights.shape[1], out.shape[2], out.shape[3]
    lanes = weights.shape[0] * channels // source.shape[1]
    planes, sums = np.empty((channels, geometry[6]), f32), np.empty((lanes, height * geometry[5]), f32)
    for group in range(first, last):
        for c in range(channels):
            _lay(source[sample, group * channels + c], geometry, planes[c])
        these = slice(group * lanes, group * lanes + lanes)
        convolve(planes, weights[these], bias[these], offsets, sums)
        for o in range(lanes):
            for r in range(height):
                line, result = sums[o, r * geometry[5] : r * geometry[5] + width], out[sample, group * lanes + o, r]
                for i in range(width):
                    result[i] = line[i]


@compiled(_IMAGES, _IMAGES, _OFFSETS, _GEOMETRY, "int64", "int64", _WEIGHTS)
def add_gradients_of_images(
    grad: Array, source: Array, offsets: Array, geometry: Array, first: int, last: int, out: Array
) -> None:
    """Add the gradients of the weights of the groups ``first`` to ``last``, over all samples."""
    channels, height, width = out.shape[1], grad.shape[2], grad.shape[3]
    lanes = out.shape[0] * channels // source.shape[1]
    planes, factors = np.empty((channels, geometry[6]), f32), np.empty((lanes, height * geometry[5]), f32)
    for group in range(first, last):
        for sample in range(grad.shape[0]):
            for c in range(channels):
                _lay(source[sample, group * channels + c], geometry, planes[c])
            for o in range(lanes):
                for r in range(height):
                    line = factors[o, r * geometry[5] : r * geometry[5] + geometry[5]]
                    line[:width] = grad[sample, group * lanes + o, r]
                    line[width:] = f32(0.0)
            add_gradients(factors, planes, offsets, out[group * lanes : group * lanes + lanes])
