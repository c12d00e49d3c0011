"""Copies that change the order of memory.

What is next to each other in the result lies far apart in the source. NumPy's own order reads a line of the source for
every element and comes back to it for the next row of the result; it is slow where lines are gone from the cache by
then. There the result is written in panels as narrow as a line, so that few lines of the source are in use at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.ops.pointwise import cast_into
from server.engine.registry import kernel
from telegrad_protocol.ops import creation, pointwise, rearrange

from .halves import narrow, widen
from .memory import in_pieces

Array = Any
_PANEL = 16
_LINE, _WAYS, _PERIOD = 64, 16, 1 << 16
"""A second-level cache, as usual: lines whose addresses differ by a multiple of the period compete for its ways."""
_MANY = 1 << 12
"""Elements from which a copy in panels is worth its calls."""


def copy(source: Array, target: Array) -> None:
    """Copy between arrays of one shape and type, whatever their strides."""
    if source.size < _MANY or source.ndim < 2:
        np.copyto(target, source)
        return
    inner, along = _fastest(target), _fastest(source)
    if inner == along or _stays_cached(source.shape[inner], abs(source.strides[inner])):
        np.copyto(target, source)
    else:
        _copy_slabs(np.moveaxis(source, (along, inner), (-2, -1)), np.moveaxis(target, (along, inner), (-2, -1)))


def _stays_cached(count: int, step: int) -> bool:
    """Whether as many lines, so many bytes apart, are in the cache together."""
    return count <= _WAYS * (_PERIOD // max(math.gcd(step, _PERIOD), _LINE))


def _fastest(array: Array) -> int:
    """The dimension along which elements are closest in memory."""
    steps = [(abs(step) if size > 1 else np.inf, d) for d, (size, step) in enumerate(zip(array.shape, array.strides))]
    return min(steps)[1]


def _copy_slabs(source: Array, target: Array) -> None:
    """Copy in panels of the last dimension, matrix by matrix where the matrices are large."""
    if source.ndim > 2 and source.shape[-1] * source.shape[-2] >= _MANY:
        for part, result in zip(source, target, strict=True):
            _copy_slabs(part, result)
        return
    for start in range(0, source.shape[-1], _PANEL):
        panel = slice(start, start + _PANEL)
        np.copyto(target[..., panel], source[..., panel])


@kernel(rearrange._in_layout, keys.CPU, movement=True)
def in_layout(xp, input, strides, *, out):
    copy(input, out)


@kernel(creation.clone, keys.CPU, movement=True)
def clone(xp, input, *, out):
    copy(input, out)


_CONVERSIONS = {"ef": widen, "fe": narrow}


@kernel(pointwise._to_copy, keys.CPU, movement=True)
def to_copy(xp, input, *, dtype, device, out):
    if input.dtype is out.dtype:
        copy(input, out)
    elif input.dtype.char + out.dtype.char in _CONVERSIONS:
        convert = _CONVERSIONS[input.dtype.char + out.dtype.char]
        for part, target in in_pieces(input, out):
            convert(part, target)
    else:
        cast_into(xp, out, input)
