"""What the allocator learns of calls that are not remembered, and when it stops: names of states, cooldowns, totals."""

from __future__ import annotations

import gc
import random
import sys

import pytest

from server.allocator import CachingAllocator, SimulatedUpstream
from server.allocator.cache import recall
from server.allocator.cache.watch import FIRST_STREAK, NEW_BEFORE, Reasons, Watch
from server.allocator.core.sizes import MIB
from server.replay_policy import ALLOCATOR_CALLS, ReplayPolicy

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


def test_other_calls_from_states_that_came_back_count_as_much_as_new_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """All states come back, but in orders that never do: what is learnt of such calls never pays, and has to end."""
    monkeypatch.setattr(recall, "ALLOCATOR_CALLS", ALLOCATOR_CALLS._replace(sightings=1 << 10))
    allocator = CachingAllocator(SimulatedUpstream(SIZE))
    sizes, misses = [1000 * number for number in range(1, 65)], []
    for _ in range(4):
        blocks = [allocator.allocate(nbytes, 0, 1) for nbytes in sizes]
        for block in blocks:
            allocator.free(block)
        misses.append(allocator.recall.replay_policy.misses)
    # Memory comes from the device, all states are new, all come back, and what was learnt of calls is used.
    assert misses[1] > misses[0] and misses[3] == misses[2] == misses[1], "the first call from each state is free"
    one, two = allocator.allocate(1000, 0, 1), allocator.allocate(2000, 0, 1)
    allocator.free(one)
    allocator.free(two)
    before = _misses(allocator)
    for order in ((0, 1), (1, 0)) * 3:
        pair = [allocator.allocate(1000, 0, 1), allocator.allocate(2000, 0, 1)]
        for place in order:
            allocator.free(pair[place])
    assert _misses(allocator) > before, "the second call from a state is not"


def _misses(allocator: CachingAllocator) -> int:
    """How many misses there were, those included that the policy is yet to be told of."""
    layer = allocator.recall
    return layer.replay_policy.misses + layer._count - layer._left


def test_what_is_remembered_goes_with_the_allocator() -> None:
    """It is in circles of objects that the garbage collector is not to look at."""

    def blocks_after(rounds: int) -> int:
        for _ in range(rounds):
            allocator = CachingAllocator(SimulatedUpstream(SIZE))
            for _ in range(4):
                for block in [allocator.allocate(1000 * number, 0, 1) for number in range(1, 65)]:
                    allocator.free(block)
            assert allocator.recall.remembered()[0] >= 64
            del allocator, block
        gc.collect()
        return sys.getallocatedblocks()

    before = blocks_after(4)
    assert blocks_after(40) - before < 40 * 500, "one that is not taken apart leaves some 2,000 objects"


def test_a_reason_to_look_again_is_enough_until_one_came_to_nothing() -> None:
    policy = ReplayPolicy(ALLOCATOR_CALLS)
    reasons = Reasons(policy)
    assert reasons.suffice() and reasons.suffice(), "nothing was missed"
    policy.miss(policy.room())
    assert [reasons.suffice() for _ in range(2)] == [False, True]
    policy.begin_anew()
    policy.miss(policy.room())
    assert [reasons.suffice() for _ in range(4)] == [False, False, False, True]
    policy.hit(1)
    assert reasons.suffice()


def test_a_program_that_begins_ends_a_cooldown_with_the_first_budget(seed: int) -> None:
    allocator = _cooled_down(random.Random(seed))
    policy = allocator.recall.replay_policy
    policy.hit(1)  # what was learnt before came to something
    allocator.begin_program()
    assert not policy.cooldown and policy.room() == ALLOCATOR_CALLS.budget // ALLOCATOR_CALLS.cost


def test_a_pass_that_comes_again_is_learnt_as_a_whole(seed: int) -> None:
    allocator = _cooled_down(random.Random(seed))
    policy = allocator.recall.replay_policy
    policy.hit(1)
    allocator.expect_pass()
    assert not policy.cooldown and policy.room() > 6 * ALLOCATOR_CALLS.budget // ALLOCATOR_CALLS.cost


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
