"""Runs that take all their memory from one block, and who gives memory up where a device or a session is out of it."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from server.allocator import CachingAllocator, SimulatedUpstream
from server.allocator.cache.shadow_blocks import Arena, ReplayMismatch
from server.engine.device import graph_memory
from server.engine.device.graph_memory import GraphMemory
from telegrad_protocol.errors import OutOfMemoryError

MIB = 1 << 20


def allocator_of(nbytes: int) -> CachingAllocator:
    return CachingAllocator(SimulatedUpstream(nbytes))


def test_parts_lie_apart_and_in_the_same_places_each_time(seed: int) -> None:
    allocator = allocator_of(64 * MIB)
    block = allocator.allocate(4 * MIB, 0, 7)
    runs = []
    for _ in range(2):
        chance, addresses = random.Random(seed), []
        before = allocator.allocated_bytes()
        with allocator.run_in(block) as arena:
            held = []
            for _ in range(300):
                if held and chance.random() < 0.5:
                    allocator.free(held.pop(chance.randrange(len(held))))
                else:
                    held.append(allocator.allocate(chance.randrange(1, 40_000), 0, 7))
                    addresses.append(held[-1].pointer)
                ends = sorted([(one.pointer, one.pointer + one.size) for one in held])
                assert all([end <= begin for (_, end), (begin, _) in pairwise(ends)])
                assert not ends or (block.pointer <= ends[0][0] and ends[-1][1] <= block.pointer + arena.most)
            assert arena.taken == set(held)
        assert allocator.allocated_bytes() == before
        runs.append(addresses)
    assert runs[0] == runs[1]
    allocator.free(block)
    allocator.end_session(7)


def test_what_does_not_fit_or_is_for_others_is_refused() -> None:
    allocator = allocator_of(64 * MIB)
    block, other = allocator.allocate(MIB, 0, 7), allocator.allocate(MIB, 0, 8)
    with allocator.run_in(block) as arena:
        part = allocator.allocate(MIB, 0, 7)
        with pytest.raises(ReplayMismatch, match="1 bytes do not fit"):
            allocator.allocate(1, 0, 7)
        assert arena.is_too_small
        allocator.free(part)
        allocator.free(part)  # twice changes nothing
        assert not arena.taken
        for stream, owner in ((0, 8), (5, 7)):
            with pytest.raises(ReplayMismatch):
                allocator.allocate(1, stream, owner)
        assert isinstance(arena, Arena) and allocator.allocate(0, 0, 9).size == 0
        allocator.free(other)
        assert arena.queued_frees == [other]
    allocator.free(block)
    for owner in (7, 8):
        allocator.end_session(owner)


@pytest.mark.parametrize("limited", ["device", "quota"])
def test_captures_give_their_memory_up_before_anything_fails(limited: str) -> None:
    """Those of the session alone, where it is its quota that is used up."""
    allocator = allocator_of(64 * MIB if limited == "device" else 1024 * MIB)
    graphs = GraphMemory()
    allocator.pressure_callbacks.append(graphs.drop_all)
    if limited == "quota":
        allocator.set_quota(7, 48 * MIB)
    held = {}
    for owner in (7, 8):
        held[owner] = allocator.allocate(20 * MIB, 0, owner)
        graphs.add(held[owner], 1000, owner, lambda owner=owner: allocator.free(held.pop(owner)))
    block = allocator.allocate(40 * MIB, 0, 7)
    assert list(held) == ([] if limited == "device" else [8])
    assert graphs.nbytes == 1000 * len(held)
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(40 * MIB, 0, 7)
    allocator.free(block)
    graphs.drop_all()
    for owner in (7, 8):
        allocator.end_session(owner)


def test_graphs_that_are_launched_least_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_memory, "MOST_BYTES", 250)
    graphs, dropped = GraphMemory(), []
    works = [object() for _ in range(4)]
    for number, work in enumerate(works):
        graphs.add(work, 100, 0, lambda number=number: dropped.append(number))
        if number < 3:
            graphs.note_launch(works[0])
    assert dropped == [1, 2]
    graphs.forget(works[0])
    graphs.forget(works[0])
    assert graphs.nbytes == 100 and graphs.drop_all() and not graphs.drop_all() and dropped == [1, 2, 3]


def test_work_that_ends_while_all_is_dropped_is_not_dropped_again() -> None:
    """To drop work may end the holders of other work, which forget it."""
    memory, works, dropped = GraphMemory(), [object() for _ in range(4)], []

    def drop(number: int) -> None:
        dropped.append(number)
        memory.forget(works[(number + 1) % 4])

    for number, work in enumerate(works):
        memory.add(work, MIB, 7, lambda number=number: drop(number))  # type: ignore[misc]
    assert memory.drop_all(7)
    assert (dropped, memory.nbytes) == ([0, 2], 0)
