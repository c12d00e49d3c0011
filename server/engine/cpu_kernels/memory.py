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


@lru_cache(maxsize=64)
def _filled(number: float, char: str) -> Any:
    found = np.full(BLOCK_BYTES // np.dtype(char).itemsize, number, char)
    found.flags.writeable = False
    return found
