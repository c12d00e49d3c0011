"""Words of the counter-based generator Philox 4x32-10: blocks of four words, which a seed and their number decide.

J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

WORDS_PER_BLOCK: Final = 4
_ROUNDS: Final = 10
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)
_MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)


def philox4x32(xp: Any, counter: Any, seed: int) -> None:
    """Replace four counter words by four random words, in each column of ``counter`` (uint64[4, n], values < 2**32)."""
    _rounds(xp, counter, xp.empty_like(counter[:2]), _round_keys(seed))


def _rounds(xp: Any, lanes: Any, products: Any, keys: list[tuple[np.uint64, np.uint64]]) -> None:
    (c0, c1, c2, c3), (p0, p1) = lanes, products
    for key0, key1 in keys:
        xp.multiply(c0, _MULTIPLIERS[0], out=p0)
        xp.multiply(c2, _MULTIPLIERS[1], out=p1)
        _mix(xp, p1, c1, key0, out=c0)
        _mix(xp, p0, c3, key1, out=c2)
        xp.bitwise_and(p1, _LOW, out=c1)
        xp.bitwise_and(p0, _LOW, out=c3)


def _round_keys(seed: int) -> list[tuple[np.uint64, np.uint64]]:
    low, high = seed & 0xFFFFFFFF, seed >> 32
    return [
        (np.uint64((low + i * _WEYL[0]) & 0xFFFFFFFF), np.uint64((high + i * _WEYL[1]) & 0xFFFFFFFF))
        for i in range(_ROUNDS)
    ]


def _mix(xp: Any, product: Any, word: Any, key: np.uint64, out: Any) -> None:
    xp.right_shift(product, _HALF, out=out)
    xp.bitwise_xor(out, word, out=out)
    xp.bitwise_xor(out, key, out=out)


class Philox:
    """The stream of one seed, with scratch memory for a number of blocks."""

    def __init__(self, xp: Any, seed: int, blocks: int) -> None:
        self.xp = xp
        self.keys = _round_keys(seed)
        self.numbers = xp.arange(blocks, dtype=np.uint64)
        self.lanes = xp.empty((4, blocks), np.uint64)
        self.products = xp.empty((2, blocks), np.uint64)
        self.out = xp.empty((blocks, 2), np.uint64)

    def words(self, first: int, blocks: int) -> Any:
        """The uint32 words of some blocks, in memory that the next call overwrites."""
        xp, lanes, products, out = self.xp, self.lanes[:, :blocks], self.products[:, :blocks], self.out[:blocks]
        first %= 1 << 64
        high = first >> 32
        if (first + blocks - 1) >> 32 == high:
            self._two_rounds(first & 0xFFFFFFFF, high, lanes, products[0])
            _rounds(xp, lanes, products, self.keys[2:])
        else:
            xp.add(self.numbers[:blocks], np.uint64(first), out=lanes[0])
            xp.right_shift(lanes[0], _HALF, out=lanes[1])
            xp.bitwise_and(lanes[0], _LOW, out=lanes[0])
            lanes[2:] = 0
            _rounds(xp, lanes, products, self.keys)
        for pair in (0, 1):
            high_word = lanes[2 * pair + 1]
            xp.left_shift(high_word, _HALF, out=high_word)
            xp.bitwise_or(lanes[2 * pair], high_word, out=out[:, pair])
        return out.reshape(-1).view(np.uint32)

    def _two_rounds(self, low: int, high: int, lanes: Any, product: Any) -> None:
        """Two rounds of the counters (low, high, 0, 0), (low + 1, high, 0, 0) and so on; half of it is constant."""
        xp, (c0, c1, c2, c3) = self.xp, lanes
        (key0, key1), (next0, next1) = self.keys[:2]
        constant = (high ^ int(key0)) * int(_MULTIPLIERS[0])
        xp.add(self.numbers[: len(c0)], np.uint64(low), out=c0)
        xp.multiply(c0, _MULTIPLIERS[0], out=product)
        xp.right_shift(product, _HALF, out=c2)
        xp.bitwise_xor(c2, key1, out=c2)
        xp.bitwise_and(product, _LOW, out=c3)
        xp.multiply(c2, _MULTIPLIERS[1], out=product)
        xp.bitwise_xor(c3, np.uint64(constant >> 32) ^ next1, out=c2)
        xp.right_shift(product, _HALF, out=c0)
        xp.bitwise_xor(c0, next0, out=c0)
        xp.bitwise_and(product, _LOW, out=c1)
        c3.fill(np.uint64(constant & 0xFFFFFFFF))


class CompiledPhilox:
    """The same stream on a CPU, by a compiled loop."""

    def __init__(self, loops: Any, seed: int, blocks: int) -> None:
        self._loop, self._seed = loops.words, signed(seed)
        self._out = np.empty(blocks * WORDS_PER_BLOCK, np.uint32)

    def words(self, first: int, blocks: int) -> Any:
        """The uint32 words of some blocks, in memory that the next call overwrites."""
        out = self._out[: blocks * WORDS_PER_BLOCK]
        self._loop(self._seed, signed(first), out)
        return out


class NativePhilox:
    """The same stream on a CPU, by a function of C that is given a seed, the first block, and memory for the words."""

    def __init__(self, write: Callable[[int, int, Any], None], seed: int, blocks: int) -> None:
        self._write, self._seed = write, seed
        self._out = np.empty(blocks * WORDS_PER_BLOCK, np.uint32)

    def words(self, first: int, blocks: int) -> Any:
        """The uint32 words of some blocks, in memory that the next call overwrites."""
        out = self._out[: blocks * WORDS_PER_BLOCK]
        self._write(self._seed, first, out)
        return out


def signed(number: int) -> int:
    """The number of 64 bits, modulo 2**64, as a signed one of the same bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
