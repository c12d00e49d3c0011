"""Calls that are only written down: the same blocks and statistics as the reference, however long nobody looks."""

from __future__ import annotations

import random
from functools import partial

import pytest

from server.allocator import AllocatorConfig, CachingAllocator, HostUpstream, SimulatedUpstream
from server.allocator.cache import recall
from server.allocator.core.block import Block, Segment
from server.allocator.core.counters import Accumulated
from server.allocator.core.sizes import MIB
from server.replay_policy import ALLOCATOR_CALLS
from telegrad_protocol.errors import InternalError, OutOfMemoryError
from tests.allocator.reference import ReferenceAllocator

SIZE = 256 * MIB
OPTIONS = (
    AllocatorConfig(),
    AllocatorConfig(max_split_size=24 * MIB),
    AllocatorConfig(roundup_power2_divisions=(4,) * 16),
    AllocatorConfig(expandable_segments=True),
)


class Both:
    """The allocator and the reference, given the same calls."""

    def __init__(self, config: AllocatorConfig, size: int = SIZE) -> None:
        self.upstream = SimulatedUpstream(size)
        self.allocator = CachingAllocator(self.upstream, config)
        self.reference = ReferenceAllocator(size, config, None)

    def allocate(self, nbytes: int, stream: int = 0, owner: int = 1) -> tuple:
        pointer, stretch, piece = self.reference.allocate(nbytes, stream)
        block = self.allocator.allocate(nbytes, stream, owner)
        found = block.pointer, block.offset, block.size, block.requested, block.owner, block.stream, block.is_free
        assert found[:1] + found[2:6] == (pointer, piece.size, nbytes, owner, stream)
        assert block.segment.pointer + block.offset == pointer
        return block, stretch, piece

    def free(self, held: tuple) -> None:
        self.allocator.free(held[0])
        self.reference.free(*held[1:])

    def compare(self) -> None:
        expected, found = self.reference.table(), self.allocator.memory_stats()
        assert {key: found[key] for key in expected} == expected

    def compare_segments(self) -> None:
        """Every block of the snapshot is a piece of the reference."""
        drawn = self.allocator.memory_snapshot()["segments"]
        pieces = [
            (stretch.pointer + piece.offset, piece.size, "inactive" if piece.state == "free" else "active_allocated")
            for stretch in self.reference.stretches
            for piece in stretch.pieces
            if piece.state != "unmapped"
        ]
        blocks = [(block["address"], block["size"], block["state"]) for each in drawn for block in each["blocks"]]
        assert sorted(blocks) == sorted(pieces)


def script(draw: random.Random, length: int, streams: int = 1, owners: int = 1) -> list[tuple]:
    """Calls that leave nothing: sizes to take, numbers to free."""
    sizes = [draw.choice((4, 700, 5000, 40_000, 300_000, MIB + 5, 3 * MIB, 12 * MIB)) for _ in range(6)]
    calls: list[tuple] = []
    live: list[int] = []
    count = 0
    for _ in range(length):
        if live and draw.random() < 0.5:
            calls.append((-1, live.pop(draw.randrange(len(live)))))
        else:
            calls.append((draw.choice(sizes), draw.randrange(streams), 1 + draw.randrange(owners)))
            live.append(count)
            count += 1
    draw.shuffle(live)
    return calls + [(-1, number) for number in live]


def run(both: Both, calls: list[tuple]) -> None:
    held = []
    for call in calls:
        if call[0] < 0:
            both.free(held[call[1]])
        else:
            held.append(both.allocate(*call))


