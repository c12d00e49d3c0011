"""The schedule of attention's tiles: which block of a launch computes which tiles, so that all end at the same time.

This is list scheduling: the next tile goes to the block that will be free first. Heads are processed a few at a time,
so that their keys and values stay in the cache; of these, the longest tiles go first, so that short ones are left for
the end. Knows nothing of devices.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_BESIDES = 1.0
"""The fixed cost of a tile, in blocks of keys."""
_FEW_HEADS = 8
_CACHED = 8 << 20
"""Bytes of keys and values that stay in the cache: more than ``_FEW_HEADS`` heads go together if they take no more."""


class Order(NamedTuple):
    """The tiles of every block b: ``tiles[begin[b] : begin[b + 1]]``.

    Tile t is tile t % row_tiles of head t // row_tiles. ``balance`` is the average share of time that blocks are busy.
    """

    begin: tuple[int, ...]
    tiles: tuple[int, ...]
    balance: float

    def packed(self, blocks: int, capacity: int) -> bytes:
        """As 16-bit numbers, for so many blocks at most and so many tiles; blocks beyond have none."""
        begin = self.begin + self.begin[-1:] * (blocks + 1 - len(self.begin))
        return struct.pack(f"={blocks + 1}H{capacity}H", *begin, *self.tiles, *(0,) * (capacity - len(self.tiles)))


class Walk(NamedTuple):
    """A launch: its heads, the blocks of keys that each tile of a head reads, and the bytes of a head's operands."""

    heads: int
    seen: tuple[int, ...]
    head_bytes: int

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Pairs of head and tile, in the order in which they start."""
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
    for tiles in lists:
        begin.append(begin[-1] + len(tiles))
    ends = [at for at, _ in free]
    return Order(tuple(begin), tuple(tile for tiles in lists for tile in tiles), sum(ends) / (blocks * max(ends)))
