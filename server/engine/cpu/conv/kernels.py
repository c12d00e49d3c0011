"""Convolutions and their gradients in float32 as products of matrices whose windows are read where they are.

Channels of the result are the lanes of vectors, in panels of weights; each position of the result reads its window by
tables of offsets, from the source or, where that needs padding, from copies of pieces of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.addresses import data_address
from server.engine.cpu.memory import scratch
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
from .pieces import Piece, is_channels_last, pieces_of, reached, whole_of
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

    def lanes_of(self, group: int, block: int) -> tuple[int, int]:
        """The first of a block's channels of the result, and how many there are."""
        return group * self.lanes + block * self.width, min(self.width, self.lanes - block * self.width)

    def pieces(self) -> list[Piece]:
        return pieces_of(self.source, self.parts, self.groups * self.lanes * self.channels * self.taps)

    def starts(self, window: Array, like: Array, multiple: int = 1) -> Array:
        """Where the windows of the positions of ``like`` begin, a piece of the result."""
        across = [part.step * step for part, step in zip(self.parts, window.strides[2:], strict=True)]
        return offsets((*zip(_without_channels(like.shape), (window.strides[0], *across), strict=True),), multiple)

    def steps(self, window: Array, multiple: int = 1) -> Array:
        """Where the elements of a window are, from its beginning on."""
        channels_last = is_channels_last(self.source)
        return tap_offsets(self.parts, window.strides[2:], self.channels, window.strides[1], channels_last, multiple)


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