@pytest.mark.parametrize("config", OPTIONS)
@pytest.mark.parametrize("owners", [1, 3])
def test_repeated_steps_show_what_the_reference_shows(config: AllocatorConfig, owners: int) -> None:
    for seed in range(6):
        draw = random.Random(seed)
        print(f"seed {seed}")
        both = Both(config)
        weights = [both.allocate(draw.randrange(1, 2 * MIB), 0, owner) for owner in range(1, owners + 1)]
        step = script(draw, 60, streams=1 + seed % 2, owners=owners)
        for number in range(8):
            # Now and then a step is another one, or somebody looks, or the cache is emptied, or a peak is reset.
            run(both, script(draw, 10, owners=owners) if number == 4 else step)
            both.compare() if number % 3 == 2 else None
            both.compare_segments() if number == 6 else None
        both.allocator.reset_peak()
        for stat in both.reference.stats.values():
            stat[1] = stat[0]
        run(both, step)
        both.compare()
        both.allocator.empty_cache()
        both.reference.release_all()
        run(both, step)
        both.compare()
        both.compare_segments()
        for held in weights:
            both.free(held)
        both.compare()
        both.compare_segments()


@pytest.mark.parametrize("config", OPTIONS)
def test_wandering_among_few_states_shows_what_the_reference_shows(config: AllocatorConfig) -> None:
    draw = random.Random(5)
    both = Both(config)
    held: list[tuple] = []
    for at in range(4000):
        if len(held) == 4 or (held and draw.random() < 0.5):
            both.free(held.pop(draw.randrange(len(held))))
        else:
            held.append(both.allocate(draw.choice((1000, 1500, 70_000, 9 * MIB)), 0, 1))
        if at % 500 == 499:
            both.compare()
            both.compare_segments()
        if at % 700 == 699:
            both.upstream.unfinished.clear()
            both.allocator.record_stream(held[0][0], 7) if held else None
            held[0][2].streams.add(7) if held else None
        if at % 50 == 49:
            both.upstream.unfinished.clear()
            both.reference.unfinished.clear()


