"""The parts of the allocator one by one: sizes, blocks, pools, events, and the order in which room is made."""

from __future__ import annotations

import random
from typing import Any

import pytest

from server.allocator import AllocatorConfig, Block, CachingAllocator, Segment, SimulatedUpstream
from server.allocator.core.block import Pool
from server.allocator.core.events import EventQueue
from server.allocator.core.ownership import CLEAN, MIXED, merged_owner
from server.allocator.core.sizes import MIB, human, segment_size
from server.allocator.core.splitting import coalesce, join_front, split_front
from telegrad_protocol.errors import OutOfMemoryError


def make_block(size: int, pointer: int = 1 << 40) -> Block:
    segment = Segment(pointer, size)
    block = segment.first = Block(segment, 0, size, 0, CLEAN)
    return block


@pytest.mark.parametrize(
    ("size", "obtained"),
    [
        (512, 2 * MIB), (MIB, 2 * MIB), (MIB + 512, 20 * MIB), (10 * MIB - 512, 20 * MIB), (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB), (21 * MIB, 22 * MIB), (22 * MIB, 22 * MIB),
    ],
)  # fmt: skip
def test_small_and_large_requests_get_segments_of_pytorchs_sizes(size: int, obtained: int) -> None:
    assert segment_size(size) == obtained


def test_bytes_are_told_in_the_unit_that_people_read() -> None:
    assert [human(n) for n in (0, 1023, 1024, 3 * MIB // 2, 5 << 30, 7 << 50)] == [
        "0 bytes", "1023 bytes", "1.00 KiB", "1.50 MiB", "5.00 GiB", "7168.00 TiB",
    ]  # fmt: skip


def test_pieces_of_a_block_tile_it_and_merge_into_it_again(seed: int) -> None:
    draw = random.Random(seed)
    whole = make_block(64 * 512)
    segment = whole.segment
    while len(list(segment.blocks())) < 12:
        block = draw.choice([each for each in segment.blocks() if each.size > 512])
        front = split_front(block, 512 * draw.randrange(1, block.size // 512))
        assert front.next is block and front.split and block.split
        tile(segment)
    while segment.first.next is not None:
        block = draw.choice(list(segment.blocks())[1:])
        assert block.previous is not None
        if draw.random() < 0.5:
            join_front(block, block.previous)
        else:
            coalesce(*draw.sample([block, block.previous], 2))
        tile(segment)
    assert (segment.first.offset, segment.first.size) == (0, 64 * 512)


def tile(segment: Segment) -> None:
    at, before = 0, None
    for block in segment.blocks():
        assert block.previous is before and (block.offset, block.pointer) == (at, segment.pointer + at)
        at, before = at + block.size, block
    assert at == segment.size


def test_a_merged_block_may_hold_the_data_of_both() -> None:
    assert [merged_owner(*pair) for pair in ((3, 3), (3, CLEAN), (CLEAN, 3), (3, 4), (MIXED, 3), (CLEAN, CLEAN))] == [
        3, 3, 3, MIXED, MIXED, CLEAN,
    ]  # fmt: skip


def test_the_smallest_block_that_is_large_enough_is_found_at_the_lowest_address(seed: int) -> None:
    draw = random.Random(seed)
    free_list = Pool(is_small=True).free_list(0)
    free: list[Block] = []
    for at in range(400):
        if free and draw.random() < 0.4:
            size = 512 * draw.randrange(1, 40)
            fits = [block for block in free if block.size >= size]
            found = free_list.best_fit(size)
            assert found is min(fits, key=lambda block: (block.size, block.pointer), default=None)
            if found is not None:
                free_list.remove(found)
                free.remove(found)
        else:
            block = make_block(512 * draw.randrange(1, 40), (1 << 40) + draw.randrange(1 << 20) * 1024 + at)
            free_list.add(block)
            free.append(block)
    assert list(free_list.blocks()) == sorted(free, key=lambda block: (block.size, block.pointer))


def test_a_block_is_done_with_its_last_event_and_slow_streams_hold_up_no_others() -> None:
    upstream = SimulatedUpstream(0)
    queue = EventQueue(upstream)
    one, both, other = (make_block(512, at << 20) for at in (1, 2, 3))
    queue.insert(one, {1})
    queue.insert(both, {1, 2})
    queue.insert(other, {2})
    assert list(queue.completed()) == [] and one in queue
    upstream.unfinished -= {1, 2}
    assert list(queue.completed()) == [one] and one not in queue and both in queue
    upstream.unfinished.clear()
    assert list(queue.completed()) == [both, other] and not queue


class Steps:
    """Notes what is tried, in order, to serve a request that cannot be served."""

    def __init__(self, allocator: CachingAllocator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[str] = []
        self._note(allocator.heap, "cached", monkeypatch)
        for name in ("collect_garbage", "obtain", "release_available", "release_all"):
            self._note(allocator.core.segments, name, monkeypatch)
        self._note(allocator.core, "await_events", monkeypatch)

    def _note(self, part: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        step = getattr(part, name)

        def noted(*args: Any, **options: Any) -> Any:
            self.taken.append(name + ("_again" if options else ""))
            return step(*args, **options)

        monkeypatch.setattr(part, name, noted)


@pytest.mark.parametrize("spares", [False, True])
@pytest.mark.parametrize("holds_oversize", [False, True])
def test_room_is_made_in_pytorchs_order(monkeypatch: pytest.MonkeyPatch, spares: bool, holds_oversize: bool) -> None:
    config = AllocatorConfig(max_split_size=20 * MIB, garbage_collection_threshold=0.99)
    allocator = CachingAllocator(SimulatedUpstream(100 * MIB), config)
    if holds_oversize:
        allocator.free(allocator.allocate(40 * MIB, 0))
    held = allocator.allocate(60 * MIB, 0)
    steps = Steps(allocator, monkeypatch)
    allocator.free_memory_callbacks.append(lambda: steps.taken.append("ask_holders") or spares)  # type: ignore[func-returns-value]
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(70 * MIB, 0)
    first = ["cached", "ask_holders", *(["cached"] if spares else []), "collect_garbage", "obtain", "release_available"]
    assert steps.taken == [*first, "await_events", "release_all", "obtain_again"]
    assert allocator.memory_stats()["num_alloc_retries"] == allocator.memory_stats()["num_ooms"] == 1
    allocator.free(held)
    steps.taken.clear()
    allocator.free(allocator.allocate(90 * MIB, 0))
    assert steps.taken == ["cached", "ask_holders", *(["cached"] if spares else []), "collect_garbage", "obtain",
                           "release_available", "await_events", "release_all", "obtain_again"]  # fmt: skip


def test_enough_oversize_blocks_are_given_back_before_all_others() -> None:
    upstream = SimulatedUpstream(100 * MIB)
    allocator = CachingAllocator(upstream, AllocatorConfig(max_split_size=20 * MIB))
    for block in [allocator.allocate(size * MIB, 0) for size in (5, 50, 30)]:
        allocator.free(block)
    allocator.free(allocator.allocate(60 * MIB, 0))
    assert sorted(upstream.live.values()) == [20 * MIB, 60 * MIB], "the small one stays"
    assert allocator.memory_stats()["num_alloc_retries"] == 0
