"""Scratch memory and constant arrays of CPU kernels, and the division of operands into cache-sized pieces.

Scratch memory is kept, because fresh pages cost more than the arithmetic on them. Each thread has its own, and no
kernel uses scratch memory after it has returned.
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import Any

import numpy as np

BLOCK_BYTES = 1 << 18
"""The size of a piece of an operand: three or four of them fit into a core's second-level cache."""

_MOST_VIEWS = 4096
"""Views of scratch memory that are kept, by name, shape and dtype; all are dropped when there are more."""


class _Scratch(threading.local):
    """The scratch memory of a thread, by name and dtype, and views of it."""

    def __init__(self) -> None:
        self.memory: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
        self.views: dict[tuple[str, tuple[int, ...], str], Any] = {}


_scratch = _Scratch()


def scratch(name: str, shape: tuple[int, ...], char: str) -> Any:
    """An uninitialised array that the next call with this name and type overwrites; a fresh one if it is large."""
    view = _scratch.views.get((name, shape, char))
    return _new_scratch(name, shape, char) if view is None else view


def _new_scratch(name: str, shape: tuple[int, ...], char: str) -> Any:
    size, itemsize = math.prod(shape), np.dtype(char).itemsize
    if size * itemsize > BLOCK_BYTES:
        return np.empty(shape, char)
    memory, views = _scratch.memory, _scratch.views
    kept = memory.get((name, char))
    if kept is None:
        kept = memory[name, char] = np.empty(BLOCK_BYTES // itemsize, char)
    if len(views) >= _MOST_VIEWS:
        views.clear()
    view = views[name, shape, char] = kept[:size].reshape(shape)
    return view


def constant(number: float, length: int, char: str) -> Any:
    """A read-only vector, at most a block long, whose elements all are ``number``."""
    return _filled(number, char)[:length]


@lru_cache(maxsize=64)
def _filled(number: float, char: str) -> Any:
    block = np.full(BLOCK_BYTES // np.dtype(char).itemsize, number, char)
    block.flags.writeable = False
    return block


@lru_cache(maxsize=1024)
def filled(number: float, shape: tuple[int, ...], char: str) -> Any:
    """A read-only array of the given shape whose elements all are ``number``; a 0-d one if it exceeds a block."""
    size = math.prod(shape)
    memory = _filled(number, char)
    return np.asarray(number, char) if size > memory.size else memory[:size].reshape(shape)


def in_pieces(*arrays: Any) -> Any:
    """Corresponding pieces of arrays of one shape, of at most ``BLOCK_BYTES``; the whole arrays if they have gaps."""
    first = arrays[0]
    if first.nbytes <= BLOCK_BYTES:
        return (arrays,)
    flat = _flattened(arrays)
    if flat is None:
        return (arrays,)
    step = BLOCK_BYTES // first.itemsize
    return [tuple([a[start : start + step] for a in flat]) for start in range(0, first.size, step)]


def _flattened(arrays: tuple[Any, ...]) -> list[Any] | None:
    """Views of the arrays as vectors, if all are contiguous in the same order (C or Fortran); else None."""
    shape = arrays[0].shape
    if any([a.shape != shape for a in arrays]):
        return None
    if all([a.flags.c_contiguous for a in arrays]):
        return [a.reshape(-1) for a in arrays]
    if all([a.flags.f_contiguous for a in arrays]):
        return [a.T.reshape(-1) for a in arrays]
    return None
