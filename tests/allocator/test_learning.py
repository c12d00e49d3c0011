"""What the allocator learns of calls that are not remembered, and when it stops: names of states, cooldowns, totals."""

from __future__ import annotations

import random

import pytest

from server.allocator import CachingAllocator, SimulatedUpstream
from server.allocator.cache import recall
from server.allocator.cache.watch import FIRST_STREAK, NEW_BEFORE, Watch
from server.allocator.core.sizes import MIB
from server.replay_policy import ALLOCATOR_CALLS

SIZE = 256 * MIB


def _cooled_down(draw: random.Random) -> CachingAllocator:
    """An allocator that has met nothing that comes again, and remembers no calls."""
    allocator, held = CachingAllocator(SimulatedUpstream(1 << 36)), []
    while not allocator.recall.replay_policy.cooldown:
        held.append(allocator.allocate(draw.randrange(1, 1 << 20), 0, 1))
        if len(held) > 50:
            allocator.free(held.pop(draw.randrange(len(held))))
    for block in held:
        allocator.free(block)
    return allocator


def test_a_cooldown_ends_when_totals_come_again(seed: int) -> None:
    allocator, draw = _cooled_down(random.Random(seed)), random.Random(seed + 1)
    sizes = [draw.randrange(1, 1 << 20) for _ in range(200)]

    def step() -> None:
        blocks = [allocator.allocate(nbytes, 0, 1) for nbytes in sizes]
        for block in blocks:
            allocator.free(block)

    left = allocator.recall.replay_policy.cooldown
    for _ in range(12):
        step()
    assert allocator.start_sequence() is not None
    assert 12 * 2 * len(sizes) < left, "the cooldown is not over by its length"


def test_a_cooldown_goes_on_while_nothing_but_blocks_of_a_moment_come_back(seed: int) -> None:
    draw = random.Random(seed)
    allocator = _cooled_down(draw)
    for _ in range(20):
        kept = []
        for _ in range(200):
            kept.append(allocator.allocate(draw.randrange(1, 1 << 20), 0, 1))
            allocator.free(allocator.allocate(draw.randrange(1, 1 << 20), 0, 1))
        for block in kept:
            allocator.free(block)
    assert allocator.recall.replay_policy.cooldown


def test_calls_between_states_that_came_back_count_as_much_as_new_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where addresses go round in a large circle all states come back, and what is learnt of calls never pays."""
    monkeypatch.setattr(recall, "ALLOCATOR_CALLS", ALLOCATOR_CALLS._replace(sightings=1 << 10))
    allocator = CachingAllocator(SimulatedUpstream(SIZE))
    sizes = [1000 * number for number in range(1, 65)]
    misses = []
    for _ in range(4):
        for block in [allocator.allocate(nbytes, 0, 1) for nbytes in sizes]:
            allocator.free(block)
        misses.append(allocator.recall.replay_policy.misses)
    # Memory comes from the device, all states are new, all come back, and what was learnt of calls is used.
    assert misses[2] >= misses[1] + len(sizes) and misses[3] == misses[2]


def test_totals_that_come_again_are_a_sign_only_where_others_were_new_before() -> None:
    watch, again = Watch(NEW_BEFORE), list(range(FIRST_STREAK))
    assert not any([watch.repeats(number) for number in again * 20]), "a program of short episodes"
    phase = list(range(1000, 1000 + NEW_BEFORE * FIRST_STREAK))
    assert not any([watch.repeats(number) for number in phase]), "all of these are new"
    assert any([watch.repeats(number) for number in phase]), "the second pass over what was new"


def test_a_state_is_named_by_what_is_in_use_whatever_has_happened(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise two states would have one name, and memory in use be handed out."""
    few = ALLOCATOR_CALLS._replace(budget=900, largest_budget=900, cooldown=300, longest_cooldown=300)
    monkeypatch.setattr(recall, "ALLOCATOR_CALLS", few)
    upstream, draw = SimulatedUpstream(SIZE), random.Random(seed)
    allocator, held = CachingAllocator(upstream), []
    for at in range(4000):
        if len(held) == 5 or (held and draw.random() < 0.5):
            block = held.pop(draw.randrange(len(held)))
            if draw.random() < 0.02:
                allocator.record_stream(block, 7)
            allocator.free(block)
        else:
            held.append(allocator.allocate(draw.choice((1000, 1500, 70_000)), 0, 1 + at // 500 % 2))
        if draw.random() < 0.05:
            upstream.unfinished.clear()
            allocator.core.poll_events()
        if draw.random() < 0.01:
            allocator.end_cooldown()
        if draw.random() < 0.05 and not allocator.recall.replay_policy.cooldown:
            allocator.flush_deferred()
            assert allocator.recall._name == _name_of_what_is_in_use(allocator)
    assert allocator.recall.replay_policy.cooldowns and allocator.recall.replay_policy.hits


def _name_of_what_is_in_use(allocator: CachingAllocator) -> int:
    name = allocator.recall._turn_key
    for segment in allocator.heap.segments.values():
        for block in segment.blocks():
            name ^= 0 if block.is_free else block.key
    return name


def test_of_states_that_do_not_come_again_only_names_are_kept(seed: int) -> None:
    allocator, draw = CachingAllocator(SimulatedUpstream(1 << 36)), random.Random(seed)
    for block in [allocator.allocate(1 << 20, 0, 1) for _ in range(200)]:
        allocator.free(block)
    held = [allocator.allocate(draw.randrange(1, 1 << 18), 0, 1) for _ in range(500)]
    assert allocator.recall.remembered()[0] >= 500
    assert not any([block.is_stable for block in held])
    assert not any(allocator.recall._states.values())


def test_requests_for_nothing_leave_remembered_calls_in_the_log() -> None:
    """A pass with an empty tensor in it is a sequence of remembered calls, too."""
    allocator = CachingAllocator(SimulatedUpstream(SIZE))
    for _ in range(5):
        start = allocator.start_sequence()
        block = allocator.allocate(5000, 0, 1)
        nothing = allocator.allocate(0, 0, 1)
        allocator.free(nothing)
        allocator.free(block)
    assert start is not None
    calls = allocator.sequence_since(start)
    assert calls is not None and len(calls.steps) == 2
