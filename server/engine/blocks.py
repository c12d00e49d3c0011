"""Element-wise work in pieces that stay in a core's cache, numbers in an array's type; knows nothing of operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

BLOCK = 1 << 14
"""Elements of a block: a few float32 temporaries of this size fit into a core's second-level cache."""


def in_blocks(xp: Any, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Yield matching pieces of arrays of one shape; all at once on a GPU, or where memory is not contiguous."""
    first = arrays[0]
    if first.ndim == 0:
        # Operators on 0-d arrays would give NumPy scalars, which cannot be written into.
        yield tuple([array.reshape(1) for array in arrays])
        return
    if xp is not np or first.size <= BLOCK or not _are_aligned(arrays):
        yield arrays
        return
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, first.size, BLOCK):
        yield tuple([array[start : start + BLOCK] for array in flat])


def _are_aligned(arrays: tuple[Any, ...]) -> bool:
    shape = arrays[0].shape
    return all(array.shape == shape and array.flags.c_contiguous for array in arrays)


def number(value: Any, dtype: Any) -> Any:
    """``value`` as ``dtype`` holds it; integers wrap around, imaginary parts are dropped where it is real."""
    if isinstance(value, complex) and np.dtype(dtype).kind != "c":
        value = value.real
    return np.asarray(value).astype(dtype)[()]