def _without_channels(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return numbers[:1] + numbers[2:]


def _places(like: Array) -> Array:
    """The offsets of the positions of a piece of a result, in its first channel."""
    return offsets((*zip(_without_channels(like.shape), _without_channels(like.strides), strict=True),))


def _channel(array: Array, number: int) -> int:
    """The address of a channel."""
    return data_address(array) + number * int(array.strides[1])


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
    loops = _loops("planes" if are_planes else "products", amount, input, weight, bias, out)
    if loops is None:
        arguments = (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        generic.convolution(xp, *arguments, out=out)
        return
    numbers = [ops.spread("convolution", "", v, weight.ndim - 2) for v in (stride, padding, dilation)]
    parts_of = parts_of_transposed if transposed else parts_of_convolution
    for parts in combinations([parts_of(*row) for row in zip(weight.shape[2:], *numbers, out.shape[2:], strict=True)]):
        target = out[(..., *[slice(part.first, None, part.every) for part in parts])]
        if not all([part.taps for part in parts]):
            target[...] = 0 if bias is None else bias.reshape(-1, *(1,) * len(parts))
        elif are_planes:
            axes = _as_image_parts(parts)
            weights = planes.taps_of(_as_image(weight), axes, groups, transposed)
            planes.convolve(loops, _as_image(input), weights, bias, axes, groups, _as_image(target))
        else:
            work = _Work(loops, _tile_for(loops, lanes), input, parts, groups, lanes)
            _convolve(work, weight, bias, transposed, target)


def _convolve(work: _Work, weight: Array, bias: Array | None, transposed: bool, out: Array) -> None:
    """Write a part of a result."""
    panels, pieces = _packed_weights(work, weight, transposed), work.pieces()
    biases = np.zeros((work.groups, work.blocks, work.width), "f")
    if bias is not None:
        biases.reshape(work.groups, -1)[:, : work.lanes] = bias.reshape(work.groups, work.lanes)

    loop = work.loops.multiply[work.tile]

    def calls(piece: Piece, window: Array, memory: Iterator[Array]) -> Iterator[tuple[Any, ...]]:
        target = out[piece.samples, :, piece.lines]
        tables, places = (work.starts(window, target, work.tile[0]), work.steps(window)), _places(target)
        source, result = _channel(window, 0), _channel(target, 0)
        for group in range(work.groups):
            yield (
                source + group * work.channels * window.strides[1], *tables, panels[group], biases[group],
                result + group * work.lanes * target.strides[1], places, target.strides[1], work.lanes, next(memory),
            )  # fmt: skip

    def run(number: int) -> None:
        window = reached(work.source, work.parts, pieces[number])
        for arguments in calls(pieces[number], window, itertools.repeat(scratch("sums", (_ROWS, work.width), "f"))):
            loop(*arguments)

    whole = whole_of(work.loops, work.source, work.parts, pieces)
    if whole is None:
        threads.run(run, len(pieces))
    else:
        memory = iter(np.empty((len(pieces) * work.groups, _ROWS, work.width), "f"))
        threads.run_loop(loop, [some for piece in pieces for some in calls(piece, whole.reached(piece), memory)])


def _packed_weights(work: _Work, weight: Array, transposed: bool) -> Array:
    """The weights of all groups as panels: (groups, blocks, channels * taps, width)."""
    lane_step, channel_step = weight.strides[1::-1] if transposed else weight.strides[:2]
    steps = weight_offsets(
        work.parts, weight.strides[2:], work.channels, channel_step, is_channels_last(work.source)
    )  # fmt: skip
    panels = np.empty((work.groups, work.blocks, len(steps), work.width), "f")
    for weights, panel in zip(weight.reshape(work.groups, -1, *weight.shape[1:]), panels, strict=True):
        work.loops.pack(weights.ctypes.data, lane_step, work.lanes, steps, panel)
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
    loops = _loops("planes" if are_planes else "products", amount, grad_output, input, out)
    arguments = (grad_output, input, kernel_size, stride, padding, dilation, groups, channels_last)
    if loops is None:
        generic._convolution_weight_backward(xp, *arguments, out=out)
        return
    numbers = [ops.spread("convolution", "", v, len(kernel_size)) for v in (stride, padding, dilation)]
    rows = zip(kernel_size, *numbers, grad_output.shape[2:], strict=True)
    parts = combinations([parts_of_convolution(*row) for row in rows])[0]
    if are_planes:
        axes = _as_image_parts(parts)
        gradients = planes.weight_gradients(loops, _as_image(grad_output), _as_image(input), axes, groups)
        if np.isfinite(gradients).all():
            out[...] = gradients.reshape(out.shape)
        else:  # zeros between the rows of planes meet elements that are not finite
            generic._convolution_weight_backward(xp, *arguments, out=out)
        return
    work = _Work(loops, _tile_for(loops, lanes), input, parts, groups, lanes)
    sums, is_last = _weight_sums(work, grad_output), is_channels_last(input)
    result = np.moveaxis(out, 1, -1) if is_last else out
    for group, block in np.ndindex(sums.shape[:2]):
        first, count = work.lanes_of(group, block)
        columns = sums[group, block, : math.prod(result.shape[1:])].reshape(*result.shape[1:], -1)
        result[first : first + count] = np.moveaxis(columns, -1, 0)[:count]


def _weight_sums(work: _Work, grad: Array) -> Array:
    """The gradients of weights as (groups, blocks, rows, width), where a row is a channel's tap, or superfluous."""
    chunks, rows = _chunks(work, grad), work.tile[0]
    length = -(-work.channels * work.taps // rows) * rows
    totals = np.zeros((len(chunks), work.groups, work.blocks, length, work.width), "f")
    loop = work.loops.accumulate[work.tile]
    pieces = [piece for chunk in chunks for piece in chunk]
    whole = whole_of(work.loops, work.source, work.parts, pieces)

    def call(number: Sequence[int], pieces: list[Piece], windows: list[Array]) -> tuple[Any, ...]:
        chunk, group, block = number
        first, count = work.lanes_of(group, block)
        parts = [grad[piece.samples, :, piece.lines] for piece in pieces]
        rights = np.array([_channel(part, first) for part in parts])
        lefts = np.array([_channel(window, group * work.channels) for window in windows])
        places = _places(parts[0])
        return (
            rights, grad.strides[1], count, places, lefts, work.steps(windows[0], rows),
            work.starts(windows[0], parts[0]), np.empty((1, len(places), work.width), "f"), totals[chunk, group, block],
        )  # fmt: skip

    numbers = list(np.ndindex(totals.shape[:3]))
    if whole is not None:
        windows = [[whole.reached(piece) for piece in chunk] for chunk in chunks]
        threads.run_loop(loop, [call(number, chunks[number[0]], windows[number[0]]) for number in numbers])
    else:

        def add(number: int) -> None:
            for piece in chunks[numbers[number][0]]:
                window = reached(work.source, work.parts, piece)  # its memory is read by addresses
                loop(*call(numbers[number], [piece], [window]))

        threads.run(add, len(numbers))
    return totals[0] if len(totals) == 1 else totals.sum(axis=0)


def _chunks(work: _Work, grad: Array) -> list[list[Piece]]:
    """Pieces whose gradients are added up one after the other, all of one shape; the same for any number of threads."""
    of_shape: dict[Any, list[Piece]] = {}
    for piece in work.pieces():
        shape = piece.samples.stop - piece.samples.start, piece.lines.stop - piece.lines.start
        of_shape.setdefault(shape, []).append(piece)
    wanted = -(-_SUMS // (work.groups * work.blocks))
    return [
        pieces[part] for pieces in of_shape.values() for part in threads.parts_of(len(pieces), min(len(pieces), wanted))
    ]
