"""Convolutions of few channels to few, such as depthwise ones: sums of shifted planes, which are the lanes of vectors.

A plane is flat, with zeros around it. Strides make it several planes, of the elements between which the stride is, so
that the elements of a tap always follow each other.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from server.engine.cpu.memory import BLOCK_BYTES, scratch
from server.engine.device import threads

from .parts import Part

Array = Any
Parts = tuple[Part, ...]


class _Layout:
    """Where the elements that a part of a result needs are in planes."""

    def __init__(self, parts: Parts) -> None:
        self.down, self.across = parts
        self.lowest = [min(part.shifts) for part in parts]
        reach = [part.reach(0, part.size) for part in parts]
        self.rows, self.columns = [-(-(b - a) // part.step) for (a, b), part in zip(reach, parts, strict=True)]
        self.plane = self.rows * self.columns
        self.length = self.down.step * self.across.step * self.plane + self.columns
        self.positions = self.down.size * self.columns

    @property
    def geometry(self) -> Array:
        """What compiled loops need to know to lay an image as planes."""
        return np.array(
            [*self.lowest, self.down.step, self.across.step, self.rows, self.columns, self.length], np.int64
        )  # fmt: skip

    def offsets(self) -> Array:
        """The offset of every tap, row-major."""
        down, across = self.down.step, self.across.step
        y, x = [np.array(p.shifts) - low for p, low in zip((self.down, self.across), self.lowest, strict=True)]
        by_row = y % down * across * self.plane + y // down * self.columns
        by_column = x % across * self.plane + x // across
        return (by_row[:, None] + by_column).reshape(-1).astype(np.int64)

    def planes_of(self, images: Array) -> Array:
        """Images, (channels, height, width), as planes, in scratch memory."""
        planes = scratch("planes", (len(images), self.length), "f")
        planes.fill(0)
        for y in range(self.down.step):
            for x in range(self.across.step):
                begin = (y * self.across.step + x) * self.plane
                target = planes[:, begin : begin + self.plane].reshape(-1, self.rows, self.columns)
                rows, to_rows = _strided(self.lowest[0] + y, self.down.step, self.rows, images.shape[1])
                columns, to_columns = _strided(self.lowest[1] + x, self.across.step, self.columns, images.shape[2])
                target[:, to_rows, to_columns] = images[:, rows, columns]
        return planes


def _strided(first: int, step: int, count: int, size: int) -> tuple[slice, slice]:
    """Which of ``count`` elements ``step`` apart, from ``first`` on, there are: where they are, and their numbers."""
    begin = max(0, -(first // step))
    end = max(begin, min(count, -((first - size) // step)))
    return slice(first + step * begin, first + step * (end - 1) + 1 if end > begin else 0, step), slice(begin, end)


def _chunks(layout: _Layout, groups: int, channels: int, lanes: int) -> list[slice]:
    """Groups whose planes stay in a core's second-level cache together."""
    nbytes = 4 * (channels * layout.length + lanes * layout.positions)
    step = max(1, BLOCK_BYTES // nbytes)
    return [slice(first, min(first + step, groups)) for first in range(0, groups, step)]


def convolve(
    loops: Any, source: Array, weights: Array, bias: Array | None, parts: Parts, groups: int, out: Array
) -> None:  # fmt: skip
    """Write a part of a result; ``weights`` are (groups * lanes, channels, taps)."""
    layout, lanes, channels = _Layout(parts), len(weights) // groups, weights.shape[1]
    chunks, offsets = _chunks(layout, groups, channels, lanes), layout.offsets()
    biases = np.zeros(len(weights), "f") if bias is None else np.ascontiguousarray(bias)
    if source.flags.c_contiguous and out.flags.c_contiguous:
        fixed = weights, biases, offsets, layout.geometry
        pairs = itertools.product(range(len(source)), chunks)
        calls = [(source, *fixed, sample, chunk.start, chunk.stop, out) for sample, chunk in pairs]
        threads.run_loop(loops.convolve_images, calls)
        return

    def run(number: int) -> None:
        sample, chunk = divmod(number, len(chunks))
        of_source, of_result = _channels(chunks[chunk], channels), _channels(chunks[chunk], lanes)
        planes = layout.planes_of(source[sample, of_source])
        sums = scratch("sums", (of_result.stop - of_result.start, layout.positions), "f")
        loops.convolve(planes, weights[of_result], biases[of_result], offsets, sums)
        out[sample, of_result] = _images(layout, sums)

    threads.run(run, len(source) * len(chunks))


def _channels(groups: slice, channels: int) -> slice:
    return slice(groups.start * channels, groups.stop * channels)


def _images(layout: _Layout, planes: Array) -> Array:
    """The positions of planes that are those of a result: a view (channels, height, width)."""
    return planes.reshape(len(planes), layout.down.size, layout.columns)[:, :, : layout.across.size]


def weight_gradients(loops: Any, grad: Array, source: Array, parts: Parts, groups: int) -> Array:
    """The gradients of weights, (groups * lanes, channels, taps)."""
    layout, lanes, channels = _Layout(parts), grad.shape[1] // groups, source.shape[1] // groups
    chunks, offsets = _chunks(layout, groups, channels, lanes), layout.offsets()
    gradients = np.zeros((grad.shape[1], channels, len(offsets)), "f")
    if source.flags.c_contiguous and grad.flags.c_contiguous:
        calls = [
            (grad, source, offsets, layout.geometry, chunk.start, chunk.stop, gradients) for chunk in chunks
        ]  # fmt: skip
        threads.run_loop(loops.add_gradients_of_images, calls)
        return gradients

    def add(chunk: int) -> None:
        of_source, of_result = _channels(chunks[chunk], channels), _channels(chunks[chunk], lanes)
        for sample in range(len(grad)):
            factors = scratch("factors", (of_result.stop - of_result.start, layout.positions), "f")
            factors.fill(0)
            _images(layout, factors)[...] = grad[sample, of_result]
            planes = layout.planes_of(source[sample, of_source])
            loops.add_gradients(factors, planes, offsets, gradients[of_result])

    threads.run(add, len(chunks))
    return gradients


def taps_of(weight: Array, parts: Parts, groups: int, transposed: bool) -> Array:
    """The weights that a part uses, as (groups * lanes, channels, taps)."""
    taps = weight[:, :, list(parts[0].taps)][:, :, :, list(parts[1].taps)]
    if transposed:
        grouped = taps.reshape(groups, -1, *taps.shape[1:]).swapaxes(1, 2)
        taps = grouped.reshape(-1, *grouped.shape[2:])
    return np.ascontiguousarray(taps.reshape(*taps.shape[:2], -1))
