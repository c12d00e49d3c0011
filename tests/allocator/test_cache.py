"""What the engine relies on: blocks, accounts, quotas, zeroed memory, waiting streams, recovery."""

from __future__ import annotations

import random

import numpy as np
import pytest

from server.allocator import AllocatorConfig, CachingAllocator, HostUpstream, SimulatedUpstream
from server.allocator.core import block as blocks
from server.allocator.core.ownership import MIXED, OwnerMap
from server.allocator.core.sizes import MIB
from telegrad_protocol.errors import ArgumentError, InternalError, OutOfMemoryError
from tests.allocator.reference import FREE, ReferenceAllocator


@pytest.fixture
def upstream() -> SimulatedUpstream:
    return SimulatedUpstream(100 * MIB)


@pytest.fixture
def allocator(upstream: SimulatedUpstream) -> CachingAllocator:
    return CachingAllocator(upstream, device="cuda:0")


def test_an_array_lies_in_a_block_of_the_host() -> None:
    upstream = HostUpstream()
    allocator = CachingAllocator(upstream)
    blocks = [allocator.allocate(4096, owner=1) for _ in range(3)]
    arrays = [np.ndarray((32, 32), np.float32, block.segment.buffer, block.offset) for block in blocks]
    for at, (block, array) in enumerate(zip(blocks, arrays)):
        assert array.ctypes.data == block.pointer and block.pointer % 64 == 0
        assert not array.any()
        array[:] = at
    assert [array.mean() for array in arrays] == [0, 1, 2]
    for block in blocks:
        allocator.free(block)
    assert upstream.obtained == 2 * MIB
    allocator.empty_cache()
    assert upstream.obtained == 0
    arrays[0][:] = 5  # an array outlives its segment


def test_the_host_has_a_limit() -> None:
    allocator = CachingAllocator(HostUpstream(limit=30 * MIB))
    with pytest.raises(OutOfMemoryError, match=r"wanted 32\.00 MiB.*the limit is 30\.00 MiB"):
        allocator.allocate(32 * MIB)
    allocator.free(allocator.allocate(30 * MIB))
    allocator.free(allocator.allocate(12 * MIB))
    allocator.free(allocator.allocate(30 * MIB))


def test_a_block_of_nothing_costs_nothing(allocator: CachingAllocator, upstream: SimulatedUpstream) -> None:
    block = allocator.allocate(0, 3, 1)
    assert block is allocator.allocate(0) and (block.size, block.offset) == (0, 0)
    np.ndarray((0, 3), np.float32, block.segment.buffer, block.offset)
    allocator.record_stream(block, 1)
    allocator.free(block)
    allocator.free(block)
    assert upstream.live == {} and allocator.memory_stats()["allocation.all.allocated"] == 0
    with pytest.raises(ArgumentError, match="-1 bytes"):
        allocator.allocate(-1)


def test_a_block_freed_twice_is_a_defect(allocator: CachingAllocator) -> None:
    one, two, three = [allocator.allocate(1000) for _ in range(3)]
    allocator.free(one)
    with pytest.raises(InternalError, match="freed twice"):
        allocator.free(one)
    allocator.free(two)  # absorbs one
    with pytest.raises(InternalError, match="freed twice"):
        allocator.free(one)
    allocator.record_stream(three, 9)
    allocator.free(three)
    with pytest.raises(InternalError, match="freed twice"):
        allocator.free(three)


def test_a_block_used_on_another_stream_returns_after_its_events(
    allocator: CachingAllocator, upstream: SimulatedUpstream
) -> None:
    block = allocator.allocate(1000, stream=1)
    allocator.record_stream(block, 1)
    allocator.record_stream(block, 2)
    allocator.record_stream(block, 3)
    pointer = block.pointer
    allocator.free(block)
    stats = allocator.memory_stats()
    assert (stats["allocation.all.current"], stats["active.all.current"]) == (0, 1)
    first, second = sorted(upstream.unfinished)
    upstream.unfinished.discard(first)
    other = allocator.allocate(1000, stream=1)
    assert other.pointer != pointer
    upstream.unfinished.discard(second)
    assert allocator.allocate(1000, stream=1).pointer == pointer


