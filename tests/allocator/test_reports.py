"""What people look at is what PyTorch shows: statistics, summary, snapshot, history."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch.cuda._memory_viz as viz
import torch.cuda.memory as torch_memory

from server.allocator import AllocatorConfig, CachingAllocator, SimulatedUpstream
from server.allocator.core.sizes import MIB
from server.allocator.reports.snapshot import to_pickle
from telegrad_protocol.errors import ArgumentError, OutOfMemoryError

LINE = [{"filename": "train.py", "line": 12, "name": "add"}]


@pytest.fixture
def allocator() -> CachingAllocator:
    """Two sessions on a device of 256 MiB, with a block that waits for another stream."""
    allocator = CachingAllocator(
        SimulatedUpstream(256 * MIB), AllocatorConfig(max_split_size=24 * MIB), device="cuda:0"
    )
    allocator.history.locate = lambda: LINE
    allocator.record_memory_history()
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(1 << 40, 0, 1)
    blocks = [
        allocator.allocate(*request) for request in [(1000, 0, 1), (5000, 0, 1), (3 * MIB, 0, 2), (30 * MIB, 5, 2)]
    ]
    allocator.record_stream(blocks[1], 7)
    allocator.free(blocks[1])
    allocator.free(blocks[2])
    return allocator


def documented_keys() -> Iterator[str]:
    """The keys that PyTorch's own documentation of memory_stats lists."""
    for key, parts in re.findall(r'``"([a-z]\w+)((?:\.\{[a-z_,]+\})*)"``', torch_memory.memory_stats.__doc__ or ""):
        keys = [key.replace("allocated", "allocation", 1) if key == "allocated" else key]
        for choice in re.findall(r"\{([a-z_,]+)\}", parts):
            keys = [f"{key}.{each}" for key in keys for each in choice.split(",")]
        yield from keys


def test_every_documented_statistic_is_there(allocator: CachingAllocator) -> None:
    # There are no private pools yet, and the nested dictionary has an entry per pool.
    expected = set(documented_keys()) - {"reserved_bytes_by_private_pools"}
    assert len(expected) > 120
    assert expected <= set(allocator.memory_stats()) == set(allocator.memory_stats(1))
    assert allocator.memory_stats()["max_split_size"] == 24 * MIB
    assert CachingAllocator(SimulatedUpstream(0)).memory_stats()["max_split_size"] == -1


@pytest.mark.parametrize("abbreviated", [False, True])
def test_the_summary_is_pytorchs_but_for_its_title(
    allocator: CachingAllocator, abbreviated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stats(device: Any = None) -> dict[str, int]:
        return allocator.memory_stats()

    monkeypatch.setattr(torch_memory, "memory_stats", stats)
    monkeypatch.setattr(torch_memory, "_get_device_index", lambda device, optional: 0)
    theirs = torch_memory.memory_summary(abbreviated=abbreviated).splitlines()
    ours = allocator.memory_summary(abbreviated=abbreviated).splitlines()
    assert ours[:1] + ours[2:] == theirs[:1] + theirs[2:]
    assert "telegrad memory summary, device cuda:0" in ours[1] and len(ours[1]) == len(theirs[1])


def test_a_session_sees_its_own_figures(allocator: CachingAllocator) -> None:
    stats = allocator.memory_stats(2)
    assert stats["allocated_bytes.all.current"] == 30 * MIB
    assert stats["allocated_bytes.all.peak"] == 33 * MIB
    assert stats["num_ooms"] == 0 and allocator.memory_stats(1)["num_ooms"] == 1
    assert "session 2" in allocator.memory_summary(2)
    allocator.reset_peak(2)
    allocator.reset_accumulated(2)
    stats = allocator.memory_stats(2)
    assert (stats["allocated_bytes.all.peak"], stats["allocated_bytes.all.allocated"]) == (30 * MIB, 0)
    assert allocator.memory_stats()["allocated_bytes.all.allocated"] > 33 * MIB
    assert allocator.memory_stats(99)["allocation.all.allocated"] == 0


def test_pytorchs_viewer_reads_the_snapshot(allocator: CachingAllocator) -> None:
    snapshot = pickle.loads(to_pickle(allocator.memory_snapshot()))
    assert "30.0MiB allocated" in viz.segsum(snapshot)
    assert "cudaMalloc" in viz.trace(snapshot) and "OutOfMemoryError" in viz.trace(snapshot)
    assert "train.py:12:add" in viz.memory(snapshot, format_flamegraph=str)
    assert viz.segments(snapshot, format_flamegraph=str)
    for page in (viz.trace_plot(snapshot), viz.segment_plot(snapshot)):
        assert page.lstrip().startswith("<!DOCTYPE html>")


def test_a_snapshot_tells_segments_and_blocks_apart(allocator: CachingAllocator) -> None:
    small, large, oversize = allocator.memory_snapshot()["segments"]
    assert [block["state"] for block in small["blocks"]] == ["active_allocated", "active_awaiting_free", "inactive"]
    sums = ("total_size", "allocated_size", "active_size", "requested_size")
    assert [small[key] for key in sums] == [2 * MIB, 1024, 1024 + 5120, 6000]
    assert [large[key] for key in sums] == [20 * MIB, 0, 0, 0]
    assert [segment["segment_type"] for segment in (small, large, oversize)] == ["small", "large", "large"]
    assert (oversize["stream"], oversize["blocks"][0]["owner"], oversize["blocks"][0]["frames"]) == (5, 2, LINE)


def test_a_session_is_told_nothing_of_the_others(allocator: CachingAllocator) -> None:
    snapshot = allocator.memory_snapshot(1)
    assert {entry["owner"] for entry in snapshot["device_traces"][0]} == {1}
    told = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["frames"]]
    assert told and {block["owner"] for block in told} == {1}


def test_the_history_has_pytorchs_actions_in_order() -> None:
    allocator = CachingAllocator(SimulatedUpstream(64 * MIB))
    seen: list[str] = []
    allocator.attach_observer(lambda entry: seen.append(entry["action"]))
    allocator.record_memory_history(max_entries=6)
    block = allocator.allocate(1000)
    allocator.record_stream(block, 3)
    allocator.free(block)
    allocator.empty_cache()
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(1 << 30)
    allocator.memory_snapshot()
    expected = ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free", "oom", "snapshot"]
    assert seen == expected
    assert [entry["action"] for entry in allocator.history.entries] == expected[-6:]
    allocator.record_memory_history(None)
    assert not allocator.history.entries
    with pytest.raises(ArgumentError, match="enabled"):
        allocator.record_memory_history("yes")
