"""Arrays over blocks of the host: each lies where its block does, also those that are kept for the next use."""

from __future__ import annotations

import random

import pytest

from server.allocator import CachingAllocator, HostUpstream
from server.allocator.core.sizes import MIB
from server.engine import context
from server.engine.device.cpu_backend import CpuBackend
from server.engine.value import Value
from server.replay_policy import ALLOCATOR_CALLS, ReplayPolicy
from telegrad_protocol import dtypes
from telegrad_protocol.meta import CPU, Meta

SHAPES = ((7,), (3, 5), (40, 40), (200, 300), ())
METAS = [Meta.of(shape, dtype, CPU) for shape in SHAPES for dtype in (dtypes.float32, dtypes.int64)]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> CpuBackend:
    monkeypatch.setattr(context, "current", context.Context({}, owner=1))
    return CpuBackend(CPU, CachingAllocator(HostUpstream()))


def test_a_piece_that_is_used_again_in_the_same_form_has_the_array_that_it_had(backend: CpuBackend) -> None:
    found = []
    for _ in range(6):
        value = backend.empty(METAS[2])
        found.append(value.array)
        del value
    assert found[-1] is found[-2]
    assert backend.empty(METAS[3]).array.dtype == "int64"


@pytest.mark.parametrize("calls", [40, ALLOCATOR_CALLS.budget])
def test_arrays_lie_where_their_blocks_do(backend: CpuBackend, calls: int) -> None:
    limits = ALLOCATOR_CALLS._replace(
        budget=calls, largest_budget=calls, cost=1, gain=0, cooldown=calls, longest_cooldown=calls
    )
    backend.allocator.recall.replay_policy = ReplayPolicy(limits)
    draw = random.Random(1)
    print("seed 1")
    held = []
    for at in range(6000):
        if len(held) == 4 or (held and draw.random() < 0.5):
            del held[draw.randrange(len(held))]
        else:
            value = backend.empty(draw.choice(METAS))
            assert value.array.shape == value.meta.shape
            assert value.array.itemsize == value.meta.dtype.itemsize
            block = value.storage.block
            assert value.array.ctypes.data == block.pointer == block.segment.pointer + block.offset
            held.append(value)
        if at % 1000 == 999:
            backend.allocator.empty_cache()
        if held and at % 700 == 699:
            backend.allocator.record_stream(held[0].storage.block, 5)
    del held, value
    assert backend.allocator.allocated_bytes() == 0


@pytest.mark.parametrize("ending", ["cooldown", "another stream"])
def test_a_block_that_is_found_elsewhere_has_no_array_of_before(backend: CpuBackend, ending: str) -> None:
    def new() -> Value:
        value = backend.empty(half)
        assert value.array.ctypes.data == value.storage.block.pointer
        return value

    half, allocator = Meta.of((MIB // 4,), dtypes.float32, CPU), backend.allocator
    for _ in range(4):
        value = None
        value = new()
        block = value.storage.block
    assert block.is_stable and block.offset == 0
    if ending == "cooldown":
        allocator.flush_deferred()
        while not allocator.recall.replay_policy.miss():
            pass
        allocator.recall.forget()
    else:
        allocator.record_stream(block, 5)
    # All of its segment is free then, as this block, whose second half is what is left after the next request.
    value = None
    front = new()
    back = [new()]
    for _ in range(4):
        back.clear()
        back.append(new())
    assert back[0].storage.block is block and block.offset == MIB
    assert front.storage.block.offset == 0
