"""Scratch memory of CPU kernels: kept, because fresh pages cost more than the arithmetic on them.

The engine has one thread, and a kernel is done with its scratch memory when it returns.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

BLOCK_BYTES = 1 << 18
"""A block of an operand: three or four of them fit into a core's second-level cache."""
PIECE_BYTES = 1 << 17
"""A piece of element-wise work, which has more temporaries."""

_kept: dict[tuple[str, str], np.ndarray[Any, Any]] = {}


def scratch(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """An uninitialised array that the next call with this name and type overwrites; a fresh one if it is large."""
    size = math.prod(shape)
    if size * dtype.itemsize > BLOCK_BYTES:
        return np.empty(shape, dtype)
    found = _kept.get((name, dtype.char))
    if found is None:
        found = _kept[name, dtype.char] = np.empty(BLOCK_BYTES // dtype.itemsize, dtype)
    return found[:size].reshape(shape)


def constant(number: float, length: int, char: str) -> Any:
    """A vector, at most a block long, that holds ``number`` everywhere; nobody may write into it."""
    return _filled(number, char)[:length]


def filled_like(array: Any, number: float) -> Any:
    """An array of the shape and type of a piece that holds ``number`` everywhere; nobody may write into it."""
    size = array.size
    if array.nbytes > BLOCK_BYTES:
        return np.asarray(number, array.dtype)
    found = _filled(number, array.dtype.char)[:size]
    return found if array.ndim == 1 else found.reshape(array.shape)


@lru_cache(maxsize=64)
def _filled(number: float, char: str) -> Any:
    found = np.full(BLOCK_BYTES // np.dtype(char).itemsize, number, char)
    found.flags.writeable = False
    return found


def in_pieces(*arrays: Any) -> Any:
    """Matching pieces of arrays of one shape, each small enough for the cache; whole where memory has gaps."""
    first = arrays[0]
    if first.nbytes <= PIECE_BYTES:
        return (arrays,)
    flat = _flattened(arrays)
    if flat is None:
        return (arrays,)
    step = PIECE_BYTES // first.itemsize
    return [tuple([a[start : start + step] for a in flat]) for start in range(0, first.size, step)]


def _flattened(arrays: tuple[Any, ...]) -> list[Any] | None:
    """The arrays as vectors in which elements of equal number are at equal places, if they lie in memory like that."""
    shape = arrays[0].shape
    if any([a.shape != shape for a in arrays]):
        return None
    if all([a.flags.c_contiguous for a in arrays]):
        return [a.reshape(-1) for a in arrays]
    if all([a.flags.f_contiguous for a in arrays]):
        return [a.T.reshape(-1) for a in arrays]
    return None