def test_streams_do_not_share_blocks(allocator: CachingAllocator) -> None:
    block = allocator.allocate(1000, stream=1)
    pointer = block.pointer
    allocator.free(block)
    assert allocator.allocate(1000, stream=2).pointer != pointer
    assert allocator.allocate(1000, stream=1).pointer == pointer


def test_out_of_memory_says_where_the_memory_is_and_leaves_the_state_intact(allocator: CachingAllocator) -> None:
    mine = allocator.allocate(30 * MIB, owner=1)
    allocator.allocate(40 * MIB, owner=2)
    allocator.free(allocator.allocate(10 * MIB, owner=1))
    allocator.set_quota(1, 90 * MIB)
    before = allocator.memory_stats()
    with pytest.raises(OutOfMemoryError) as caught:
        allocator.allocate(50 * MIB, owner=1)
    message = str(caught.value)
    for part in ("on cuda:0", "wanted 50.00 MiB", "this session holds 30.00 MiB", "quota 90.00 MiB",
                 "others hold 40.00 MiB", "0 bytes of 70.00 MiB reserved are cached", "the limit is 100.00 MiB",
                 "the largest free block is 30.00 MiB"):  # fmt: skip
        assert part in message
    after = allocator.memory_stats()
    changed = {key for key in after if after[key] != before[key]}
    assert {key.split(".")[0] for key in changed} <= {
        "num_ooms", "num_alloc_retries", "num_sync_all_streams", "num_device_free", "segment", "reserved_bytes",
    }  # fmt: skip
    allocator.free(mine)
    assert allocator.allocate(50 * MIB, owner=1).size == 50 * MIB


def test_who_holds_memory_that_it_can_spare_is_asked_first(allocator: CachingAllocator) -> None:
    spare = [allocator.allocate(60 * MIB)]

    def reclaim() -> bool:
        while spare:
            allocator.free(spare.pop())
            return True
        return False

    allocator.free_memory_callbacks.append(reclaim)
    allocator.allocate(60 * MIB)
    assert allocator.memory_stats()["num_device_alloc"] == 1


def test_a_quota_holds_to_the_byte_and_only_for_its_session(allocator: CachingAllocator) -> None:
    allocator.set_quota(1, 10 * 512)
    blocks = [allocator.allocate(512, owner=1) for _ in range(10)]
    for _ in range(3):
        with pytest.raises(OutOfMemoryError, match=r"session quota exceeded.*wanted 512 bytes.*holds 5\.00 KiB"):
            allocator.allocate(1, owner=1)
    allocator.allocate(MIB, owner=2)
    allocator.free(blocks.pop())
    blocks.append(allocator.allocate(512, owner=1))
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(512, owner=1)
    allocator.set_quota(1, None)
    allocator.allocate(512, owner=1)
    assert allocator.memory_stats(1)["num_oom_rejections"] == 4
    assert allocator.memory_stats(1)["num_ooms"] == allocator.memory_stats()["num_ooms"] == 0


def test_a_quota_waits_for_what_other_streams_still_use(allocator: CachingAllocator) -> None:
    allocator.set_quota(1, 1024)
    block = allocator.allocate(1024, owner=1)
    allocator.record_stream(block, 4)
    allocator.free(block)
    allocator.allocate(1024, owner=1)


