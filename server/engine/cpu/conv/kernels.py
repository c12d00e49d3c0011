"""Convolutions and their gradients in float32 as products of matrices whose windows are read where they are.

Channels of the result are the lanes of vectors, in panels of weights; each position of the result reads its window by
tables of offsets, from the source or, where that needs padding, from copies of pieces of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.addresses import data_address
from server.engine.cpu.memory import scratch
from server.engine.device import threads
from server.engine.ops.layers import convolution as generic
from server.engine.registry import kernel
from telegrad_protocol.ops.layers import convolution as ops

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
Shape = tuple[int, ...]
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
_MOST_BYTES = 1 << 20
"""Bytes of tables that are kept of the pieces of turns, for one shape."""
_COSTS = {2: 1.0, 1: 1.75}
"""The time that a tile takes per lane, by its vectors."""


class _Job(NamedTuple):
    """Pieces of one size of a turn, and what ``multiply`` or ``accumulate`` is told of them.

    ``sources`` and ``results`` are where pieces begin, from the beginning of what the turn reads, and of the result.
    """

    pieces: int
    splits: int
    sources: Array
    results: Array
    starts: Array
    places: Array
    steps: Array
    shares: Sequence[slice]

    @property
    def nbytes(self) -> int:
        """Return how many bytes the tables of places, steps and results take together."""
        return sum([table.nbytes for table in (self.sources, self.results, self.starts, self.places, self.steps)])


class _Work:
    """Sums over a source's channels and taps: the loops and the tile that make them, and what each group has.

    It knows shapes and strides, and no elements, so that it is made once for all convolutions alike.
    """

    def __init__(
        self, loops: Any, shape: Shape, channels_last: bool, parts: tuple[Part, ...], groups: int, lanes: int
    ) -> None:  # fmt: skip
        self.loops, self.parts, self.groups, self.lanes = loops, parts, groups, lanes
        self.channels_last = channels_last
        self.tile = _tile_for(loops, lanes)
        self.channels = shape[1] // groups
        self.taps = math.prod([len(part.taps) for part in parts])
        self.width = self.tile[1] * int(loops.LANES)
        self.blocks = -(-lanes // self.width)
        self.units = groups * self.blocks
        """The panels that weights, or their gradients, are made of."""
        self.turns = turns_of(shape, parts, groups * lanes * self.channels * self.taps)
        self._jobs: dict[Any, tuple[_Job, ...]] = {}
        self._job_bytes = 0

    def jobs(self, turn: Turn, window: Array, result: Array, make: Callable[..., _Job]) -> tuple[_Job, ...]:
        """What a function of this class makes of the pieces of a turn; kept for arrays of the same strides."""
        key = make, turn.piece.samples.start, turn.piece.lines.start, window.strides, result.strides, threads.count()
        jobs = self._jobs.get(key)
        if jobs is None:
            jobs = tuple([make(self, turn, alike, window, result) for alike in turn.alike])
            self._keep(key, jobs)
        return jobs

    def _keep(self, key: Any, jobs: tuple[_Job, ...]) -> None:
        """Keep jobs, unless their tables are larger than all that may be kept; others make room for them."""
        nbytes = sum([job.nbytes for job in jobs])
        if nbytes > _MOST_BYTES:
            return
        if self._job_bytes + nbytes > _MOST_BYTES:
            self._jobs.clear()
            self._job_bytes = 0
        self._jobs[key] = jobs
        self._job_bytes += nbytes

    def products(self, turn: Turn, alike: Alike, window: Array, result: Array) -> _Job:
        """A job of products with weights, whose positions are the rows of tiles."""
        pieces = len(alike.first_samples) * self.groups
        splits = min(self.blocks, -(-threads.SHARES_PER_THREAD * threads.count() // pieces))
        return self._job(turn, alike, window, result, pieces * splits, splits, self.tile[0], 1)

    def sums(self, turn: Turn, alike: Alike, window: Array, result: Array) -> _Job:
        """A job of sums over positions, whose rows are channels' taps."""
        return self._job(turn, alike, window, result, self.chunks * self.units, 1, 1, self.tile[0])

    def _job(
        self, turn: Turn, alike: Alike, window: Array, result: Array, units: int, splits: int, by_start: int,
        by_step: int,
    ) -> _Job:  # fmt: skip
        """The job, with tables whose last elements are repeated up to multiples."""
        begin, step = (turn.piece.samples.start, turn.piece.lines.start), self.parts[0].step
        sizes = alike.samples, alike.lines, *[part.size for part in self.parts[1:]]
        across = [part.step * apart for part, apart in zip(self.parts, window.strides[2:], strict=True)]
        products = math.prod(sizes) * len(alike.first_samples) * self.groups * self.lanes * self.channels * self.taps
        return _Job(
            len(alike.first_samples), splits, alike.offsets(window.strides, begin, step),
            alike.offsets(result.strides, (0, 0), 1),
            offsets((*zip(sizes, (window.strides[0], *across), strict=True),), by_start),
            offsets((*zip(sizes, (result.strides[0], *result.strides[2:]), strict=True),)),
            tap_offsets(
                self.parts, window.strides[2:], self.channels, window.strides[1], self.channels_last, by_step
            ), threads.shares_of_products(units, products),
        )  # fmt: skip

    @property
    def chunks(self) -> int:
        """The sums of weight gradients that are made apart, which depend on shapes alone."""
        most = max([len(alike.first_samples) for turn in self.turns for alike in turn.alike])
        return min(most, -(-_SUMS // self.units))


@lru_cache(maxsize=256)
def _work_of(
    loops: Any, shape: Shape, channels_last: bool, parts: tuple[Part, ...], groups: int, lanes: int
) -> _Work:  # fmt: skip
    return _Work(loops, shape, channels_last, parts, groups, lanes)


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
            work = _work_of(loops, input.shape, is_channels_last(input), parts, groups, lanes)
            _convolve(work, input, weight, bias, transposed, target)


def _convolve(
    work: _Work, source: Array, weight: Array, bias: Array | None, transposed: bool, out: Array
) -> None:  # fmt: skip
    """Write a part of a result."""
    panels, loop = _packed_weights(work, weight, transposed), work.loops.multiply[work.tile]
    biases = np.zeros((work.units, work.width), "f")
    if bias is not None:
        biases.reshape(work.groups, -1)[:, : work.lanes] = bias.reshape(work.groups, work.lanes)
    for turn in work.turns:
        window = reached(work.loops, source, work.parts, turn.piece)
        at_window, at_out = data_address(window), data_address(out)
        for job in work.jobs(turn, window, out, _Work.products):
            given = (
                job.splits, at_window + job.sources, work.channels * window.strides[1], job.starts, job.steps, panels,
                biases, at_out + job.results, job.places, out.strides[1], work.lanes,
            )  # fmt: skip
            memory = scratch("tiles", (len(job.shares), _ROWS, work.width), "f")
            threads.run_units(loop, job.shares, given, memory)


def _packed_weights(work: _Work, weight: Array, transposed: bool) -> Array:
    """The weights of all groups as panels: (groups, blocks, channels * taps, width)."""
    lane_step, channel_step = weight.strides[1::-1] if transposed else weight.strides[:2]
    steps = weight_offsets(
        work.parts, weight.strides[2:], work.channels, channel_step, work.channels_last
    )  # fmt: skip
    panels = np.empty((work.groups, work.blocks, len(steps), work.width), "f")
    given = data_address(weight), len(weight) // work.groups * weight.strides[0], lane_step, work.lanes, steps, panels
    shares = threads.shares_of(work.units, 2 * panels.nbytes)
    threads.run_units(work.loops.pack_all, shares, given)
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
    work = _work_of(loops, input.shape, is_channels_last(input), parts, groups, lanes)
    _write_gradients(work, input, grad_output, out)


def _write_gradients(work: _Work, source: Array, grad: Array, out: Array) -> None:
    """Write the gradients of weights: sums over pieces, some of which are made apart, and then added up."""
    totals = _weight_sums(work, source, grad)
    result = np.moveaxis(out, 1, -1) if work.channels_last else out
    places = offsets((*zip(result.shape[1:], result.strides[1:], strict=True),))
    given = totals, data_address(out), out.strides[0], work.lanes, places
    threads.run_units(work.loops.add_up, threads.shares_of(work.units, totals.nbytes + out.nbytes), given)


def _weight_sums(work: _Work, source: Array, grad: Array) -> Array:
    """Sums of the gradients of weights, (chunks, groups, blocks, rows, width), where a row is a channel's tap.

    There are superfluous rows after the last.
    """
    rows, chunks = work.tile[0], work.chunks
    length = -(-work.channels * work.taps // rows) * rows
    totals = np.empty((chunks, work.groups, work.blocks, length, work.width), "f")
    loop, is_first = work.loops.accumulate[work.tile], True
    for turn in work.turns:
        window = reached(work.loops, source, work.parts, turn.piece)
        at_window, at_grad = data_address(window), data_address(grad)
        for job in work.jobs(turn, window, grad, _Work.sums):
            given = (
                is_first, np.array([job.pieces * chunk // chunks for chunk in range(chunks + 1)]),
                at_grad + job.results, grad.strides[1], work.lanes, job.places, at_window + job.sources,
                work.channels * window.strides[1], job.steps, job.starts, totals,
            )  # fmt: skip
            panels = np.empty((len(job.shares), len(job.places), work.width), "f")
            threads.run_units(loop, job.shares, given, panels)
            is_first = False
    return totals
