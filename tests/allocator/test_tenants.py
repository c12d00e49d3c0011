"""What sessions may do to the cache that they share, and that nothing of it outlives them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from server.allocator import AllocatorConfig, Block, CachingAllocator, SimulatedUpstream
from server.allocator.core.sizes import MIB
from server.allocator.reports.history import MOST_ENTRIES_OF_A_SESSION
from telegrad_protocol.errors import ArgumentError, OutOfMemoryError


@pytest.fixture
def upstream() -> SimulatedUpstream:
    return SimulatedUpstream(200 * MIB)


@pytest.fixture(params=[False, True], ids=["segments", "expandable"])
def allocator(upstream: SimulatedUpstream, request: pytest.FixtureRequest) -> Iterator[CachingAllocator]:
    allocator = CachingAllocator(upstream, AllocatorConfig(expandable_segments=request.param), device="cuda:0")
    yield allocator
    allocator.abandon(1)
    allocator.empty_cache()
    assert not upstream.live and not upstream.reserved


def test_raw_memory_is_given_back_by_who_has_it(allocator: CachingAllocator) -> None:
    pointer = allocator.caching_allocator_alloc(5000, 3, 1)
    assert allocator.allocated_bytes(1) == 5120
    for thief, address in ((2, pointer), (1, pointer + 512)):
        with pytest.raises(ArgumentError, match="no memory was allocated at 0x"):
            allocator.caching_allocator_delete(address, thief)
    allocator.caching_allocator_delete(pointer, 1)
    assert allocator.allocated_bytes() == 0
    with pytest.raises(ArgumentError, match="0 bytes"):
        allocator.caching_allocator_alloc(0)


def test_a_private_pool_shares_nothing(allocator: CachingAllocator, upstream: SimulatedUpstream) -> None:
    allocator.free(allocator.allocate(5 * MIB, 0, 1))
    allocator.free(allocator.allocate(1000, 0, 1))
    pool = allocator.new_mem_pool(1)
    with allocator.use_mem_pool(pool, 1):
        blocks = [allocator.allocate(nbytes, 0, 1) for nbytes in (5 * MIB, 1000, 1000)]
        other = allocator.allocate(5 * MIB, 0, 2)
        with pytest.raises(ArgumentError, match="in use already"):
            allocator.begin_allocate_to_pool(pool, 1)
    assert {block.segment.pool.identity for block in blocks} == {pool.id} and other.segment.pool.identity == (0, 0)
    key = "reserved_bytes_by_private_pools.{}_{}.{}.current"
    stats = allocator.memory_stats()
    assert stats[key.format(*pool.id, "all")] == 22 * MIB and stats[key.format(*pool.id, "small_pool")] == 2 * MIB
    identities = [segment["segment_pool_id"] for segment in allocator.memory_snapshot()["segments"]]
    assert identities.count(pool.id) == 2
    for block in (*blocks, other):
        allocator.free(block)
    held = allocator.memory_stats()["reserved_bytes.all.current"]
    common = allocator.allocate(5 * MIB, 0, 1)
    assert common.segment.pool.identity == (0, 0)
    allocator.free(common)
    allocator.empty_cache()
    assert (held, allocator.memory_stats()["reserved_bytes.all.current"]) == (44 * MIB, 22 * MIB)
    allocator.release_mem_pool(pool)
    assert allocator.memory_stats()["reserved_bytes.all.current"] == 0
    assert not any("private" in key for key in allocator.memory_stats())
    with pytest.raises(ArgumentError, match="there is no pool"):
        allocator.mem_pool(pool.id, 1)


def test_no_event_is_recorded_while_a_session_captures_into_its_pool(
    allocator: CachingAllocator, upstream: SimulatedUpstream
) -> None:
    pool = allocator.new_mem_pool(1)
    allocator.begin_allocate_to_pool(pool, 1)
    block = allocator.allocate(1000, 0, 1)
    allocator.record_stream(block, 5)
    allocator.free(block)
    allocator.free(allocator.allocate(1000, 0, 2))
    assert not upstream.unfinished and allocator.allocated_bytes(1) == 1024
    states = [block["state"] for segment in allocator.memory_snapshot()["segments"] for block in segment["blocks"]]
    assert "active_awaiting_free" in states
    allocator.end_allocate_to_pool(1)
    assert len(upstream.unfinished) == 1 and allocator.allocated_bytes(1) == 1024
    upstream.finish_events()
    allocator.free(allocator.allocate(1000, 0, 2))
    assert allocator.allocated_bytes(1) == 0
    allocator.release_mem_pool(pool)


def test_memory_of_a_released_pool_goes_when_its_last_block_does(allocator: CachingAllocator) -> None:
    before = allocator.memory_stats()
    pool = allocator.new_mem_pool(1)
    with allocator.use_mem_pool(pool, 1):
        blocks = [allocator.allocate(1000, 0, 1) for _ in range(3)]
    allocator.release_mem_pool(pool)
    allocator.free(blocks.pop(1))
    assert allocator.memory_stats()["reserved_bytes.all.current"] == 2 * MIB
    for block in blocks:
        allocator.free(block)
    allocator.empty_cache()
    after = allocator.memory_stats()
    assert not allocator.heap.private
    current = [key for key in after if key.endswith(".current")]
    assert {key: after[key] for key in current} == {key: before[key] for key in current}
    for name in ("allocation", "inactive_split", "inactive_split_bytes", "requested_bytes"):
        assert after[f"{name}.all.allocated"] == after[f"{name}.all.freed"]


def test_a_session_may_only_tighten_its_limit(allocator: CachingAllocator) -> None:
    allocator.set_quota(1, 50 * MIB)
    allocator.set_session_fraction(0.1, 1)
    assert allocator.session_fraction(1) == pytest.approx(0.1)
    with pytest.raises(OutOfMemoryError, match=r"quota 20\.00 MiB"):
        allocator.allocate(21 * MIB, 0, 1)
    allocator.set_session_fraction(1.0, 1)
    with pytest.raises(OutOfMemoryError, match=r"quota 50\.00 MiB"):
        allocator.allocate(51 * MIB, 0, 1)
    allocator.free(allocator.allocate(51 * MIB, 0, 2))
    with pytest.raises(ArgumentError, match="fraction"):
        allocator.set_session_fraction(1.5, 1)


def test_a_session_empties_its_own_part_of_the_cache_and_waits_for_nobody() -> None:
    upstream = SimulatedUpstream(400 * MIB)
    allocator = CachingAllocator(upstream)
    for owner, stream in ((1, 7), (2, 8), (1, 0), (2, 0)):
        blocks = [allocator.allocate((20 + 10 * owner) * MIB, stream, owner) for _ in range(2)]
        allocator.free(blocks.pop())
        allocator.record_stream(blocks[0], 9)
        allocator.free(blocks[0])
    assert len(allocator.heap.segments) == 8 and len(upstream.unfinished) == 4
    allocator.empty_own_cache(1, 7)
    left = sorted((segment.stream, segment.first.owner) for segment in allocator.heap.segments.values())
    assert left == [(0, 1), (0, 1), (0, 2), (0, 2), (7, 1), (8, 2), (8, 2)]
    upstream.finish_events()
    allocator.empty_own_cache(1, 0)
    left = sorted((segment.stream, segment.first.owner) for segment in allocator.heap.segments.values())
    assert left == [(0, 2), (0, 2), (7, 1), (8, 2), (8, 2)]
    assert allocator.memory_stats()["num_sync_all_streams"] == 0


def test_a_session_records_its_own_history(allocator: CachingAllocator) -> None:
    allocator.record_memory_history("all", 10**9, owner=1, skip_actions=["free_requested"])
    blocks = [allocator.allocate(1000, 0, owner) for owner in (1, 2, 1)]
    for block in blocks:
        allocator.free(block)
    trace = allocator.memory_snapshot(1)["device_traces"][0]
    assert [entry["action"] for entry in trace] == ["alloc", "alloc", "free_completed", "free_completed", "snapshot"]
    assert allocator.memory_snapshot()["device_traces"] == [[]]
    assert allocator.history.rings[1].entries.maxlen == MOST_ENTRIES_OF_A_SESSION
    allocator.abandon(1)
    assert not allocator.history.is_wanted


def test_what_a_session_holds_goes_with_it(allocator: CachingAllocator) -> None:
    allocator.caching_allocator_alloc(1000, 0, 1)
    pool = allocator.new_mem_pool(1)
    allocator.begin_allocate_to_pool(pool, 1)
    allocator.caching_allocator_alloc(5 * MIB, 0, 1)
    allocator.abandon(1)
    assert allocator.allocated_bytes(1) == 0 and not allocator.heap.private
    allocator.end_session(1)
    assert allocator.memory_stats(1)["allocation.all.allocated"] == 0


def test_sessions_of_a_group_never_hold_more_than_its_limit(
    allocator: CachingAllocator, seed: int
) -> None:  # fmt: skip
    """Whatever is in use by whom, a request is refused exactly where it is beyond the limit, or the session's own."""
    rng = random.Random(seed)
    limit, own = 100 * MIB, 70 * MIB
    for owner in (1, 2, 3):
        allocator.set_quota(owner, own if owner == 3 else None)
        allocator.join_group(owner, "alice", limit)
    held: dict[int, list[Block]] = {1: [], 2: [], 3: [], 4: []}
    refused = 0
    for _ in range(600):
        owner = rng.choice((1, 2, 3, 4))
        if held[owner] and rng.random() < 0.45:
            allocator.free(held[owner].pop(rng.randrange(len(held[owner]))))
            continue
        nbytes = rng.choice((700, 3 * MIB, 12 * MIB, 30 * MIB))
        size = -(-nbytes // 512) * 512
        mine = sum(block.size for block in held[owner])
        together = sum(block.size for member in (1, 2, 3) for block in held[member])
        fits = owner == 4 or (together + size <= limit and (owner != 3 or mine + size <= own))
        if owner == 4 and mine + size > 20 * MIB:
            continue
        try:
            held[owner].append(allocator.allocate(nbytes, 0, owner))
        except OutOfMemoryError as error:
            if fits:  # a cached block may be larger than what was asked for
                assert together + 1.5 * size > limit or (owner == 3 and mine + 1.5 * size > own), str(error)
            refused += 1
        else:
            in_use = sum(allocator.allocated_bytes(member) for member in (1, 2, 3))
            assert fits and in_use <= limit and allocator.allocated_bytes(3) <= own
    assert refused > 20
    assert allocator.session_fraction(3) == own / (200 * MIB) and allocator.session_fraction(4) == 1.0
    for owner, blocks in held.items():
        for block in blocks:
            allocator.free(block)
        allocator.abandon(owner)
        allocator.end_session(owner)


def test_what_a_session_of_a_group_leaves_is_for_the_others(allocator: CachingAllocator) -> None:
    for owner in (2, 3):
        allocator.join_group(owner, "alice", 40 * MIB)
    block = allocator.allocate(40 * MIB, 0, 2)
    with pytest.raises(OutOfMemoryError, match=r"quota 40\.00 MiB"):
        allocator.allocate(1000, 0, 3)
    allocator.free(block)
    allocator.end_session(2)
    allocator.free(allocator.allocate(40 * MIB, 0, 3))
    allocator.end_session(3)
    allocator.free(allocator.allocate(60 * MIB, 0, 2))
