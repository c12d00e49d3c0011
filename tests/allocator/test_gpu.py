"""The allocator on a real GPU: against PyTorch's, with real streams, at the card's real limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from server.allocator import CachingAllocator
from server.allocator.sizes import MIB
from telegrad_protocol.errors import OutOfMemoryError

pytestmark = pytest.mark.gpu

# Options, limit in MiB: 25 traces of 2,000 steps each.
DIFFERENTIAL = [
    ("", None),
    ("", 200),
    ("max_split_size_mb:20", None),
    ("max_split_size_mb:32,max_non_split_rounding_mb:24", 260),
    ("roundup_power2_divisions:4", None),
    ("roundup_power2_divisions:[1:2,4:8,>:1]", 300),
    ("garbage_collection_threshold:0.6", 400),
    ("garbage_collection_threshold:0.3,max_split_size_mb:40,roundup_power2_divisions:8", 260),
]


@pytest.fixture
def allocator() -> Any:
    from server.allocator import CudaUpstream

    allocator = CachingAllocator(CudaUpstream(0), device="cuda:0")
    yield allocator
    allocator.empty_cache()
    assert allocator.memory_stats()["reserved_bytes.all.current"] == 0


@pytest.mark.parametrize(("options", "limit"), DIFFERENTIAL)
def test_statistics_are_pytorchs_after_every_step(options: str, limit: int | None) -> None:
    seed = 1000 * DIFFERENTIAL.index((options, limit))
    command = [sys.executable, "-m", "tests.allocator.differential", str(seed), "25", "2000"]
    command += [] if limit is None else [str(limit)]
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": options}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    print(options or "defaults", limit, result)
    assert result["steps"] == 50_000
    assert (result["num_ooms"] > 0) == (limit is not None)


def test_a_block_is_memory_of_the_device(allocator: CachingAllocator) -> None:
    import cupy as cp

    blocks = [allocator.allocate(nbytes, 0, 1) for nbytes in (1000, 5 * MIB, 64 * MIB)]
    for at, block in enumerate(blocks):
        cp.cuda.runtime.memset(block.pointer, at + 1, block.size)
    for at, block in enumerate(blocks):
        memory = cp.cuda.UnownedMemory(block.pointer, block.size, block, 0)
        array = cp.ndarray((block.size,), cp.uint8, cp.cuda.MemoryPointer(memory, 0))
        assert int(array.min()) == int(array.max()) == at + 1
        allocator.free(block)


def test_another_session_reads_zeros(allocator: CachingAllocator) -> None:
    import cupy as cp

    stream = cp.cuda.Stream(non_blocking=True)
    for nbytes in (1000, 3 * MIB):
        block = allocator.allocate(nbytes, stream.ptr, 1)
        cp.cuda.runtime.memsetAsync(block.pointer, 7, block.size, stream.ptr)
        pointer = block.pointer
        allocator.free(block)
        block = allocator.allocate(nbytes, stream.ptr, 2)
        assert block.pointer == pointer
        stream.synchronize()
        memory = cp.cuda.UnownedMemory(block.pointer, block.size, block, 0)
        assert not cp.ndarray((block.size,), cp.uint8, cp.cuda.MemoryPointer(memory, 0)).any()
        allocator.free(block)


def test_a_block_waits_for_a_busy_stream(allocator: CachingAllocator) -> None:
    import cupy as cp

    spin = cp.RawKernel(
        'extern "C" __global__ void spin(volatile int* gate) { while (*gate == 0) { } }', "spin"
    )  # fmt: skip
    gate = cp.cuda.alloc_pinned_memory(4)
    flag = memoryview(gate).cast("B")
    flag[:4] = b"\0\0\0\0"
    main, side = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    block = allocator.allocate(1000, main.ptr, 1)
    pointer = block.pointer
    with side:
        spin((1,), (1,), (gate.ptr,))
    allocator.record_stream(block, side.ptr)
    allocator.free(block)
    other = allocator.allocate(1000, main.ptr, 1)
    assert other.pointer != pointer
    assert allocator.memory_stats()["active.all.current"] == 2
    flag[:4] = b"\1\0\0\0"
    side.synchronize()
    again = allocator.allocate(1000, main.ptr, 1)
    assert again.pointer == pointer
    allocator.free(other)
    allocator.free(again)


def test_the_cards_real_limit_is_an_error_and_no_end(allocator: CachingAllocator) -> None:
    free, _ = allocator.mem_get_info()
    held = [allocator.allocate(free // 2, 0, 1)]
    with pytest.raises(OutOfMemoryError, match="out of memory on cuda:0: wanted"):
        allocator.allocate(free * 2 // 3, 0, 2)
    allocator.free(held.pop())
    block = allocator.allocate(free * 2 // 3, 0, 2)
    stats = allocator.memory_stats()
    assert (stats["num_ooms"], stats["num_alloc_retries"]) == (1, 2)
    allocator.free(block)
