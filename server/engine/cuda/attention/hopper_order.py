"""Which tile of attention each block of a launch computes when, so that all end at one time. Knows nothing of devices.

Tiles are given out in turn, each to whoever will be free first. Heads come a few at a time, whose keys and values stay
in the cache, and of these the tiles that see most go first: what is left over for the end is small.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_BESIDES = 1.0
"""What a tile takes besides its blocks of keys, in blocks."""
_FEW_HEADS = 8
_CACHED = 8 << 20
"""Bytes of keys and values, if more heads than a few have no more."""


class Order(NamedTuple):
    """The tiles of each block: those in ``tiles`` from its place in ``begin`` on to the next one's.

    Tile t is the one of number t % row_tiles of head t // row_tiles. ``balance``: how busy blocks are on average.
    """

    begin: tuple[int, ...]
    tiles: tuple[int, ...]
    balance: float

    def packed(self, blocks: int, capacity: int) -> bytes:
        """As 16-bit numbers, for so many blocks at most and so many tiles; blocks beyond have none."""
        begin = self.begin + self.begin[-1:] * (blocks + 1 - len(self.begin))
        return struct.pack(f"={blocks + 1}H{capacity}H", *begin, *self.tiles, *(0,) * (capacity - len(self.tiles)))


class Walk(NamedTuple):
    """A launch's heads, how many blocks of keys each tile of a head sees, and how much memory those of a head take."""

    heads: int
    seen: tuple[int, ...]
    head_bytes: int

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Head and tile, in the order that they begin in."""
        together = max(_FEW_HEADS, _CACHED // self.head_bytes)
        falling = sorted(range(len(self.seen)), key=lambda tile: -self.seen[tile])
        for first in range(0, self.heads, together):
            heads = range(first, min(first + together, self.heads))
            yield from ((head, tile) for tile in falling for head in heads)


@lru_cache(maxsize=64)
def order_of(walk: Walk, blocks: int) -> Order:
    """The order of a launch on so many blocks."""
    lists: list[list[int]] = [[] for _ in range(blocks)]
    free = [(0.0, block) for block in range(blocks)]
    for head, tile in walk.tiles():
        at, block = free[0]
        lists[block].append(head * len(walk.seen) + tile)
        heapq.heapreplace(free, (at + walk.seen[tile] + _BESIDES, block))
    begin = [0]
    for each in lists:
        begin.append(begin[-1] + len(each))
    ends = [at for at, _ in free]
    return Order(tuple(begin), tuple(tile for each in lists for tile in each), sum(ends) / (blocks * max(ends)))
