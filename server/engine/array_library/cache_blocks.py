"""Element-wise work at the speed of the cache, and numbers in an array's type; knows nothing of operations.

NumPy is slow where a branch per element is mispredicted: selections become bit arithmetic. A GPU needs none of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

BLOCK = 1 << 14
"""Elements of a block: a few float32 temporaries of this size fit into a core's second-level cache."""

SMALL = 512
"""Below this many elements the calls cost more than the work."""

_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def in_blocks(xp: Any, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Yield matching pieces of arrays of one shape; all at once on a GPU, or where memory is not contiguous."""
    first = arrays[0]
    if first.ndim == 0:
        # Operators on 0-d arrays would give NumPy scalars, which cannot be written into.
        yield tuple([array.reshape(1) for array in arrays])
        return
    if xp is not np or first.size <= SMALL or not are_aligned(arrays):
        yield arrays
        return
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, first.size, BLOCK):
        yield tuple([array[start : start + BLOCK] for array in flat])


def are_aligned(arrays: tuple[Any, ...]) -> bool:
    """Whether elements of equal number lie at equal positions, row-major without gaps."""
    shape = arrays[0].shape
    return all(array.shape == shape and array.flags.c_contiguous for array in arrays)


def select(xp: Any, mask: Any, first: Any, second: Any, out: Any) -> None:
    """``first`` where the mask holds, ``second`` elsewhere; both arrays, or numbers of the result's type."""
    arrays = [a for a in (first, second) if a.ndim]
    if xp is np and out.size > SMALL and mask.shape != out.shape:
        mask = np.ascontiguousarray(np.broadcast_to(mask, out.shape))
    is_large = xp is np and out.size > SMALL and out.itemsize in _INTEGERS
    if not is_large or any(a.dtype != out.dtype for a in arrays) or not are_aligned((out, mask, *arrays)):
        xp.copyto(out, xp.where(mask, first, second))
        return
    kind = _INTEGERS[out.itemsize]
    numbers = [None if a.ndim else np.asarray(a, out.dtype).view(kind)[()] for a in (first, second)]
    for held, target, *pieces in in_blocks(xp, mask, out, *arrays):
        one, other = [n if n is not None else pieces.pop(0).view(kind) for n in numbers]
        _select_bits(held, one, other, target.view(kind))


def _select_bits(held: Any, first: Any, second: Any, target: Any) -> None:
    bits = held.astype(target.dtype)
    if _is_zero(first):
        bits -= 1
        np.bitwise_and(second, bits, out=target)
        return
    np.negative(bits, out=bits)
    if _is_zero(second):
        np.bitwise_and(first, bits, out=target)
        return
    bits &= first ^ second
    np.bitwise_xor(bits, second, out=target)


def _is_zero(bits: Any) -> bool:
    return not bits.ndim and bits == 0


def unwritten(dtype: Any) -> Any:
    """What deterministic mode has in memory that nothing was written to: NaN, or the largest number of a type."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return True
    return np.iinfo(kind).max if kind.kind in "iu" else number(np.nan, kind)


def number(value: Any, dtype: Any) -> Any:
    """``value`` as ``dtype`` holds it; integers wrap around, imaginary parts are dropped where it is real."""
    held = np.dtype(dtype)
    if isinstance(value, complex) and held.kind not in "cb" and held.name != "complex32":
        value = value.real
    return np.asarray(value).astype(dtype)[()]
