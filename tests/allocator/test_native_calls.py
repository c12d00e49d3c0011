"""Calls in C and in Python do the same: blocks, totals, states, what is remembered, and what is raised."""

from __future__ import annotations

import gc
import random
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import pytest

from server import native
from server.allocator import AllocatorConfig, Block, CachingAllocator, SimulatedUpstream, native_calls
from server.allocator.cache import recall as recalls
from server.allocator.core.block import apart
from server.allocator.core.sizes import MIB
from server.replay_policy import ALLOCATOR_CALLS
from telegrad_protocol.errors import ArgumentError, InternalError, OutOfMemoryError
from telegrad_protocol.native import place

from ..support.compilers import needs_calls_in_c

pytestmark = needs_calls_in_c
CONFIGS = (
    AllocatorConfig(), AllocatorConfig(max_split_size=24 * MIB), AllocatorConfig(roundup_power2_divisions=(4,) * 16),
    AllocatorConfig(expandable_segments=True),
)  # fmt: skip
SIZES = (1, 512, 700, 4096, 5000, 40_000, 65_536, 300_000, 1_500_000, 3 * MIB, 11 * MIB)
STREAMS = ((0,), (0,), (0, 1), (0, apart(0)), (1, apart(0), apart(1)))
_OF_BLOCKS = (
    "pointer", "offset", "size", "requested", "owner", "stream", "charge", "device_charge", "split", "is_free",
    "is_stable", "key",
)  # fmt: skip
_OF_FREE_BLOCKS = ("pointer", "offset", "size", "owner", "stream", "split", "is_free")
"""What was asked for last stays in a block, of those that were merged in any of them: calls that are made later come in
the order of a set."""


def test_it_is_compiled_where_there_is_a_compiler() -> None:
    library = place.library(native.SOURCE)
    failure = library.with_name("failed") if library is not None else None
    message = failure.read_text() if failure is not None and failure.exists() else "no library"
    assert native_calls.module is not None, message


def _allocator(in_c: bool, config: AllocatorConfig, memory: int = 256 * MIB) -> CachingAllocator:
    """An allocator that names states by the same numbers as another one."""
    with pytest.MonkeyPatch.context() as patch:
        if not in_c:
            patch.setattr(native_calls, "module", None)
        allocator = CachingAllocator(SimulatedUpstream(memory), config)
    recall = allocator.recall
    assert (type(recall.calls.allocate).__name__ == "builtin_function_or_method") is in_c
    recall._pieces.new_key = partial(random.Random(7).getrandbits, 128)
    recall._name ^= recall._turn_key
    recall._turn_keys.clear()
    recall._turn_key = recall._key_of_turn(0)
    recall._name ^= recall._turn_key
    return allocator


class Both:
    """Two allocators, one in C and one in Python, that are given the same calls."""

    def __init__(self, rng: random.Random) -> None:
        config = rng.choice(CONFIGS)
        self.rng, self.all = rng, [_allocator(in_c, config) for in_c in (True, False)]
        self.held: list[tuple[Block, Block]] = []

    def do(self, work: Callable[[CachingAllocator, int], Any]) -> list[Any]:
        """Have both do something; they return, or raise, the same."""
        results: list[Any] = []
        for place_of, allocator in enumerate(self.all):
            try:
                results.append(work(allocator, place_of))
            except (OutOfMemoryError, ArgumentError, InternalError) as error:
                results.append((type(error), str(error)))
        self.compare(*results)
        return results

    def compare(self, one: Any, other: Any) -> None:
        assert _described(one) == _described(other)
        assert _state(self.all[0]) == _state(self.all[1])

    def allocate(self, nbytes: int, stream: int = 0, owner: int = 1) -> None:
        one, other = self.do(lambda allocator, _: allocator.allocate(nbytes, stream, owner))
        if isinstance(one, Block):
            self.held.append((one, other))

    def free(self, at: int) -> None:
        blocks = self.held.pop(at)
        self.do(lambda allocator, place_of: allocator.free(blocks[place_of]))


def _described(result: Any) -> Any:
    if not isinstance(result, Block):
        return result
    bin = result.bin
    return *[getattr(result, name) for name in _OF_BLOCKS], bin and (bin.size, bin.eager_frees, len(bin.blocks))


def _state(allocator: CachingAllocator) -> tuple[Any, ...]:
    """What a call may change, but for the segments."""
    recall, ledger = allocator.recall, allocator.core.books.ledger
    policy = recall.replay_policy
    accounts = {owner: (one.now, one.peak, one.ceiling) for owner, one in allocator.core.books.accounts.items()}
    return (
        recall._name, len(recall.state), len(recall.log), len(recall._moved), len(recall._states), recall._left,
        recall._turn, recall.remembered(), policy.cooldown, policy.hits, policy.misses, policy.cooldowns,
        ledger.now, ledger.peak, ledger.allocated_peak, ledger.ceiling, accounts, allocator.heap.generation,
    )  # fmt: skip


def _look(allocator: CachingAllocator, _: int) -> Any:
    """All that people can see, and all free blocks in their order."""
    snapshot = allocator.memory_snapshot()["segments"]
    free = [
        [[getattr(block, name) for name in _OF_FREE_BLOCKS] for block in pool.blocks()]
        for pool in allocator.heap.pools()
    ]
    return allocator.memory_stats(), snapshot, free


