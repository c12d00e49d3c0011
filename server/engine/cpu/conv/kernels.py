"""Convolutions and their gradients in float32 as products of matrices whose windows are read where they are.

Channels of the result are the lanes of vectors, in panels of weights; each position of the result reads its window by
tables of offsets, from the source or, where that needs padding, from copies of pieces of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.addresses import data_address
from server.engine.device import threads
from server.engine.ops import convolution as generic
from server.engine.registry import kernel
from telegrad_protocol.ops import convolution as ops

from . import planes
from .parts import (
    Part,
    combinations,
    offsets,
    parts_of_convolution,
    parts_of_transposed,
    tap_offsets,
    weight_offsets,
)
from .pieces import Alike, Turn, is_channels_last, reached, turns_of
from .products import are_products, multiply, multiply_gradients

Array = Any
_LEAST = 1 << 14
"""Multiply-adds from which on compiled loops are used."""
_FEW_LANES = 4
"""So many channels of the result per group, or fewer, are not worth filling up vectors with zeros."""
_MOST_PLANE_WORK = 1 << 28
"""Multiply-adds of a sample and group, at most, for sums of planes: a tenth of a second."""
_SUMS = 8
"""The sums of weight gradients that are made apart, whatever the number of threads, in all panels together."""
_ROWS = 96
"""The rows of scratch memory that ``multiply`` wants."""
_COSTS = {2: 1.0, 1: 1.75}
"""The time that a tile takes per lane, by its vectors."""


class _Work(NamedTuple):
    """Sums over a source's channels and taps: the loops and the tile that make them, and what each group has."""

    loops: Any
    tile: tuple[int, int]
    source: Array
    parts: tuple[Part, ...]
    groups: int
    lanes: int

    @property
    def channels(self) -> int:
        return int(self.source.shape[1]) // self.groups

    @property
    def taps(self) -> int:
        return math.prod([len(part.taps) for part in self.parts])

    @property
    def width(self) -> int:
        return self.tile[1] * int(self.loops.LANES)

    @property
    def blocks(self) -> int:
        return -(-self.lanes // self.width)

    @property
    def units(self) -> int:
        """The panels that weights, or their gradients, are made of."""
        return self.groups * self.blocks

    def turns(self) -> Iterator[tuple[Array, Turn]]:
        """Yield what a turn reads, padded, and its pieces."""
        products = self.groups * self.lanes * self.channels * self.taps
        for turn in turns_of(self.source.shape, self.parts, products):
            yield reached(self.loops, self.source, self.parts, turn.piece), turn

    def sizes(self, alike: Alike) -> tuple[int, ...]:
        """The samples and places of a piece of the result."""
        return (alike.samples, alike.lines, *[part.size for part in self.parts[1:]])

    def starts(self, window: Array, alike: Alike, multiple: int = 1) -> Array:
        """Where the windows of the positions of a piece begin."""
        across = [part.step * step for part, step in zip(self.parts, window.strides[2:], strict=True)]
        return offsets((*zip(self.sizes(alike), (window.strides[0], *across), strict=True),), multiple)

    def places(self, result: Array, alike: Alike) -> Array:
        """Where the positions of a piece are in the first channel of a result."""
        return offsets((*zip(self.sizes(alike), (result.strides[0], *result.strides[2:]), strict=True),))

    def steps(self, window: Array, multiple: int = 1) -> Array:
        """Where the elements of a window are, from its beginning on."""
        channels_last = is_channels_last(self.source)
        return tap_offsets(self.parts, window.strides[2:], self.channels, window.strides[1], channels_last, multiple)

    def shares(self, alike: Alike, units: int) -> Sequence[slice]:
        """Units of pieces of a size that a thread takes at a time."""
        positions = math.prod(self.sizes(alike)) * len(alike.first_samples)
        return threads.shares_of_products(units, positions * self.groups * self.lanes * self.channels * self.taps)


def _loops(name: str, work: float, *arrays: Array | None) -> Any:
    """A module of compiled loops if it takes these arrays and is worth it for so much work; else None."""
    if work < _LEAST or not all([a is None or a.dtype.char == "f" for a in arrays]):
        return None
    return compiled.kernels(name)


def _are_planes(lanes: int, dims: int, work: float) -> bool:
    """Whether a convolution is one for sums of planes: of images, or signals, and to few channels of each group.

    ``work`` are the multiply-adds of one sample and group, which nothing can interrupt.
    """
    return lanes <= _FEW_LANES and dims <= 2 and work <= _MOST_PLANE_WORK


def _as_image(array: Array) -> Array:
    """Signals as images of one row."""
    return array if array.ndim == 4 else array[:, :, None]


def _as_image_parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return parts if len(parts) == 2 else (Part(0, 1, 1, 1, (0,), (0,)), *parts)


def _tile_for(loops: Any, lanes: int) -> tuple[int, int]:
    """The rows and vectors of the tile that computes so many lanes in the least time."""

    def time(tile: tuple[int, int]) -> float:
        return -(-lanes // (tile[1] * loops.LANES)) * tile[1] * _COSTS[tile[1]]

    return min(loops.SHAPES, key=time)


@lru_cache(maxsize=1024)
def _parts_of(
    transposed: bool, kernel: tuple[int, ...], sizes: tuple[int, ...], stride: Any, padding: Any, dilation: Any
) -> list[tuple[Part, ...]]:
    """The parts of a result of these sizes, one of each axis, in all combinations."""
    numbers = [ops.spread("convolution", "", v, len(kernel)) for v in (stride, padding, dilation)]
    parts_of = parts_of_transposed if transposed else parts_of_convolution
    return combinations([parts_of(*row) for row in zip(kernel, *numbers, sizes, strict=True)])


@kernel(ops.convolution, keys.CPU)
def convolution(
    xp, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *, out
):  # fmt: skip
    if are_products(input, weight.shape[2:], stride, padding, groups, out):
        multiply(
            input, weight.reshape(weight.shape[:2]).T if transposed else weight.reshape(len(weight), -1), bias, out
        )
        return
    lanes = out.shape[1] // groups
    amount = (input if transposed else out).size * weight.size / max(len(weight), 1)
    are_planes = _are_planes(lanes, weight.ndim - 2, amount / max(len(out) * groups, 1))
    loops = _loops("images.planes" if are_planes else "images.products", amount, input, weight, bias, out)
    if loops is None:
        arguments = (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        generic.convolution(xp, *arguments, out=out)
        return
    all_parts = _parts_of(transposed, weight.shape[2:], out.shape[2:], stride, padding, dilation)
    if not all([part.taps for parts in all_parts for part in parts]):
        out[...] = 0 if bias is None else bias.reshape(-1, *(1,) * (weight.ndim - 2))
    for parts in all_parts:
        target = out[(..., *[slice(part.first, None, part.every) for part in parts])]
        if not all([part.taps for part in parts]):
            continue
        if are_planes:
            axes = _as_image_parts(parts)
            weights = planes.taps_of(_as_image(weight), axes, groups, transposed)
            planes.convolve(loops, _as_image(input), weights, bias, axes, groups, _as_image(target))
        else:
            work = _Work(loops, _tile_for(loops, lanes), input, parts, groups, lanes)
            _convolve(work, weight, bias, transposed, target)


def _convolve(work: _Work, weight: Array, bias: Array | None, transposed: bool, out: Array) -> None:
    """Write a part of a result."""
    panels, loop = _packed_weights(work, weight, transposed), work.loops.multiply[work.tile]
    biases = np.zeros((work.units, work.width), "f")
    if bias is not None:
        biases.reshape(work.groups, -1)[:, : work.lanes] = bias.reshape(work.groups, work.lanes)
    for window, turn in work.turns():
        for alike in turn.alike:
            pieces, step = len(alike.first_samples) * work.groups, work.parts[0].step
            splits = min(work.blocks, -(-threads.SHARES_PER_THREAD * threads.count() // pieces))
            given = (
                splits, alike.addresses(window, turn.piece, step), work.channels * window.strides[1],
                work.starts(window, alike, work.tile[0]), work.steps(window), panels, biases,
                alike.addresses(out[turn.piece.samples, :, turn.piece.lines], turn.piece, 1), work.places(out, alike),
                out.strides[1], work.lanes,
            )  # fmt: skip
            shares = work.shares(alike, pieces * splits)
            memory = np.empty((len(shares), _ROWS, work.width), "f")
            threads.run_loop(loop, [(share.start, share.stop, *given, sums) for share, sums in zip(shares, memory)])


def _packed_weights(work: _Work, weight: Array, transposed: bool) -> Array:
    """The weights of all groups as panels: (groups, blocks, channels * taps, width)."""
    lane_step, channel_step = weight.strides[1::-1] if transposed else weight.strides[:2]
    steps = weight_offsets(
        work.parts, weight.strides[2:], work.channels, channel_step, is_channels_last(work.source)
    )  # fmt: skip
    panels = np.empty((work.groups, work.blocks, len(steps), work.width), "f")
    given = data_address(weight), len(weight) // work.groups * weight.strides[0], lane_step, work.lanes, steps, panels
    shares = threads.shares_of(work.units, 2 * panels.nbytes)
    threads.run_loop(work.loops.pack_all, [(share.start, share.stop, *given) for share in shares])
    return panels


@kernel(ops._convolution_weight_backward, keys.CPU)
def convolution_weight_backward(
    xp, grad_output, input, kernel_size, stride, padding, dilation, groups, channels_last, *, out
):  # fmt: skip
    if are_products(input, kernel_size, stride, padding, groups, grad_output):
        multiply_gradients(grad_output, input, out.reshape(out.shape[:2]))
        return
    lanes = len(out) // groups
    amount = grad_output.size * out.size / max(len(out), 1) if input.size else 0
    are_planes = _are_planes(lanes, len(kernel_size), amount / max(groups, 1))
    loops = _loops("images.planes" if are_planes else "images.products", amount, grad_output, input, out)
    arguments = (grad_output, input, kernel_size, stride, padding, dilation, groups, channels_last)
    if loops is None:
        generic._convolution_weight_backward(xp, *arguments, out=out)
        return
    parts = _parts_of(False, tuple(kernel_size), grad_output.shape[2:], stride, padding, dilation)[0]
    if are_planes:
        axes = _as_image_parts(parts)
        gradients = planes.weight_gradients(loops, _as_image(grad_output), _as_image(input), axes, groups)
        if np.isfinite(gradients).all():
            out[...] = gradients.reshape(out.shape)
        else:  # zeros between the rows of planes meet elements that are not finite
            generic._convolution_weight_backward(xp, *arguments, out=out)
        return
    work = _Work(loops, _tile_for(loops, lanes), input, parts, groups, lanes)
    _write_gradients(work, grad_output, out)


def _write_gradients(work: _Work, grad: Array, out: Array) -> None:
    """Write the gradients of weights: sums over pieces, some of which are made apart, and then added up."""
    totals = _weight_sums(work, grad)
    result = np.moveaxis(out, 1, -1) if is_channels_last(work.source) else out
    places = offsets((*zip(result.shape[1:], result.strides[1:], strict=True),))
    given = totals, data_address(out), out.strides[0], work.lanes, places
    shares = threads.shares_of(work.units, totals.nbytes + out.nbytes)
    threads.run_loop(work.loops.add_up, [(share.start, share.stop, *given) for share in shares])


def _weight_sums(work: _Work, grad: Array) -> Array:
    """Sums of the gradients of weights, (chunks, groups, blocks, rows, width), where a row is a channel's tap.

    There are superfluous rows after the last. How many chunks there are depends on the shapes alone.
    """
    turns, rows, step = list(work.turns()), work.tile[0], work.parts[0].step
    most = max([len(alike.first_samples) for _, turn in turns for alike in turn.alike])
    chunks, length = min(most, -(-_SUMS // work.units)), -(-work.channels * work.taps // rows) * rows
    totals = np.empty((chunks, work.groups, work.blocks, length, work.width), "f")
    loop, is_first = work.loops.accumulate[work.tile], True
    for window, turn in turns:
        for alike in turn.alike:
            pieces = len(alike.first_samples)
            places = work.places(grad, alike)
            given = (
                is_first, np.array([pieces * chunk // chunks for chunk in range(chunks + 1)]),
                alike.addresses(grad[turn.piece.samples, :, turn.piece.lines], turn.piece, 1), grad.strides[1],
                work.lanes, places, alike.addresses(window, turn.piece, step), work.channels * window.strides[1],
                work.steps(window, rows), work.starts(window, alike), totals,
            )  # fmt: skip
            shares = work.shares(alike, chunks * work.units)
            panels = np.empty((len(shares), len(places), work.width), "f")
            calls = [(share.start, share.stop, *given, panel) for share, panel in zip(shares, panels)]
            threads.run_loop(loop, calls)
            is_first = False
    return totals
