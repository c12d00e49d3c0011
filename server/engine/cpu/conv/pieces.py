"""Pieces of a convolution's work: some samples and lines of a result, and what they read of the source, padded."""

from __future__ import annotations

import math
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


class Piece(NamedTuple):
    """Some samples of a result, and some places along its first axis."""

    samples: slice
    lines: slice


def pieces_of(source: Array, parts: tuple[Part, ...], products: int) -> list[Piece]:
    """Pieces whose sources stay in a core's second-level cache; ``products`` are those of one position."""
    samples, lines = len(source), parts[0].size
    line_bytes = source.shape[1] * source.itemsize * math.prod([_width(part) for part in parts[1:]])
    positions = math.prod([part.size for part in parts[1:]])
    halo = _width(parts[0]) - parts[0].step * (lines - 1)
    most = max(_WORK // (products * positions), -(-_POSITIONS // positions))
    fitting = (BLOCK_BYTES // max(line_bytes, 1) - halo) // parts[0].step + 1
    step = max(1, min(lines, most, max(fitting, -(-_POSITIONS // positions))))
    if step < lines:
        starts = range(0, lines, step)
        return [Piece(slice(n, n + 1), slice(i, min(i + step, lines))) for n in range(samples) for i in starts]
    whole = max(line_bytes * _width(parts[0]), 1)
    batch = max(1, min(most // lines, max(BLOCK_BYTES // whole, -(-_POSITIONS // (positions * lines)))))
    return [Piece(slice(n, min(n + batch, samples)), slice(0, lines)) for n in range(0, samples, batch)]


def _width(part: Part) -> int:
    """How many elements of the source the part spans."""
    first, last = part.reach(0, part.size)
    return last - first


def reached(source: Array, parts: tuple[Part, ...], piece: Piece) -> Array:
    """What a piece reads: a view of the source, or a copy with zeros around it, in scratch memory."""
    reach = [parts[0].reach(piece.lines.start, piece.lines.stop), *[part.reach(0, part.size) for part in parts[1:]]]
    chosen = source[piece.samples]
    inside = [(min(max(a, 0), n), max(min(b, n), 0)) for (a, b), n in zip(reach, source.shape[2:], strict=True)]
    view = chosen[(..., *[slice(*pair) for pair in inside])]
    if inside == reach:
        return view
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


_MOST_WHOLE = 1 << 23
"""Bytes of a source, with the zeros around it, up to which there is one copy for all pieces."""


class Whole:
    """All that pieces read, made beforehand, so that threads need nothing but compiled loops."""

    def __init__(self, loops: Any, source: Array, parts: tuple[Part, ...]) -> None:
        self._part = parts[0]
        self._first = parts[0].reach(0, parts[0].size)[0]
        reach = [part.reach(0, part.size) for part in parts]
        if source.ndim == 4 and source.flags.c_contiguous and _surround(reach, source.shape[2:]):
            self._all = _padded(loops, source, reach)
        else:
            self._all = reached(source, parts, Piece(slice(0, len(source)), slice(0, parts[0].size)))

    def reached(self, piece: Piece) -> Array:
        """What a piece reads."""
        begin, end = self._part.reach(piece.lines.start, piece.lines.stop)
        return self._all[piece.samples, :, begin - self._first : end - self._first]


def _surround(reach: list[tuple[int, int]], sizes: tuple[int, ...]) -> bool:
    """Whether more than all elements are in reach, along each axis."""
    rows = list(zip(reach, sizes, strict=True))
    return all([begin <= 0 and end >= size for (begin, end), size in rows]) and any(
        [end - begin > size for (begin, end), size in rows]
    )


def _padded(loops: Any, source: Array, reach: list[tuple[int, int]]) -> Array:
    """Images with zeros around them, which threads write."""
    count, size = len(source) * source.shape[1], [end - begin for begin, end in reach]
    out, planes = np.empty((count, *size), "f"), source.reshape(count, *source.shape[2:])
    shares = threads.shares_of(count, source.nbytes + out.nbytes)
    top, left = [-begin for begin, _ in reach]
    threads.run_loop(loops.pad, [(planes[share], top, left, out[share]) for share in shares])
    return out.reshape(*source.shape[:2], *size)


def whole_of(loops: Any, source: Array, parts: tuple[Part, ...], pieces: list[Piece]) -> Whole | None:
    """All that pieces read if threads share them, and it is small; else None."""
    size = source.shape[1] * len(source) * source.itemsize * math.prod([_width(part) for part in parts])
    return Whole(loops, source, parts) if len(pieces) > 1 and threads.count() > 1 and size <= _MOST_WHOLE else None


def is_channels_last(array: Array) -> bool:
    """Whether the elements of a position's channels are beside each other."""
    return bool(array.strides[1] < array.strides[-1])
