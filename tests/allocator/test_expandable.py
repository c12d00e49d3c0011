"""Expandable segments: the same addresses and statistics as the plain reference, and memory only where it is needed."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch.cuda._memory_viz as viz

from server.allocator import AllocatorConfig, CachingAllocator, HostUpstream, SimulatedUpstream
from server.allocator.core.sizes import MIB
from telegrad_protocol.errors import OutOfMemoryError
from tests.allocator.reference import OutOfMemory, ReferenceAllocator

EXPANDABLE = AllocatorConfig(expandable_segments=True)


@pytest.mark.parametrize("seed", range(8))
def test_a_trace_is_served_as_by_the_reference(seed: int) -> None:
    draw = random.Random(seed)
    upstream = SimulatedUpstream(120 * MIB)
    allocator = CachingAllocator(upstream, EXPANDABLE)
    reference = ReferenceAllocator(120 * MIB, EXPANDABLE, None)
    sizes = [draw.choice([512, 4096, 65_536, MIB, 3 * MIB, 9 * MIB, 24 * MIB]) for _ in range(6)]
    live: list = []
    for step in range(1500):
        choice = draw.random()
        if live and choice < len(live) / 20:
            block, stretch, piece = live.pop(draw.choice([-1, -1, 0, draw.randrange(len(live))]))
            allocator.free(block)
            reference.free(stretch, piece)
        elif choice > 0.985:
            allocator.empty_cache()
            reference.release_all()
        else:
            nbytes, stream = draw.choice([*sizes, draw.randrange(1, 30 * MIB)]), draw.choice([0, 0, 0, 8])
            try:
                pointer, stretch, piece = reference.allocate(nbytes, stream)
            except OutOfMemory:
                with pytest.raises(OutOfMemoryError):
                    allocator.allocate(nbytes, stream, 1)
                continue
            block = allocator.allocate(nbytes, stream, 1)
            assert (block.pointer, block.size) == (pointer, piece.size), step
            live.append((block, stretch, piece))
        expected, found = reference.table(), allocator.memory_stats()
        assert {key: found[key] for key in expected} == expected, step
        assert sum(upstream.live.values()) == found["reserved_bytes.all.current"]
    for block, _, _ in live:
        allocator.free(block)
    allocator.empty_cache()
    assert upstream.live == upstream.reserved == {}


def test_one_segment_grows_where_several_would_be_needed() -> None:
    device = SimulatedUpstream(200 * MIB)
    plain, growing = CachingAllocator(SimulatedUpstream(200 * MIB)), CachingAllocator(device, EXPANDABLE)
    for allocator in (plain, growing):
        for size in range(12, 90, 6):
            allocator.free(allocator.allocate(size * MIB))
    stats = growing.memory_stats()
    assert len(device.reserved) == 1 and stats["reserved_bytes.all.peak"] == 100 * MIB
    assert stats["num_alloc_retries"] == 0 < plain.memory_stats()["num_alloc_retries"]


def test_pages_in_the_middle_are_given_back_and_the_snapshot_shows_the_stretches() -> None:
    allocator = CachingAllocator(SimulatedUpstream(400 * MIB), EXPANDABLE, device="cuda:0")
    allocator.record_memory_history()
    blocks = [allocator.allocate(30 * MIB, 0, 1) for _ in range(4)]
    allocator.free(blocks[1])
    allocator.free(blocks[2])
    allocator.empty_cache()
    snapshot = allocator.memory_snapshot()
    assert [segment["total_size"] // MIB for segment in snapshot["segments"]] == [40, 40]
    assert all(segment["is_expandable"] for segment in snapshot["segments"])
    states = [[block["state"] for block in segment["blocks"]] for segment in snapshot["segments"]]
    assert states == [["active_allocated", "inactive"], ["inactive", "active_allocated"]]
    actions = [entry["action"] for entry in snapshot["device_traces"][0]]
    assert (actions.count("segment_map"), actions.count("segment_unmap")) == (4, 1)
    for page in (viz.trace_plot(snapshot), viz.segment_plot(snapshot)):
        assert page.lstrip().startswith("<!DOCTYPE html>")
    again = allocator.allocate(35 * MIB, 0, 1)
    assert again.pointer == blocks[0].pointer + 30 * MIB


def test_a_host_has_expandable_segments_too() -> None:
    upstream = HostUpstream(limit=64 * MIB)
    allocator = CachingAllocator(upstream, EXPANDABLE)
    blocks = [allocator.allocate(size * MIB, owner=1) for size in (3, 25)]
    assert upstream.obtained == 40 * MIB
    for at, block in enumerate(blocks):
        array = np.ndarray((block.size,), np.uint8, block.segment.buffer, block.offset)
        assert array.ctypes.data == block.pointer and not array.any()
        array[:] = at + 1
        del array
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(40 * MIB, owner=1)
    for block in blocks:
        allocator.free(block)
    allocator.empty_cache()
    assert upstream.obtained == 0 and not allocator.heap.segments
    block = allocator.allocate(25 * MIB, owner=2)
    assert not np.ndarray((block.size,), np.uint8, block.segment.buffer, block.offset).any()


def test_pages_that_came_back_are_zeroed_for_the_next_session() -> None:
    upstream = SimulatedUpstream(100 * MIB)
    allocator = CachingAllocator(upstream, EXPANDABLE)
    allocator.free(allocator.allocate(4 * MIB, owner=1))
    allocator.empty_cache()
    block = allocator.allocate(4 * MIB, owner=2)
    assert upstream.zeroed == [(block.pointer, 4 * MIB, 0)]


def test_a_block_before_a_gap_is_kept_for_larger_requests() -> None:
    allocator = CachingAllocator(SimulatedUpstream(400 * MIB), EXPANDABLE)
    inner, _, both = [allocator.allocate(size * MIB, owner=1) for size in (22, 18, 40)]
    allocator.free(both)
    edge, last = [allocator.allocate(20 * MIB, owner=1) for _ in range(2)]
    pointer = inner.pointer
    allocator.free(last)
    allocator.empty_cache()
    allocator.free(inner)
    allocator.free(edge)
    assert allocator.allocate(15 * MIB, owner=1).pointer == pointer
