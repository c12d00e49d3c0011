"""Memory that lies apart: of one stream, in segments of its own, and never where it would displace something."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server.allocator import AllocatorConfig, Block, CachingAllocator, SimulatedUpstream
from server.allocator.core.block import apart, stream_of
from server.allocator.core.sizes import MIB

STREAM = 5


@pytest.fixture
def upstream() -> SimulatedUpstream:
    return SimulatedUpstream(100 * MIB)


@pytest.fixture(params=[False, True], ids=["segments", "expandable"])
def allocator(upstream: SimulatedUpstream, request: pytest.FixtureRequest) -> Iterator[CachingAllocator]:
    allocator = CachingAllocator(upstream, AllocatorConfig(expandable_segments=request.param))
    yield allocator
    allocator.empty_cache()
    assert not upstream.live and not upstream.reserved


def _free_all(allocator: CachingAllocator, *blocks: Block) -> None:
    for block in blocks:
        allocator.free(block)


@pytest.mark.parametrize("stream", [0, 1, 2, 0x7F0012345678])
def test_a_number_for_what_lies_apart_tells_its_stream(stream: int) -> None:
    assert apart(stream) != stream and apart(apart(stream)) == apart(stream)
    assert stream_of(apart(stream)) == stream_of(stream) == stream


def test_what_lies_apart_shares_no_segment_with_the_rest_of_its_stream(allocator: CachingAllocator) -> None:
    sizes = (1000, 5 * MIB) * 3
    beside = [allocator.allocate(nbytes, STREAM, 1) for nbytes in sizes]
    blocks = [allocator.allocate(nbytes, apart(STREAM), 1) for nbytes in sizes]
    assert not {block.segment for block in blocks} & {block.segment for block in beside}
    _free_all(allocator, *beside)
    again = [allocator.allocate(nbytes, apart(STREAM), 1) for nbytes in sizes]
    assert not {block.segment for block in again} & {block.segment for block in beside}
    _free_all(allocator, *blocks, *again)
    last = [allocator.allocate(nbytes, STREAM, 1) for nbytes in sizes]
    assert {block.segment for block in last} <= {block.segment for block in beside}
    _free_all(allocator, *last)


def test_people_see_the_stream_and_work_on_it_holds_nothing_back(allocator: CachingAllocator) -> None:
    allocator.record_memory_history()
    block = allocator.allocate(1000, apart(STREAM), 1)
    allocator.record_stream(block, STREAM)
    allocator.free(block)
    assert block.is_free, "the stream that uses it is the one that it was asked for on"
    snapshot = allocator.memory_snapshot()
    assert {segment["stream"] for segment in snapshot["segments"]} == {STREAM}
    entries = [entry for trace in snapshot["device_traces"] for entry in trace if entry["action"] != "snapshot"]
    assert {entry["stream"] for entry in entries} == {STREAM}
    allocator.record_memory_history(None)


def test_memory_is_zeroed_for_the_next_session_on_the_stream(
    allocator: CachingAllocator, upstream: SimulatedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[int] = []
    monkeypatch.setattr(upstream, "zero", lambda segment, offset, nbytes, stream: streams.append(stream))
    allocator.free(allocator.allocate(1000, apart(STREAM), 1))
    allocator.free(allocator.allocate(1000, apart(STREAM), 2))
    assert streams == [STREAM]


def test_a_full_device_serves_it_from_the_rest_and_takes_back_what_is_free(allocator: CachingAllocator) -> None:
    held = allocator.allocate(60 * MIB, STREAM, 1)
    allocator.free(allocator.allocate(40 * MIB, STREAM, 1))
    inside = allocator.allocate(40 * MIB, apart(STREAM), 1)
    assert inside.stream == STREAM, "nothing was given back for it, since there was room on its stream"
    _free_all(allocator, held, inside)
    allocator.empty_cache()
    allocator.free(allocator.allocate(60 * MIB, apart(STREAM), 1))
    beside = allocator.allocate(60 * MIB, STREAM, 1)
    assert beside.stream == STREAM, "what is free apart goes back to the device"
    allocator.free(beside)


def test_a_session_may_give_back_what_lies_apart_of_its_own_stream(
    allocator: CachingAllocator, upstream: SimulatedUpstream
) -> None:
    _free_all(allocator, allocator.allocate(5 * MIB, apart(STREAM), 1), allocator.allocate(5 * MIB, apart(0), 2))
    before = allocator.memory_stats()["reserved_bytes.all.current"]
    allocator.empty_own_cache(1, STREAM)
    assert 0 < allocator.memory_stats()["reserved_bytes.all.current"] < before
