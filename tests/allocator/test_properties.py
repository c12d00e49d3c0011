"""Random traces on a simulated device: the same addresses and statistics as the plain reference after every step."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from server.allocator import AllocatorConfig, Block, CachingAllocator, SimulatedUpstream
from server.allocator.core.block import FreeList
from server.allocator.core.sizes import MIB
from telegrad_protocol.errors import OutOfMemoryError
from tests.allocator.reference import IN_USE, OutOfMemory, ReferenceAllocator

DEVICE_SIZE = 96 * MIB
CONFIGS = (
    AllocatorConfig(),
    AllocatorConfig(max_split_size=24 * MIB),
    AllocatorConfig(max_split_size=20 * MIB, max_non_split_rounding=22 * MIB),
    AllocatorConfig(roundup_power2_divisions=(4,) * 16),
    AllocatorConfig(garbage_collection_threshold=0.4),
    AllocatorConfig(expandable_segments=True),
    AllocatorConfig(expandable_segments=True, max_split_size=24 * MIB, roundup_power2_divisions=(8,) * 16),
)
LOOKS = BLOCKS, TOTALS, NOTHING = "blocks", "totals", "nothing"
SIZES = st.one_of(
    st.sampled_from([1, 512, 513, 1000, 4096, 100_000, MIB, MIB + 1, 5 * MIB, 10 * MIB, 21 * MIB, 30 * MIB]),
    st.integers(1, 20_000),
    st.integers(1, 45 * MIB),
)


class Traces(RuleBasedStateMachine):
    @initialize(
        config=st.sampled_from(CONFIGS), fraction=st.sampled_from([None, 1.0, 0.7]), looks_at=st.sampled_from(LOOKS)
    )
    def start(self, config: AllocatorConfig, fraction: float | None, looks_at: str) -> None:
        # What is looked at after every step: for blocks, or totals, what was only written down is carried out.
        self.looks_at = looks_at
        self.upstream = SimulatedUpstream(DEVICE_SIZE)
        self.allocator = CachingAllocator(self.upstream, config)
        if fraction is not None:
            self.allocator.set_memory_fraction(fraction)
        self.reference = ReferenceAllocator(DEVICE_SIZE, config, fraction)
        self.live: list = []

    @rule(nbytes=SIZES, stream=st.integers(0, 2), owner=st.integers(0, 2))
    def allocate(self, nbytes: int, stream: int, owner: int) -> None:
        try:
            pointer, stretch, piece = self.reference.allocate(nbytes, stream)
        except OutOfMemory:
            with pytest.raises(OutOfMemoryError):
                self.allocator.allocate(nbytes, stream, owner)
            return
        block = self.allocator.allocate(nbytes, stream, owner)
        assert (block.pointer, block.size, block.requested) == (pointer, piece.size, nbytes)
        assert (block.stream, block.owner) == (stream, owner)
        self.live.append((block, stretch, piece))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        block, stretch, piece = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        self.allocator.free(block)
        self.reference.free(stretch, piece)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), times=st.integers(1, 4))
    def free_and_allocate_again(self, data: st.DataObject, times: int) -> None:
        """A repeated size, which is what the short way is for."""
        for _ in range(times):
            at = data.draw(st.integers(0, len(self.live) - 1))
            block, stretch, piece = self.live.pop(at)
            nbytes, stream, owner = block.requested, block.stream, block.owner
            self.allocator.free(block)
            self.reference.free(stretch, piece)
            self.allocate(nbytes, stream, owner)
            if not self.live:
                return

    @precondition(lambda self: self.live)
    @rule(data=st.data(), stream=st.integers(0, 3))
    def record_stream(self, data: st.DataObject, stream: int) -> None:
        block, _, piece = data.draw(st.sampled_from(self.live))
        self.allocator.record_stream(block, stream)
        if stream != block.stream:
            piece.streams.add(stream)

    @rule(data=st.data())
    def some_streams_catch_up(self, data: st.DataObject) -> None:
        unfinished = sorted(self.reference.unfinished)
        done = data.draw(st.sets(st.sampled_from(unfinished))) if unfinished else set()
        self.upstream.unfinished -= done
        self.reference.unfinished -= done

    @rule()
    def empty_cache(self) -> None:
        self.allocator.empty_cache()
        self.reference.release_all()

    @rule()
    def reset_peak(self) -> None:
        self.allocator.reset_peak()
        for stat in self.reference.stats.values():
            stat[1] = stat[0]

    @rule()
    def reset_accumulated(self) -> None:
        self.allocator.reset_accumulated()
        for stat in self.reference.stats.values():
            stat[2] = stat[3] = 0
        self.reference.counters = dict.fromkeys(self.reference.counters, 0)

    @invariant()
    def statistics_are_those_of_the_reference(self) -> None:
        self.reference.check()
        if self.looks_at != NOTHING:
            self.compare_statistics()

    @rule()
    def compare_statistics(self) -> None:
        expected = self.reference.table()
        found = self.allocator.memory_stats()
        assert {key: found[key] for key in expected} == expected
        assert set(found) - set(expected) == {"max_split_size", "num_oom_rejections"}

    @rule()
    def carry_out_what_is_merged_in_the_books(self) -> None:
        self.allocator.flush_deferred()
        self.allocator.heap.coalesce_deferred()
        assert not self.lists_with_remainders()
        heap = self.allocator.heap
        idle = [block for segment in heap.segments.values() for block in segment.blocks() if block.is_free]
        assert len(idle) == sum(len(list(pool.blocks())) for pool in heap.pools())

    def pages(self) -> dict[int, int]:
        """What the device was asked for, as the segments know it."""
        found = {}
        for segment in self.allocator.heap.segments.values():
            if not segment.page_size:
                found[segment.pointer] = segment.size
            for block in segment.blocks() if segment.page_size else ():
                last = (block.offset + block.size - 1) // segment.page_size
                pages = range(block.offset // segment.page_size, last + 1) if block.mapped else ()
                found |= {segment.pointer + page * segment.page_size: segment.page_size for page in pages}
        return found

    def lists_with_remainders(self) -> list[FreeList]:
        free_lists = [free_list for pool in self.allocator.heap.pools() for free_list in pool.free_lists.values()]
        return [free_list for free_list in free_lists if free_list.remainder is not None]

    def merged_in_the_books(self) -> set[Block]:
        """The blocks that are part of a remainder, but for the remainder itself."""
        found = set()
        for free_list in self.lists_with_remainders():
            block = free_list.remainder_front
            while block is not free_list.remainder:
                found.add(block)
                block = block.next
        return found

    @precondition(lambda self: self.looks_at == BLOCKS)
    @invariant()
    def a_last_remainder_is_one_free_piece_of_one_owner(self) -> None:
        self.allocator.flush_deferred()
        for free_list in self.lists_with_remainders():
            front, remainder = free_list.remainder_front, free_list.remainder
            assert front.pointer + free_list.remainder_size == remainder.pointer + remainder.size
            assert front.segment is remainder.segment and remainder.split
            assert front.previous is None or not front.previous.is_free
            assert remainder.next is None or not remainder.next.is_free
            assert free_list.remainder_size not in free_list.sizes
            block = front
            while block is not remainder:
                assert block.is_free and block.owner == remainder.owner and block.next.previous is block
                block = block.next

    @precondition(lambda self: self.looks_at == BLOCKS)
    @invariant()
    def segments_are_tiled_by_their_blocks(self) -> None:
        self.allocator.flush_deferred()
        segments, loose = self.allocator.heap.segments, self.merged_in_the_books()
        assert self.pages() == self.upstream.live
        for segment in segments.values():
            blocks = list(segment.blocks())
            assert blocks[0].offset == 0 and blocks[-1].offset + blocks[-1].size == segment.size
            for one, other in pairwise(blocks):
                assert one.next is other and other.previous is one
                assert one.offset + one.size == other.offset
                assert not (one.is_free and other.is_free) or one in loose

    @precondition(lambda self: self.looks_at == BLOCKS)
    @invariant()
    def free_blocks_lie_in_the_bins_of_their_sizes(self) -> None:
        self.allocator.flush_deferred()
        heap = self.allocator.heap
        in_a_remainder = self.merged_in_the_books() | {
            free_list.remainder for free_list in self.lists_with_remainders()
        }
        blocks = [block for segment in heap.segments.values() for block in segment.blocks()]
        idle = {block.pointer for block in blocks if block.is_free and block not in in_a_remainder}
        listed = []
        for free_list in (free_list for pool in heap.pools() for free_list in pool.free_lists.values()):
            assert free_list.sizes == sorted(set(free_list.sizes))
            assert free_list.sizes == sorted(size for size, bin in free_list.bins.items() if bin.listed)
            for bin in free_list.bins.values():
                pointers = [block.pointer for block in bin.blocks]
                assert pointers == sorted(pointers, reverse=True)
                assert all(block.size == bin.size and block.bin is bin for block in bin.blocks)
                assert bin.listed or not pointers
                listed += pointers
            for growable in getattr(free_list, "growable", ()):
                assert growable.bin is None and not growable.next.mapped
                listed.append(growable.pointer)
        assert sorted(listed) == sorted(idle)

    @precondition(lambda self: self.looks_at == BLOCKS)
    @invariant()
    def owners_are_charged_for_what_they_hold(self) -> None:
        self.allocator.flush_deferred()
        held = dict.fromkeys(range(3), 0)
        pieces = {id(piece) for stretch in self.reference.stretches for piece in stretch.pieces if piece.events}
        for segment in self.allocator.heap.segments.values():
            for block in segment.blocks():
                if not block.is_free and block.mapped:
                    held[block.owner] += block.size
        assert {owner: self.allocator.allocated_bytes(owner) for owner in held} == held
        assert self.allocator.allocated_bytes() == sum(held.values())
        in_use = sum(piece.state == IN_USE for stretch in self.reference.stretches for piece in stretch.pieces)
        assert in_use == len(self.live) and (bool(pieces) or not self.reference.events)

    def teardown(self) -> None:
        if hasattr(self, "allocator"):
            for block, _, _ in self.live:
                self.allocator.free(block)
            self.allocator.empty_cache()
            assert self.upstream.live == {}
            assert self.allocator.allocated_bytes() == 0


TestTraces = Traces.TestCase
TestTraces.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
