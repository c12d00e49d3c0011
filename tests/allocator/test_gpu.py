"""The allocator on a real GPU: against PyTorch's, with real streams, at the card's real limit."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from server.allocator import AllocatorConfig, CachingAllocator
from server.allocator.cache.pinned import PinnedCache
from server.allocator.core.sizes import MIB
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
    ("expandable_segments:True", None),
    ("expandable_segments:True", 300),
    ("expandable_segments:True,roundup_power2_divisions:4", 260),
]
TRACES = pathlib.Path(__file__).parents[2] / "benchmarks" / "traces"


@pytest.fixture
def whole_card() -> None:
    """For tests that need nearly all of the card's memory: while they run, those beside them wait."""


@pytest.fixture(autouse=True)
def _take_turns(request: pytest.FixtureRequest) -> Iterator[None]:
    with open(pathlib.Path(tempfile.gettempdir()) / "telegrad-card.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if "whole_card" in request.fixturenames else fcntl.LOCK_SH)
        yield


@pytest.fixture(params=[False, True], ids=["segments", "expandable"])
def allocator(request: pytest.FixtureRequest) -> Any:
    from server.allocator import CudaUpstream

    config = AllocatorConfig(expandable_segments=request.param)
    allocator = CachingAllocator(CudaUpstream(0), config, device="cuda:0")
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


@pytest.mark.parametrize("options", ["", "expandable_segments:True"])
@pytest.mark.parametrize("name", ["gpt2-small", "gpt2-rising"])
def test_recorded_training_is_served_as_by_pytorch(name: str, options: str, whole_card: None) -> None:
    """The same statistics after every event, and so the same peak of reserved bytes."""
    command = [sys.executable, "-m", "tests.allocator.differential", str(TRACES / f"{name}.json.gz")]
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": options}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    print(name, options or "defaults", done.stdout.splitlines()[-1])


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


def test_the_cards_real_limit_is_an_error_and_no_end(allocator: CachingAllocator, whole_card: None) -> None:
    free, _ = allocator.mem_get_info()
    held = [allocator.allocate(free // 2, 0, 1)]
    with pytest.raises(OutOfMemoryError, match="out of memory on cuda:0: wanted"):
        allocator.allocate(free * 2 // 3, 0, 2)
    allocator.free(held.pop())
    block = allocator.allocate(free * 2 // 3, 0, 2)
    stats = allocator.memory_stats()
    # A segment that grows needs no second attempt.
    assert (stats["num_ooms"], stats["num_alloc_retries"]) == (1, 1 if allocator.config.expandable_segments else 2)
    allocator.free(block)


def test_a_card_that_is_full_to_the_brim_recovers(allocator: CachingAllocator, whole_card: None) -> None:
    """Nothing is lost where the device says no, and what one block gives back another can have."""
    free, _ = allocator.mem_get_info()
    held = []
    with pytest.raises(OutOfMemoryError, match=r"out of memory on cuda:0: wanted 1\.00 GiB"):
        while True:
            held.append(allocator.allocate(1 << 30, 0, 1))
            before = allocator.memory_stats()
    after = allocator.memory_stats()
    assert len(held) >= (free >> 30) - 2
    assert {key for key in before if before[key] != after[key]} <= {"num_ooms", "num_alloc_retries", *SYNCHRONIZED}
    pointer = held[len(held) // 2].pointer
    allocator.free(held.pop(len(held) // 2))
    again = allocator.allocate(1 << 30, 0, 1)
    assert again.pointer == pointer and _bytes_after_filling(again, 5) == {5}
    for block in (*held, again):
        allocator.free(block)


SYNCHRONIZED = ("num_sync_all_streams",)


def _bytes_after_filling(block: Any, value: int) -> set[int]:
    import cupy as cp

    cp.cuda.runtime.memset(block.pointer, value, block.size)
    memory = cp.cuda.UnownedMemory(block.pointer, block.size, block, 0)
    array = cp.ndarray((block.size,), cp.uint8, cp.cuda.MemoryPointer(memory, 0))
    return {int(array.min()), int(array.max())}


def test_what_another_stream_still_reads_is_not_overwritten(allocator: CachingAllocator, rng: Any) -> None:
    """A slow stream copies what a fast one wrote, and freed in the meantime, many times over; the first wait for us."""
    import cupy as cp

    wait = cp.RawKernel(
        'extern "C" __global__ void wait(const volatile int* is_open, long long cycles)'
        " { while (!*is_open) { } long long begin = clock64(); while (clock64() - begin < cycles) { } }", "wait"
    )  # fmt: skip
    wait.compile()
    fast, slow = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    nbytes, held = 1 << 20, 8
    copies = cp.zeros((64, nbytes), cp.uint8)
    pointers = []
    gate = cp.cuda.alloc_pinned_memory(4)
    is_open = np.frombuffer(gate, np.int32, 1)
    is_open[0] = 0
    cp.cuda.Device().synchronize()
    try:
        for at in range(len(copies)):
            if at == held:
                is_open[0] = 1
            block = allocator.allocate(nbytes, fast.ptr, 1)
            pointers.append(block.pointer)
            cp.cuda.runtime.memsetAsync(block.pointer, at + 1, nbytes, fast.ptr)
            slow.wait_event(fast.record())
            with slow:
                wait((1,), (1,), (np.uint64(gate.ptr), int(rng.integers(100_000))))
            cp.cuda.runtime.memcpyAsync(copies[at].data.ptr, block.pointer, nbytes, 3, slow.ptr)
            allocator.record_stream(block, slow.ptr)
            allocator.free(block)
    finally:
        is_open[0] = 1
        slow.synchronize()
    assert (copies.get() == cp.arange(1, 65, dtype=cp.uint8).get()[:, None]).all()
    assert len(set(pointers[:held])) == held
    allocator.free(allocator.allocate(nbytes, fast.ptr, 1))
    assert allocator.memory_stats()["active.all.current"] == 0


def _leave_data_behind(allocator: CachingAllocator, stream: int) -> None:
    """What the driver gives out next may hold data of session 3."""
    import cupy as cp

    block = allocator.allocate(100 << 20, stream, 3)
    cp.cuda.runtime.memset(block.pointer, 7, block.size)
    cp.cuda.Device().synchronize()
    allocator.free(block)
    allocator.empty_cache()


def test_a_graph_is_captured_in_a_private_pool_and_replays(allocator: CachingAllocator) -> None:
    """Its memory is obtained while the stream is captured, even for a side stream, and stays until the pool goes."""
    import cupy as cp

    stream, side = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    result = cp.zeros(3 << 20, cp.uint8)
    _leave_data_behind(allocator, stream.ptr)
    pool = allocator.new_mem_pool(1)
    allocator.begin_allocate_to_pool(pool, 1)
    stream.begin_capture(cp.cuda.runtime.streamCaptureModeGlobal)
    block = allocator.allocate(3 << 20, stream.ptr, 1)
    cp.cuda.runtime.memsetAsync(block.pointer, 9, 3 << 20, stream.ptr)
    side.wait_event(stream.record())
    cp.cuda.runtime.memcpyAsync(result.data.ptr, block.pointer, 3 << 20, 3, side.ptr)
    stream.wait_event(side.record())
    allocator.record_stream(block, side.ptr)
    allocator.free(block)
    second = allocator.allocate(3 << 20, stream.ptr, 1)
    assert second.pointer != block.pointer, "it waits for the side stream"
    graph = stream.end_capture()
    allocator.end_allocate_to_pool(1)
    other = allocator.allocate(3 << 20, stream.ptr, 2)
    assert other.pointer not in (block.pointer, second.pointer)
    stream.synchronize()
    for each in (second, other):
        memory = cp.cuda.UnownedMemory(each.pointer, each.size, each, 0)
        assert not cp.ndarray((each.size,), cp.uint8, cp.cuda.MemoryPointer(memory, 0)).any()
    for _ in range(3):
        result[:] = 0
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert (result == 9).all()
    for each in (second, other):
        allocator.free(each)
    del graph
    allocator.release_mem_pool(pool)


def test_unmapped_pages_are_free_for_others_and_come_back_with_the_addresses(whole_card: None) -> None:
    """By the gibibyte, because what other processes take and give back in the meantime shows too."""
    import cupy as cp

    from server.allocator import CudaUpstream

    upstream = CudaUpstream(0)
    allocator = CachingAllocator(upstream, AllocatorConfig(expandable_segments=True), device="cuda:0")
    blocks = [allocator.allocate(8 << 30, 0, 1) for _ in range(4)]
    for at, block in enumerate(blocks):
        cp.cuda.runtime.memset(block.pointer, at + 1, block.size)
    free, _ = upstream.free_and_total()
    middle = blocks.pop(1)
    pointer = middle.pointer
    allocator.free(middle)
    allocator.empty_cache()
    assert upstream.free_and_total()[0] - free >= 4 << 30
    again = allocator.allocate(8 << 30, 0, 2)
    assert again.pointer == pointer
    for block, value in zip([*blocks, again], (1, 3, 4, 0)):
        memory = cp.cuda.UnownedMemory(block.pointer, block.size, block, 0)
        array = cp.ndarray((block.size,), cp.uint8, cp.cuda.MemoryPointer(memory, 0))
        assert int(array.min()) == int(array.max()) == value
        allocator.free(block)
    allocator.empty_cache()
    assert not allocator.heap.segments


def test_a_private_pool_keeps_its_memory_to_itself(allocator: CachingAllocator) -> None:
    pool = allocator.new_mem_pool(1)
    with allocator.use_mem_pool(pool, 1):
        block = allocator.allocate(30 * MIB, 0, 1)
    pointer = block.pointer
    allocator.free(block)
    other = allocator.allocate(30 * MIB, 0, 1)
    assert other.pointer != pointer
    with allocator.use_mem_pool(pool, 1):
        again = allocator.allocate(30 * MIB, 0, 1)
    assert again.pointer == pointer
    for each in (again, other):
        allocator.free(each)
    allocator.release_mem_pool(pool)


@pytest.mark.parametrize("registers", [False, True])
def test_pinned_memory_is_reused_once_the_copy_is_done(registers: bool) -> None:
    import cupy as cp

    from server.allocator import CudaUpstream

    cache = PinnedCache(CudaUpstream(0, registers_pinned=registers))
    stream = cp.cuda.Stream(non_blocking=True)
    target = cp.zeros(8 << 20, cp.uint8)
    pointers = set()
    for value in range(1, 9):
        buffer = cache.allocate(8 << 20)
        buffer.array()[:] = value
        pointers.add(buffer.pointer)
        cp.cuda.runtime.memcpyAsync(target.data.ptr, buffer.pointer, 8 << 20, 1, stream.ptr)
        buffer.record_stream(stream.ptr)
        del buffer
        back = cache.allocate(8 << 20)
        cp.cuda.runtime.memcpyAsync(back.pointer, target.data.ptr, 8 << 20, 2, stream.ptr)
        stream.synchronize()
        assert set(np.unique(back.array())) == {value}
    assert len(pointers) < 8
    assert cp.cuda.pinned_memory.is_memory_pinned(back.pointer)
    del back
    cache.empty_cache()
    assert cache.stats()["allocated_bytes.current"] == 0


@pytest.mark.parametrize("options", ["", "expandable_segments:True"])
def test_all_that_the_engine_and_cupy_allocate_is_accounted_and_gone_at_the_end(options: str) -> None:
    """In a process of its own, because the options are read at start."""
    environment = {**os.environ, "TELEGRAD_ALLOC_CONF": options}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    print(done.stdout)


SCRIPT = """
import numpy as np, cupy as cp, telegrad as tg
from server.worker.host import Host
host = Host(["cuda:0"])
backend = host.backend("cuda:0")
with tg.connect(in_process=host) as connection:
    number = connection.session.transport._session.state.number
    tg.cuda.memory._record_memory_history()
    data = np.random.default_rng(1).standard_normal((4096, 4096)).astype(np.float32)
    x = tg.tensor(data)
    assert np.array_equal(x.numpy(), data)
    y = (x @ x).sort(dim=1)[0].cumsum(0) if hasattr(tg.Tensor, "cumsum") else x @ x
    y.sum().item()
    assert cp.get_default_memory_pool().total_bytes() == 0, "CuPy has a pool of its own"
    assert cp.get_default_pinned_memory_pool().n_free_blocks() == 0, "CuPy has a pinned pool of its own"
    assert tg.cuda.memory_allocated() == backend.allocator.allocated_bytes(number) > 64 << 20
    blocks = [b for s in tg.cuda.memory_snapshot() for b in s["blocks"] if b["frames"]]
    assert blocks and all(b["frames"][-1]["filename"] == "<string>" for b in blocks)
    pinned = tg.cuda.host_memory_stats()
    assert pinned["num_host_alloc"] > 0
    try:
        tg.empty(1 << 40, dtype=tg.uint8); tg.cuda.synchronize()
        raise SystemExit("a tebibyte was allocated")
    except tg.cuda.OutOfMemoryError as error:
        assert "out of memory on cuda:0" in str(error) and "caused by <string>" in str(error)
    assert tg.ones(10).sum().item() == 10
    with tg.cuda.stream(tg.cuda.Stream()):
        z = tg.zeros(64 << 20, dtype=tg.uint8)
    del z
    tg.cuda.synchronize()
    reserved = tg.cuda.memory_reserved()
    tg.cuda.empty_cache()
    assert tg.cuda.memory_reserved() <= reserved - (64 << 20), "the cache of another stream stays"
    del x, y
held = backend.allocator.allocated_bytes(number)
assert held == 0, held
backend.allocator.empty_cache()
print(backend.allocator.memory_summary(abbreviated=True), backend.pinned.stats())
"""
