"""Random words of the counter-based generator Philox 4x32-10, and what is drawn of them at once.

``array_library.random_words.philox`` says which words there are, and computes the same without these loops. Seeds and
numbers of blocks are 64 bits, given as signed numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arithmetic import EXACT, compiled, f32, inlined

Array = Any
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_FIRST, _SECOND = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_FIRST, _WEYL_SECOND = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_ROUNDS = 10
_PIECE = 1024
"""Words that are drawn at a time, which stay in the first-level cache."""
_BLOCKS = 256
"""Blocks that are computed in vectors before their words are written one after the other."""
_u64, _u32 = np.uint64, np.uint32


@inlined
def _four_words(seed: Any, block: Any) -> tuple[Any, Any, Any, Any]:
    """The words of a block, in the lower halves of 64 bits."""
    c0, c1, c2, c3 = block & _LOW, block >> _HALF, _u64(0), _u64(0)
    key0, key1 = seed & _LOW, seed >> _HALF
    for _ in range(_ROUNDS):
        first, second = c0 * _FIRST, c2 * _SECOND
        c0, c1 = (second >> _HALF) ^ c1 ^ key0, second & _LOW
        c2, c3 = (first >> _HALF) ^ c3 ^ key1, first & _LOW
        key0, key1 = (key0 + _WEYL_FIRST) & _LOW, (key1 + _WEYL_SECOND) & _LOW
    return c0, c1, c2, c3


@compiled("int64", "int64", "uint32[::1]", flags=EXACT)
def words(seed: int, first: int, out: Array) -> None:
    """Write the words of blocks, from the first one on; of the last block those that there is room for."""
    key, begin, whole = _u64(seed), _u64(first), out.size // 4
    pairs = out[: 4 * whole].view(np.uint64)
    low, high = np.empty(_BLOCKS, np.uint64), np.empty(_BLOCKS, np.uint64)
    for start in range(0, whole, _BLOCKS):
        count = min(_BLOCKS, whole - start)
        lower, upper, target = low[:count], high[:count], pairs[2 * start : 2 * (start + count)]
        for i in range(count):
            c0, c1, c2, c3 = _four_words(key, begin + _u64(start + i))
            lower[i], upper[i] = c0 | (c1 << _HALF), c2 | (c3 << _HALF)
        for i in range(count):
            target[2 * i], target[2 * i + 1] = lower[i], upper[i]
    rest = out[4 * whole :]
    c0, c1, c2, c3 = _four_words(key, begin + _u64(whole))
    for place, word in enumerate((c0, c1, c2, c3)):
        if place < rest.size:
            rest[place] = _u32(word)


@compiled("int64", "int64", "int64", "float32", "float32[::1]", "float32[::1]", "boolean[::1]", flags=EXACT)
def dropout(seed: int, first: int, limit: int, scale: float, source: Array, out: Array, mask: Array) -> None:
    """Write which words are below a limit, and the elements by that and by a factor."""
    drawn = np.empty(_PIECE, np.uint32)
    for start in range(0, source.size, _PIECE):
        elements, result = source[start : start + _PIECE], out[start : start + _PIECE]
        are_kept, numbers = mask[start : start + _PIECE], drawn[: min(_PIECE, source.size - start)]
        words(seed, first + start // 4, numbers)
        for i in range(numbers.size):
            is_kept = np.int64(numbers[i]) < limit
            are_kept[i] = is_kept
            result[i] = elements[i] * (f32(1.0) if is_kept else f32(0.0)) * scale


@compiled("float32[::1]", "boolean[::1]", "float32[::1]", "float32", flags=EXACT)
def dropout_backward(grad: Array, mask: Array, out: Array, scale: float) -> None:
    """Write a gradient by what was kept, and by the same factor."""
    for i in range(grad.size):
        out[i] = grad[i] * (f32(1.0) if mask[i] else f32(0.0)) * scale