def test_memory_is_zeroed_when_it_changes_hands_and_only_then(
    allocator: CachingAllocator, upstream: SimulatedUpstream
) -> None:
    for _ in range(3):
        allocator.free(allocator.allocate(1000, 5, owner=1))
    assert upstream.zeroed == []
    block = allocator.allocate(1000, 5, owner=2)
    assert upstream.zeroed == [(block.pointer, 1024, 5)]
    allocator.free(block)
    allocator.free(allocator.allocate(1000, 5, owner=0))
    assert len(upstream.zeroed) == 1, "the server reads nobody's data"
    allocator.free(allocator.allocate(1000, 5, owner=2))
    assert len(upstream.zeroed) == 2, "the server's data may be anybody's"


def test_merged_blocks_and_returned_segments_are_zeroed_too(
    allocator: CachingAllocator, upstream: SimulatedUpstream
) -> None:
    blocks = [allocator.allocate(512, owner=owner) for owner in (1, 2)]
    for block in blocks:
        allocator.free(block)
    allocator.free(allocator.allocate(1024, owner=1))
    rest = 2 * MIB - 1024
    assert [size for _, size, _ in upstream.zeroed] == [1024, rest], "what remains is taken over with the part"
    allocator.empty_cache()
    allocator.allocate(2048, owner=2)
    assert [size for _, size, _ in upstream.zeroed[2:]] == [2048]


@pytest.mark.parametrize("nbytes", [16_384, 3 * MIB])
def test_a_session_zeroes_what_others_left_once(
    allocator: CachingAllocator, upstream: SimulatedUpstream, nbytes: int
) -> None:
    def use(owner: int) -> None:
        blocks = [allocator.allocate(nbytes, 5, owner=owner) for _ in range(5)]
        for block in blocks:
            allocator.free(block)

    use(1)
    assert upstream.zeroed == []
    for _ in range(2):
        use(2)
    before = len(upstream.zeroed)
    assert before
    for _ in range(10):
        use(2)
    assert len(upstream.zeroed) == before


def test_ranges_of_a_segment_are_claimed_and_merged() -> None:
    draw = random.Random(11)
    ranges, owners = OwnerMap(), [MIXED] * 64
    for _ in range(2000):
        begin = draw.randrange(64)
        end, owner = draw.randrange(begin + 1, 65), draw.randrange(3)
        foreign = {place for offset, size in ranges.claim(begin, end, owner) for place in range(offset, offset + size)}
        assert foreign == {place for place in range(begin, end) if owners[place] != owner}
        owners[begin:end] = [owner] * (end - begin)
        assert len(ranges) <= 65


def test_no_session_reads_what_another_wrote() -> None:
    allocator = CachingAllocator(HostUpstream())
    draw = random.Random(7)
    live: list = []
    for step in range(3000):
        owner = draw.randrange(1, 4)
        block = allocator.allocate(draw.choice([100, 512, 5000, 70_000]), owner=owner)
        view = block.segment.buffer[block.offset : block.offset + block.size]
        assert set(np.unique(view)) <= {0, owner}, step
        view[:] = owner
        live.append(block)
        while len(live) > draw.randrange(20):
            allocator.free(live.pop(draw.randrange(len(live))))


def test_a_session_that_ended_holds_nothing(allocator: CachingAllocator) -> None:
    block = allocator.allocate(1000, owner=1)
    assert allocator.allocated_bytes(1) == 1024
    with pytest.raises(InternalError, match="session 1 ended holding 1024 bytes"):
        allocator.end_session(1)
    allocator.free(block)
    allocator.end_session(1)
    allocator.end_session(1)
    assert allocator.allocated_bytes(1) == allocator.allocated_bytes() == 0
    assert allocator.memory_stats()["allocation.all.allocated"] == 1


def test_the_memory_fraction_limits_what_is_reserved(allocator: CachingAllocator) -> None:
    allocator.set_memory_fraction(0.5)
    allocator.allocate(50 * MIB)
    with pytest.raises(OutOfMemoryError, match=r"the limit is 50\.00 MiB"):
        allocator.allocate(1)
    with pytest.raises(ArgumentError, match="fraction"):
        allocator.set_memory_fraction(1.5)
    config = AllocatorConfig(per_process_memory_fraction=0.25)
    assert CachingAllocator(SimulatedUpstream(100), config).heap.limit_bytes == 25


