"""Sums of shifted planes: convolutions in which each channel of the result has few channels to sum over.

A plane is the image of one channel, flat, in which a tap of the kernel is an offset. Functions release the GIL and run
on one thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arithmetic import compiled, f32, inlined
from ..tiles import move

Array = Any
_BYTES = 4
_PIECE = 2048
"""Positions whose sums stay in the first-level cache."""
_PLANES, _WEIGHTS, _OFFSETS = "float32[:,::1]", "float32[:,:,::1]", "int64[::1]"


_AT_ONCE = 9
"""Taps whose products are added, or whose sums are made, in one pass: those of the usual kernel, of 3 x 3."""


@inlined
def _add_nine(sums: Array, plane: Array, offsets: Array, weights: Array) -> None:
    """Add nine products to sums that begin where the plane does."""
    a, b, c = plane[offsets[0] :], plane[offsets[1] :], plane[offsets[2] :]
    d, e, f = plane[offsets[3] :], plane[offsets[4] :], plane[offsets[5] :]
    g, h, k = plane[offsets[6] :], plane[offsets[7] :], plane[offsets[8] :]
    by_a, by_b, by_c, by_d, by_e, by_f = weights[0], weights[1], weights[2], weights[3], weights[4], weights[5]
    by_g, by_h, by_k = weights[6], weights[7], weights[8]
    for i in range(sums.size):
        first = by_a * a[i] + by_b * b[i] + by_c * c[i]
        second = by_d * d[i] + by_e * e[i] + by_f * f[i]
        sums[i] += first + second + (by_g * g[i] + by_h * h[i] + by_k * k[i])


@inlined
def _add(sums: Array, plane: Array, weight: float) -> None:
    for i in range(sums.size):
        sums[i] += weight * plane[i]


@inlined
def _add_nine_sums(factors: Array, plane: Array, offsets: Array, out: Array) -> None:
    """Add the sums of the factors' products with nine parts of a plane, which begins where they do."""
    a, b, c = plane[offsets[0] :], plane[offsets[1] :], plane[offsets[2] :]
    d, e, f = plane[offsets[3] :], plane[offsets[4] :], plane[offsets[5] :]
    g, h, k = plane[offsets[6] :], plane[offsets[7] :], plane[offsets[8] :]
    zero = f32(0.0)
    of_a, of_b, of_c, of_d, of_e, of_f, of_g, of_h, of_k = zero, zero, zero, zero, zero, zero, zero, zero, zero
    for i in range(factors.size):
        factor = factors[i]
        of_a += factor * a[i]
        of_b += factor * b[i]
        of_c += factor * c[i]
        of_d += factor * d[i]
        of_e += factor * e[i]
        of_f += factor * f[i]
        of_g += factor * g[i]
        of_h += factor * h[i]
        of_k += factor * k[i]
    out[0] += of_a
    out[1] += of_b
    out[2] += of_c
    out[3] += of_d
    out[4] += of_e
    out[5] += of_f
    out[6] += of_g
    out[7] += of_h
    out[8] += of_k


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
                whole = taps - taps % _AT_ONCE
                for t in range(0, whole, _AT_ONCE):
                    _add_nine(sums, plane[start:], offsets[t:], weights[o, c, t:])
                for t in range(whole, taps):
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
                whole = offsets.size - offsets.size % _AT_ONCE
                for t in range(0, whole, _AT_ONCE):
                    _add_nine_sums(factors, source[first + c, start:], offsets[t:], out[o, c, t:])
                for t in range(whole, offsets.size):
                    plane = source[first + c, offsets[t] + start : offsets[t] + end]
                    total = f32(0.0)
                    for i in range(factors.size):
                        total += factors[i] * plane[i]
                    out[o, c, t] += total


_IMAGES, _GEOMETRY = "float32[:,:,:,::1]", "int64[::1]"


@inlined
def _lay(image: Array, geometry: Array, planes: Array) -> None:
    """Write an image into planes, one for each pair of remainders by the strides; what is around it stays as it is."""
    top, left, down, across, rows, columns = geometry[:6]
    for y in range(down):
        for x in range(across):
            first = left + x
            start = min(columns, max(0, -(first // across)))
            end = max(start, min(columns, -((first - image.shape[1]) // across)))
            for r in range(rows):
                place, begin = top + y + down * r, ((y * across + x) * rows + r) * columns
                if 0 <= place < image.shape[0] and start < end:
                    _lay_line(image[place], first, across, start, planes[begin + start : begin + end])


@inlined
def _lay_line(source: Array, first: int, across: int, start: int, line: Array) -> None:
    """Write every ``across``-th element of a source's line, of which number ``start`` is the first to be written."""
    if across == 1:
        move(line.ctypes.data, source.ctypes.data + _BYTES * (first + start), line.size)
    else:
        for c in range(line.size):
            line[c] = source[first + across * (start + c)]


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
    planes, sums = np.zeros((channels, geometry[6]), f32), np.empty((lanes, height * geometry[5]), f32)
    for group in range(first, last):
        for c in range(channels):
            _lay(source[sample, group * channels + c], geometry, planes[c])
        these = slice(group * lanes, group * lanes + lanes)
        convolve(planes, weights[these], bias[these], offsets, sums)
        for o in range(lanes):
            for r in range(height):
                move(out[sample, group * lanes + o, r].ctypes.data, sums[o, r * geometry[5] :].ctypes.data, width)


@compiled(_IMAGES, _IMAGES, _OFFSETS, _GEOMETRY, "int64", "int64", _WEIGHTS)
def add_gradients_of_images(
    grad: Array, source: Array, offsets: Array, geometry: Array, first: int, last: int, out: Array
) -> None:
    """Add the gradients of the weights of the groups ``first`` to ``last``, over all samples."""
    channels, height, width = out.shape[1], grad.shape[2], grad.shape[3]
    lanes = out.shape[0] * channels // source.shape[1]
    planes, factors = np.zeros((channels, geometry[6]), f32), np.zeros((lanes, height * geometry[5]), f32)
    for group in range(first, last):
        for sample in range(grad.shape[0]):
            for c in range(channels):
                _lay(source[sample, group * channels + c], geometry, planes[c])
            for o in range(lanes):
                for r in range(height):
                    line = grad[sample, group * lanes + o, r]
                    move(factors[o, r * geometry[5] :].ctypes.data, line.ctypes.data, width)
            add_gradients(factors, planes, offsets, out[group * lanes : group * lanes + lanes])
