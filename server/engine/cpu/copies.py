"""Copies that change the memory order, such as transposes, and copies that convert half precision.

Neighbours in the result lie far apart in the source. NumPy writes whole rows of the result, for which it reads a cache
line of the source per element, and needs the same lines again for the next row; this is slow if the cache has evicted
them by then. In that case the result is written in panels as narrow as a cache line, so that few lines are in use.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.device import threads
from server.engine.ops import rearrange as generic
from server.engine.ops.pointwise import cast_into
from server.engine.registry import kernel
from telegrad_protocol.ops import creation, pointwise, rearrange

from .halves import narrow, widen
from .memory import in_pieces

Array = Any
_PANEL = 16
"""Elements of a panel's row: a cache line of float32."""
_LINE, _WAYS, _PERIOD = 64, 16, 1 << 16
"""A usual second-level cache: 64-byte lines, 16 ways, and a period of 64 KiB.

Lines whose addresses differ by a multiple of the period compete for the same ways.
"""
_LEAST_ELEMENTS = 1 << 12
"""With fewer elements a copy in panels does not pay for its additional calls."""


def copy(source: Array, target: Array) -> None:
    """Copy between arrays of one shape and type, whatever their strides."""
    if source.nbytes < threads.LEAST_BYTES or not source.ndim:
        _copy_part(source, target)
        return
    dim = max(range(target.ndim), key=lambda d: abs(target.strides[d]) if target.shape[d] > 1 else -1)
    source, target = np.moveaxis(source, dim, 0), np.moveaxis(target, dim, 0)
    parts = threads.shares_of(len(target), 2 * target.nbytes)
    threads.run(lambda part: _copy_part(source[parts[part]], target[parts[part]]), len(parts))


def _copy_part(source: Array, target: Array) -> None:
    if source.size < _LEAST_ELEMENTS or source.ndim < 2:
        np.copyto(target, source)
        return
    inner, outer = _innermost(target), _innermost(source)
    if inner == outer or _stays_cached(source.shape[inner], abs(source.strides[inner])):
        np.copyto(target, source)
    else:
        _copy_panels(np.moveaxis(source, (outer, inner), (-2, -1)), np.moveaxis(target, (outer, inner), (-2, -1)))


def _stays_cached(count: int, step: int) -> bool:
    """Whether ``count`` lines that are ``step`` bytes apart are in the cache at the same time."""
    return count <= _WAYS * (_PERIOD // max(math.gcd(step, _PERIOD), _LINE))


def _innermost(array: Array) -> int:
    """The dimension with the smallest stride."""
    steps = [(abs(step) if size > 1 else np.inf, d) for d, (size, step) in enumerate(zip(array.shape, array.strides))]
    return min(steps)[1]


def _copy_panels(source: Array, target: Array) -> None:
    """Copy in panels of the last dimension, matrix by matrix where the matrices are large."""
    if source.ndim > 2 and source.shape[-1] * source.shape[-2] >= _LEAST_ELEMENTS:
        for part, result in zip(source, target, strict=True):
            _copy_panels(part, result)
        return
    for start in range(0, source.shape[-1], _PANEL):
        panel = slice(start, start + _PANEL)
        np.copyto(target[..., panel], source[..., panel])


@kernel(rearrange._in_layout, keys.CPU, movement=True)
def in_layout(xp, input, strides, *, out):
    copy(input, out)


@kernel(rearrange.cat, keys.CPU, movement=True)
def cat(xp, tensors, dim, *, out):
    if out.nbytes < 2 * threads.LEAST_BYTES or any([array.dtype is not out.dtype for array in tensors]):
        generic.cat(xp, tensors, dim, out=out)
        return
    before, start = (slice(None),) * (dim % out.ndim), 0
    for array in tensors:
        if array.ndim == out.ndim:  # an empty vector goes with tensors of any shape
            end = start + array.shape[dim]
            copy(array, out[(*before, slice(start, end))])
            start = end


@kernel(creation.clone, keys.CPU, movement=True)
def clone(xp, input, *, out):
    copy(input, out)


_CONVERSIONS = {"ef": widen, "Ef": widen, "fe": narrow, "fE": narrow}


@kernel(pointwise._to_copy, keys.CPU, movement=True)
def to_copy(xp, input, *, dtype, device, out):
    if input.dtype is out.dtype:
        copy(input, out)
    elif input.dtype.char + out.dtype.char in _CONVERSIONS:
        convert = _CONVERSIONS[input.dtype.char + out.dtype.char]
        pieces = in_pieces(input, out)
        threads.run(lambda piece: convert(*pieces[piece]), len(pieces))
    else:
        cast_into(xp, out, input)