@pytest.mark.parametrize("seed", range(4))
def test_a_training_like_trace_is_served_as_by_the_reference(seed: int) -> None:
    """Few sizes, again and again, in waves: what the short way is made for."""
    draw = random.Random(seed)
    upstream = SimulatedUpstream(400 * MIB)
    allocator = CachingAllocator(upstream)
    reference = ReferenceAllocator(400 * MIB, AllocatorConfig(), None)
    sizes = [draw.choice([512, 4000, 65_536, MIB, 3 * MIB, 12 * MIB]) + draw.randrange(512) for _ in range(8)]
    live: list = []
    for _ in range(1500):
        if live and draw.random() < len(live) / 24:
            block, stretch, piece = live.pop(draw.choice([-1, -1, 0, draw.randrange(len(live))]))
            allocator.free(block)
            reference.free(stretch, piece)
        else:
            nbytes, stream = draw.choice(sizes), draw.choice([0, 0, 0, 8])
            pointer, stretch, piece = reference.allocate(nbytes, stream)
            block = allocator.allocate(nbytes, stream, 1 + stream)
            assert (block.pointer, block.size) == (pointer, piece.size)
            live.append((block, stretch, piece))
    expected, found = reference.table(), allocator.memory_stats()
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("eager_frees", [0, blocks.EAGER_FREES])
def test_what_is_merged_in_the_books_only_shows_nowhere(
    seed: int, expandable: bool, eager_frees: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small multiples of one size, last in first out: free pieces of all lengths meet sizes that fit them exactly."""
    monkeypatch.setattr(blocks, "EAGER_FREES", eager_frees)
    draw = random.Random(seed)
    config = AllocatorConfig(expandable_segments=expandable)
    allocator = CachingAllocator(SimulatedUpstream(100 * MIB), config)
    reference = ReferenceAllocator(100 * MIB, config, None)
    unit = draw.choice([512, 2 * MIB])
    live: list = []
    merged = 0
    for step in range(800):
        if live and draw.random() < len(live) / 12:
            block, stretch, piece = live.pop(draw.choice([-1, -1, -1, 0, draw.randrange(len(live))]))
            allocator.free(block)
            reference.free(stretch, piece)
        else:
            nbytes, owner = unit * draw.choice([1, 1, 1, 2, 3, 4]), draw.choice([1, 1, 1, 1, 2])
            pointer, stretch, piece = reference.allocate(nbytes, 0)
            block = allocator.allocate(nbytes, 0, owner)
            assert (block.pointer, block.size) == (pointer, piece.size), step
            live.append((block, stretch, piece))
        lists = [free_list for pool in allocator.heap.pools() for free_list in pool.free_lists.values()]
        merged += any(free_list.remainder_front is not free_list.remainder for free_list in lists)
        if draw.random() < 0.01:
            states = [
                block["state"] for segment in allocator.memory_snapshot()["segments"] for block in segment["blocks"]
            ]
            assert states.count("inactive") == sum(p.state == FREE for s in reference.stretches for p in s.pieces)
        expected, found = reference.table(), allocator.memory_stats()
        assert {key: found[key] for key in expected} == expected, step
    assert merged > 20 or eager_frees


def test_a_block_of_the_tails_size_does_not_hide_the_tail(allocator: CachingAllocator) -> None:
    sizes = (512, 512, 512, 512, 1024, MIB, MIB - 3072)
    _, one, two, _, other, *_ = [allocator.allocate(nbytes) for nbytes in sizes]
    allocator.free(two)
    allocator.free(one)
    (free_list,) = allocator.heap.small.free_lists.values()
    assert (free_list.remainder_front, free_list.remainder, free_list.remainder_size) == (one, two, 1024)
    pointer = one.pointer
    allocator.free(other)
    assert allocator.allocate(1024).pointer == pointer