def _random_call(both: Both, sizes: tuple[int, ...], streams: tuple[int, ...], owners: int) -> None:
    rng = both.rng
    if both.held and rng.random() < 0.5:
        both.free(rng.randrange(len(both.held)))
    else:
        both.allocate(rng.choice(sizes), rng.choice(streams), 1 + rng.randrange(owners))


def _unusual_call(both: Both) -> None:
    rng = both.rng
    kind = rng.randrange(9)
    if kind == 0:
        both.do(lambda allocator, _: allocator.empty_cache())
    elif kind == 1:
        both.allocate(rng.choice((0, -1, 400 * MIB)))
    elif kind == 2 and both.held:
        blocks = rng.choice(both.held)
        both.do(lambda allocator, place_of: allocator.record_stream(blocks[place_of], 5))
    elif kind == 3:
        quota = rng.choice((None, 30 * MIB, 90 * MIB))
        both.do(lambda allocator, _: allocator.set_quota(1, quota))
    elif kind == 4:
        both.do(lambda allocator, _: allocator.reset_peak())
    elif kind == 5:
        both.do(lambda allocator, _: allocator.end_cooldown())
    elif kind == 6:
        both.do(lambda allocator, _: allocator.core.poll_events())
    else:
        both.do(_look)


@pytest.mark.parametrize("part", range(6))
def test_random_calls_do_the_same(part: int, seed: int) -> None:
    rng = random.Random(seed + part)
    both = Both(rng)
    for _ in range(6):
        sizes = tuple(rng.sample(SIZES, rng.randint(1, len(SIZES))))
        streams, owners = rng.choice(STREAMS), rng.choice((1, 1, 2))
        for _ in range(150):
            _random_call(both, sizes, streams, owners)
            if rng.random() < 0.03:
                _unusual_call(both)
        while both.held and rng.random() < 0.9:
            both.free(rng.randrange(len(both.held)))
    both.do(_look)


@pytest.mark.parametrize("part", range(3))
def test_what_repeats_itself_is_remembered_in_the_same_way(part: int, seed: int) -> None:
    rng = random.Random(seed + part)
    both = Both(rng)
    steps = [[rng.choice(SIZES) for _ in range(rng.randint(1, 12))] for _ in range(3)]
    orders = [rng.sample(range(len(step)), len(step)) for step in steps]
    for _ in range(40):
        which = rng.randrange(len(steps))
        begin = len(both.held)
        for nbytes in steps[which]:
            both.allocate(nbytes)
        for at in orders[which]:
            both.free(begin + min(at, len(both.held) - begin - 1))
    both.do(_look)
    assert both.all[0].recall.replay_policy.hits


def test_cooldowns_begin_and_end_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ALLOCATOR_CALLS._replace(budget=120, cooldown=300, longest_cooldown=300)
    monkeypatch.setattr(recalls, "ALLOCATOR_CALLS", limits)
    both = Both(random.Random(seed))
    for _ in range(1500):
        _random_call(both, SIZES[:8], (0,), 1)
    assert both.all[0].recall.replay_policy.cooldowns > 1
    both.do(_look)


def test_a_block_that_is_freed_twice_is_told(seed: int) -> None:
    both = Both(random.Random(seed))
    for nbytes in (512, 512, 40_000):
        both.allocate(nbytes)
    blocks = both.held[1]
    both.free(1)
    results = both.do(lambda allocator, place_of: allocator.free(blocks[place_of]))
    assert results[0][0] is InternalError


@pytest.mark.parametrize("given", [(), (1, 2, 3, 4), ("1",), (None, 0, 1)])
def test_arguments_that_are_none_are_refused_as_by_python(given: tuple[Any, ...]) -> None:
    said = []
    for in_c in (True, False):
        allocator = _allocator(in_c, AllocatorConfig())
        with pytest.raises(TypeError) as caught:
            allocator.allocate(*given)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_arguments_may_be_named_or_left_out() -> None:
    allocator = _allocator(True, AllocatorConfig())
    one, other = allocator.allocate(700), allocator.allocate(nbytes=700, owner=3, stream=0)
    assert (one.owner, one.stream, other.owner, other.requested) == (0, 0, 3, 700)


def _mixed_calls(allocator: CachingAllocator, rng: random.Random) -> None:
    held: list[Block] = []
    for _ in range(400):
        if held and rng.random() < 0.5:
            allocator.free(held.pop(rng.randrange(len(held))))
        else:
            held.append(allocator.allocate(rng.choice(SIZES), 0, 1))
    for block in held:
        allocator.free(block)


def _growth(in_c: bool, seed: int) -> tuple[int, CachingAllocator]:
    """By how many blocks of Python's memory rounds of the same calls grow, after the first."""
    allocator = _allocator(in_c, AllocatorConfig())
    counts = []
    for _ in range(8):
        _mixed_calls(allocator, random.Random(seed))
        allocator.empty_cache()
        gc.collect()
        counts.append(sys.getallocatedblocks())
    return counts[-1] - counts[1], allocator


def test_nothing_is_left_behind(seed: int) -> None:
    """Calls in C leave no more objects than those in Python, which note what they have seen."""
    of_python, _ = _growth(False, seed)
    in_c, allocator = _growth(True, seed)
    assert abs(in_c - of_python) < 40
    gone = weakref.ref(allocator.recall)
    del allocator
    gc.collect()
    assert gone() is None


@pytest.fixture(autouse=True)
def _unchanged_constants() -> Iterator[None]:
    """The states that stand for many stay empty, whoever is given them."""
    yield
    assert not list(chain(recalls.UNKNOWN, recalls.SEEN))
