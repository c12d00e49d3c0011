"""Pieces of a convolution's work: some samples and lines of a result, and what they read of the source, padded."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from server.engine.cpu.memory import BLOCK_BYTES, scratch
from server.engine.device import threads

from .parts import Part

Array = Any
_WORK = 1 << 25
"""Multiply-adds of a piece, at most: half a millisecond."""
_POSITIONS = 256
"""So many positions of the result a piece has, where there are as many: for all of them weights are read once."""
_PIECES = 8
"""So many pieces there are, if each has as many positions, for threads to take."""
_TURN_BYTES = 1 << 23
"""Bytes of the source that are copied at a time, with the zeros around them: they stay in a last-level cache."""
_BYTES = 4


class Piece(NamedTuple):
    """Some samples of a result, and some places along its first axis."""

    samples: slice
    lines: slice


class Alike(NamedTuple):
    """Pieces of one size: how many samples and lines each has, and where they begin."""

    samples: int
    lines: int
    first_samples: Array
    first_lines: Array

    def offsets(self, strides: tuple[int, ...], begin: tuple[int, int], step: int) -> Array:
        """Where each piece begins in an array that begins with a sample and a line, of a line every ``step`` lines."""
        samples, lines = self.first_samples - begin[0], self.first_lines - begin[1]
        return samples * strides[0] + lines * (step * strides[2])


class Turn(NamedTuple):
    """Pieces whose sources are copied together, if at all: the piece that all of them are, and they by their size."""

    piece: Piece
    alike: tuple[Alike, ...]


@lru_cache(maxsize=1024)
def turns_of(shape: tuple[int, ...], parts: tuple[Part, ...], products: int) -> tuple[Turn, ...]:
    """The turns that a source of this shape is convolved in; ``products`` are the multiply-adds of one position."""
    lines, line_bytes = parts[0].size, shape[1] * _BYTES * math.prod([_width(part) for part in parts[1:]])
    samples = _TURN_BYTES // max(line_bytes * _width(parts[0]), 1)
    turns: list[list[Piece]] = []
    for piece in _pieces_of(shape, parts, products):
        first = turns[-1][0] if turns else piece
        if samples:
            is_same = piece.samples.stop - first.samples.start <= samples
        else:
            size = (piece.lines.stop - first.lines.start) * parts[0].step * line_bytes
            is_same = piece.samples == first.samples and size <= _TURN_BYTES
        if turns and is_same:
            turns[-1].append(piece)
        else:
            turns.append([piece])
    return tuple([Turn(_joined(pieces, lines if samples else 0), _by_size(pieces)) for pieces in turns])


def _joined(pieces: list[Piece], lines: int) -> Piece:
    """What pieces are together that follow each other; they have all lines of their samples where that is a number."""
    first, last = pieces[0], pieces[-1]
    reached = slice(0, lines) if lines else slice(first.lines.start, last.lines.stop)
    return Piece(slice(first.samples.start, last.samples.stop), reached)


def _by_size(pieces: list[Piece]) -> tuple[Alike, ...]:
    sizes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for samples, lines in pieces:
        size = samples.stop - samples.start, lines.stop - lines.start
        sizes.setdefault(size, []).append((samples.start, lines.start))
    return tuple([Alike(*size, *np.array(begins, np.int64).T) for size, begins in sizes.items()])


def _pieces_of(shape: tuple[int, ...], parts: tuple[Part, ...], products: int) -> list[Piece]:
    """Pieces whose sources stay in a core's second-level cache."""
    samples, lines = shape[0], parts[0].size
    line_bytes = shape[1] * _BYTES * math.prod([_width(part) for part in parts[1:]])
    positions = math.prod([part.size for part in parts[1:]])
    halo = _width(parts[0]) - parts[0].step * (lines - 1)
    most = max(_WORK // (products * positions), -(-_POSITIONS // positions))
    fitting = (BLOCK_BYTES // max(line_bytes, 1) - halo) // parts[0].step + 1
    step = max(1, min(lines, most, max(fitting, -(-_POSITIONS // positions))))
    if step < lines:
        step = _divisor(lines, step)
        starts = range(0, lines, step)
        return [Piece(slice(n, n + 1), slice(i, min(i + step, lines))) for n in range(samples) for i in starts]
    whole = max(line_bytes * _width(parts[0]), 1)
    fitting = min(BLOCK_BYTES // whole, -(-samples // _PIECES))
    batch = max(1, min(most // lines, max(fitting, -(-_POSITIONS // (positions * lines)))))
    batch = _divisor(samples, min(batch, samples))
    return [Piece(slice(n, min(n + batch, samples)), slice(0, lines)) for n in range(0, samples, batch)]


def _divisor(number: int, most: int) -> int:
    """The largest divisor between ``most`` and half of it, so that pieces are alike; else ``most``."""
    return next((size for size in range(most, most // 2, -1) if number % size == 0), most)


def _width(part: Part) -> int:
    """How many elements of the source the part spans."""
    first, last = part.reach(0, part.size)
    return last - first


def reached(loops: Any, source: Array, parts: tuple[Part, ...], piece: Piece) -> Array:
    """What a piece reads: a view of the source, or a copy with zeros around it."""
    reach, is_inside = _reach_of(parts, piece.lines.start, piece.lines.stop, source.shape[2:])
    chosen = source[piece.samples]
    if is_inside:
        return chosen[(..., *[slice(*pair) for pair in reach])]
    if chosen.ndim == 4 and chosen.flags.c_contiguous:
        return _padded(loops, chosen, reach)
    if chosen.ndim == 4 and is_channels_last(chosen) and chosen.transpose(0, 2, 3, 1).flags.c_contiguous:
        return _padded_channels_last(loops, chosen.transpose(0, 2, 3, 1), reach).transpose(0, 3, 1, 2)
    return _copied(source, reach, chosen)


@lru_cache(maxsize=1024)
def _reach_of(
    parts: tuple[Part, ...], begin: int, end: int, sizes: tuple[int, ...]
) -> tuple[list[tuple[int, int]], bool]:
    """The first element along each axis that some lines of a result read, and one after the last; whether all exist."""
    reach = [parts[0].reach(begin, end), *[part.reach(0, part.size) for part in parts[1:]]]
    return reach, all([first >= 0 and last <= size for (first, last), size in zip(reach, sizes, strict=True)])


def _padded(loops: Any, images: Array, reach: list[tuple[int, int]]) -> Array:
    """Images, (samples, channels, height, width), with zeros around them, which threads write."""
    (top, bottom), (left, right) = reach
    planes = images.reshape(-1, *images.shape[2:])
    out = np.empty((len(planes), bottom - top, right - left), "f")
    shares = threads.shares_of(len(planes), planes.nbytes + out.nbytes)
    threads.run_units(loops.pad, shares, (planes, -top, -left, out))
    return out.reshape(*images.shape[:2], *out.shape[1:])


def _padded_channels_last(loops: Any, images: Array, reach: list[tuple[int, int]]) -> Array:
    """The same of (samples, height, width, channels): a line's elements and channels are the elements of a line."""
    channels, (left, right) = images.shape[3], reach[1]
    lines = images.reshape(len(images), 1, images.shape[1], -1)
    padded = _padded(loops, lines, [reach[0], (left * channels, right * channels)])
    return padded.reshape(len(images), padded.shape[2], right - left, channels)


def _copied(source: Array, reach: list[tuple[int, int]], chosen: Array) -> Array:
    """The same of any layout and any number of axes, in scratch memory."""
    inside = [(min(max(a, 0), n), max(min(b, n), 0)) for (a, b), n in zip(reach, source.shape[2:], strict=True)]
    view = chosen[(..., *[slice(*pair) for pair in inside])]
    size = [b - a for a, b in reach]
    if is_channels_last(source):
        copy = scratch("source", (len(chosen), *size, source.shape[1]), "f")
        copy = copy.transpose(0, -1, *range(1, len(size) + 1))
    else:
        copy = scratch("source", (len(chosen), source.shape[1], *size), "f")
    copy.fill(0)
    rows = zip(inside, reach, view.shape[2:], strict=True)
    copy[(..., *[slice(begin - low, begin - low + n) for (begin, _), (low, _), n in rows])] = view
    return copy


def is_channels_last(array: Array) -> bool:
    """Whether the elements of a position's channels are beside each other."""
    return bool(array.strides[1] < array.strides[-1])
