"""The order in which attention's tiles are computed: each once, and all blocks busy to the end."""

from __future__ import annotations

import random
import struct

import pytest

from server.engine.cuda.attention.hopper_order import Order, Walk, order_of

MEGABYTE = 1 << 20
CAUSAL = tuple(range(1, 17))


def _busy(order: Order, walk: Walk) -> list[float]:
    """How long each block computes, in blocks of keys, and one more for each tile."""
    parts = [order.tiles[a:b] for a, b in zip(order.begin, order.begin[1:], strict=False)]
    return [sum(walk.seen[tile % len(walk.seen)] + 1 for tile in part) for part in parts]


@pytest.mark.parametrize("blocks", [1, 7, 132])
def test_every_tile_is_computed_once(seed: int, blocks: int) -> None:
    draw = random.Random(seed)
    for _ in range(20):
        seen = tuple(draw.randint(1, 20) for _ in range(draw.randint(1, 9)))
        walk = Walk(draw.randint(1, 60), seen, draw.choice((1, MEGABYTE, 100 * MEGABYTE)))
        order = order_of(walk, blocks)
        assert sorted(order.tiles) == list(range(walk.heads * len(seen)))
        assert len(order.begin) == blocks + 1
        busy = _busy(order, walk)
        assert order.balance == pytest.approx(sum(busy) / (blocks * max(busy)))
        assert max(busy) - min(busy) <= max(seen) + 1


@pytest.mark.parametrize("head_bytes", [MEGABYTE, 4 * MEGABYTE])
def test_many_heads_keep_all_blocks_busy(head_bytes: int) -> None:
    assert order_of(Walk(128, CAUSAL, head_bytes), 132).balance > 0.97


def test_few_tiles_do_not() -> None:
    assert order_of(Walk(4, CAUSAL, MEGABYTE), 132).balance < 0.6


def test_heads_are_taken_a_few_at_a_time() -> None:
    heads = [head for head, _ in Walk(40, CAUSAL, 4 * MEGABYTE).tiles()]
    assert all(abs(heads[place] // 8 - place // (8 * len(CAUSAL))) == 0 for place in range(len(heads)))
    tiles = [tile for _, tile in Walk(8, CAUSAL, MEGABYTE).tiles()]
    assert tiles == sorted(tiles, reverse=True)


def test_an_order_is_packed_for_the_largest_launch() -> None:
    order = order_of(Walk(3, (1, 2), MEGABYTE), 4)
    numbers = struct.unpack("=6H8H", order.packed(5, 8))
    assert numbers[:6] == (*order.begin, 6)
    assert numbers[6:] == (*order.tiles, 0, 0)
