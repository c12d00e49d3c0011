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

_kept: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
_views: dict[tuple[str, tuple[int, ...], str], Any] = {}
_MOST_VIEWS = 4096


def scratch(name: str, shape: tuple[int, ...], char: str) -> Any:
    """An uninitialised array that the next call with this name and type overwrites; a fresh one if it is large."""
    found = _views.get((name, shape, char))
    return _new_scratch(name, shape, char) if found is None else found


def _new_scratch(name: str, shape: tuple[int, ...], char: str) -> Any:
    size, itemsize = math.prod(shape), np.dtype(char).itemsize
    if size * itemsize > BLOCK_BYTES:
        return np.empty(shape, char)
    memory = _kept.get((name, char))
    if memory is None:
        memory = _kept[name, char] = np.empty(BLOCK_BYTES // itemsize, char)
    if len(_views) >= _MOST_VIEWS:
        _views.clear()
    found = _views[name, shape, char] = memory[:size].reshape(shape)
    return found


def constant(number: float, length: int, char: str) -> Any:
    """A vector, at most a block long, that holds ``number`` everywhere; nobody may write into it."""
    return _filled(number, char)[:length]


@lru_cache(maxsize=64)
def _filled(number: float, char: str) -> Any:
    found = np.full(BLOCK_BYTES // np.dtype(char).itemsize, number, char)
    found.flags.writeable = False
    return found


@lru_cache(maxsize=1024)
def filled(number: float, shape: tuple[int, ...], char: str) -> Any:
    """An array of a piece's shape and type that holds ``number`` everywhere; a 0-d one where a piece is large."""
    size = math.prod(shape)
    memory = _filled(number, char)
    return np.asarray(number, char) if size > memory.size else memory[:size].reshape(shape)


def in_pieces(*arrays: Any) -> Any:
    """Matching pieces of arrays of one shape, each small enough for the cache; whole where memory has gaps."""
    first = arrays[0]
    if first.nbytes <= BLOCK_BYTES:
        return (arrays,)
    flat = _flattened(arrays)
    if flat is None:
        return (arrays,)
    step = BLOCK_BYTES // first.itemsize
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