def test_a_repeated_step_is_only_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = CachingAllocator(SimulatedUpstream(SIZE))

    def step() -> list[int]:
        blocks = [allocator.allocate(nbytes, 0, 1) for nbytes in (1000, 70_000, 1000, 4, 3 * MIB)]
        pointers = [block.pointer for block in blocks]
        for block in blocks:
            allocator.free(block)
        return pointers

    first, *_ = [step() for _ in range(3)]
    before = allocator.memory_stats()
    monkeypatch.setattr(allocator.recall, "allocate_unknown", None)
    monkeypatch.setattr(allocator.recall, "free_unknown", None)
    for _ in range(recall.LONGEST_LOG // 5):
        assert step() == first
    after = allocator.memory_stats()
    assert after["allocation.all.allocated"] == before["allocation.all.allocated"] + 5 * (recall.LONGEST_LOG // 5)
    assert {key for key in after if after[key] != before[key] and not key.endswith((".allocated", ".freed"))} == set()


@pytest.mark.parametrize("owners", [1, 3])
def test_what_a_session_has_in_use_is_told_of_calls_that_are_only_written_down(owners: int, seed: int) -> None:
    """Nothing is carried out for that: a profile of memory asks after each operation."""
    allocator, rng = CachingAllocator(SimulatedUpstream(SIZE)), random.Random(seed)
    calls = [(rng.choice((512, 4096, MIB)), 1 + rng.randrange(owners)) for _ in range(12)]
    written = 0
    for _ in range(8):
        held: list[Block] = []
        for nbytes, owner in calls:
            held.append(allocator.allocate(nbytes, 0, owner))
            if len(held) > 4:
                allocator.free(held.pop(0))
            log = len(allocator.recall.log)
            for one in range(1, owners + 1):
                in_use = sum([block.size for block in held if block.owner == one])
                assert allocator.allocated_bytes(one) == in_use
            written += owners == 1 and log > 0 and len(allocator.recall.log) == log
        assert allocator.allocated_bytes() == sum([block.size for block in held])
        while held:
            allocator.free(held.pop())
    assert written or owners > 1


def test_a_block_that_was_freed_twice_is_found_among_what_was_written_down() -> None:
    allocator = CachingAllocator(SimulatedUpstream(SIZE))
    for _ in range(4):
        block = allocator.allocate(1000, 0, 1)
        allocator.free(block)
    with pytest.raises(InternalError, match="freed twice"):
        allocator.free(block)
    assert allocator.allocated_bytes() == 0


def test_a_quota_set_between_equal_steps_holds() -> None:
    allocator = CachingAllocator(SimulatedUpstream(SIZE))
    for _ in range(4):
        allocator.free(allocator.allocate(5000, 0, 1))
    allocator.set_quota(1, 4096)
    with pytest.raises(OutOfMemoryError, match="session quota"):
        allocator.allocate(5000, 0, 1)


def test_who_starts_to_record_sees_every_call_from_there_on() -> None:
    allocator = CachingAllocator(SimulatedUpstream(SIZE))
    for _ in range(4):
        allocator.free(allocator.allocate(5000, 0, 1))
    held = allocator.allocate(5000, 0, 1)
    allocator.record_memory_history()
    allocator.free(held)
    allocator.free(allocator.allocate(5000, 0, 1))
    actions = [entry["action"] for entry in allocator.memory_snapshot()["device_traces"][0]]
    assert actions == ["free_requested", "free_completed", "alloc", "free_requested", "free_completed", "snapshot"]


def test_sessions_that_take_turns_on_one_stream_read_nothing_of_each_other() -> None:
    allocator = CachingAllocator(HostUpstream())
    draw = random.Random(3)

    def turn(owner: int) -> list[Block]:
        blocks = []
        for nbytes in (1000, 5000, 1000, 70_000):
            block = allocator.allocate(nbytes, 0, owner)
            view = block.segment.buffer[block.offset : block.offset + block.size]
            assert set(view.tobytes()) <= {0, owner}
            view[:] = owner
            blocks.append(block)
        return blocks

    for _ in range(60):
        held = {owner: turn(owner) for owner in draw.sample((1, 2, 3), 2)}
        for owner in draw.sample(sorted(held), 2):
            for block in held[owner]:
                allocator.free(block)
    assert allocator.allocated_bytes() == 0


def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "ALLOCATOR_CALLS", ALLOCATOR_CALLS._replace(sightings=50))
    both, draw = Both(AllocatorConfig()), random.Random(9)
    for _ in range(40):
        run(both, script(draw, 30))
        assert max(both.allocator.recall.remembered()) <= 52
    both.compare()
    both.compare_segments()


def test_steps_of_thousands_of_calls_are_learned() -> None:
    """Those of GPT-2 small have 1,900, and take five to be known; larger models have more."""
    allocator = CachingAllocator(SimulatedUpstream(1 << 36))
    for _ in range(5):
        blocks = [allocator.allocate(1000 + 512 * (number % 700), 0, 1) for number in range(4000)]
        for block in blocks:
            allocator.free(block)
    assert allocator.start_sequence() is not None


def test_a_cooldown_that_ends_early_has_calls_learned_at_once() -> None:
    allocator, draw = CachingAllocator(SimulatedUpstream(1 << 36)), random.Random(5)
    held: list[Block] = []
    while not allocator.recall.replay_policy.cooldown:
        held.append(allocator.allocate(draw.randrange(1, 1 << 20), 0, 1))
        if len(held) > 50:
            allocator.free(held.pop(draw.randrange(len(held))))
    allocator.end_cooldown()
    before = allocator.allocated_bytes()
    for _ in range(5):
        allocator.free(allocator.allocate(5000, 0, 2))
    assert allocator.start_sequence() is not None and allocator.allocated_bytes() == before


def test_what_is_freed_to_make_room_is_there_at_once() -> None:
    """Frees that are remembered are carried out before the allocation that waits for them goes on."""
    both = Both(AllocatorConfig(), 60 * MIB)
    both.allocator.set_memory_fraction(1.0)
    spare: list[tuple] = []

    def give_up() -> bool:
        has_freed = bool(spare)
        while spare:
            both.free(spare.pop())
        return has_freed

    both.allocator.free_memory_callbacks.append(give_up)
    for _ in range(5):
        spare += [both.allocate(18 * MIB) for _ in range(3)]
        give_up()
    spare += [both.allocate(18 * MIB) for _ in range(3)]
    reclaimed = both.allocator.allocate(17 * MIB, 0, 1)
    assert reclaimed.segment.size == 18 * MIB and not spare
    assert both.allocator.allocated_bytes() == reclaimed.size
    both.allocator.free(reclaimed)
    both.allocator.flush_deferred()
    assert both.allocator.memory_stats()["num_device_free"] == 0


def test_what_is_freed_while_calls_are_carried_out_comes_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python's garbage collector does, in the middle of anything."""
    both = Both(AllocatorConfig())
    late = [both.allocate(3000) for _ in range(20)][::2]
    for _ in range(5):
        run(both, [(1000, 0, 1), (70_000, 0, 1), (-1, 0), (500, 0, 1), (-1, 1), (-1, 2)])
    held = [both.allocate(1000), both.allocate(70_000)]
    interrupt = [lambda: both.free(late.pop())] * 4

    def strike(work, *args):
        if interrupt:
            interrupt.pop()()
        return work(*args)

    for name, work in (
        ("put", both.allocator.heap.put),
        ("coalesce_deferred", both.allocator.heap.coalesce_deferred),
    ):
        monkeypatch.setattr(both.allocator.heap, name, partial(strike, work))
    add = Accumulated.add
    monkeypatch.setattr(Accumulated, "add", lambda *args: strike(add, *args))
    both.allocator.memory_stats()
    both.allocator.flush_deferred()
    assert not interrupt
    both.compare_segments()
    for each in [*held, *late]:
        both.free(each)
    both.compare_segments()
    found, expected = both.allocator.memory_stats(), both.reference.table()
    assert {key: found[key] for key in expected if key.endswith("current")} == {
        key: amount for key, amount in expected.items() if key.endswith("current")
    }


class _Reusing(SimulatedUpstream):
    """Gives addresses out again, as drivers do: the lowest that are free."""

    def obtain(self, nbytes: int, stream: int) -> Segment | None:
        self._next_address = 1 << 40
        for pointer, size in sorted(self.live.items()):
            if pointer - self._next_address >= nbytes:
                break
            self._next_address = pointer + size
        return super().obtain(nbytes, stream)


@pytest.mark.parametrize("config", [*OPTIONS[:3], AllocatorConfig(garbage_collection_threshold=0.3)])
@pytest.mark.parametrize("seed", range(6))
def test_blocks_are_never_of_a_segment_that_was_at_the_same_address_before(config: AllocatorConfig, seed: int) -> None:
    draw = random.Random(seed)
    allocator = CachingAllocator(_Reusing(SIZE), config)
    allocator.set_memory_fraction(0.6)
    sizes = [draw.choice([700, 300_000, 3 * MIB, 11 * MIB, 24 * MIB, 45 * MIB]) for _ in range(5)]
    live: list[Block] = []
    for _ in range(1500):
        if draw.random() < 0.5:
            try:
                live.append(allocator.allocate(draw.choice(sizes), draw.randrange(2)))
            except OutOfMemoryError:
                allocator.free(live.pop(draw.randrange(len(live))))
                continue
        elif live:
            allocator.free(live.pop(draw.randrange(len(live))))
        if draw.random() < 0.1:
            allocator.heap.coalesce_deferred()
            allocator.flush_deferred()
            tiles = {block for segment in allocator.heap.segments.values() for block in segment.blocks()}
            assert tiles.issuperset(live)
            assert all(block.pointer == block.segment.pointer + block.offset for block in live)
