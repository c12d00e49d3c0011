"""Pinned memory is handed out by powers of two and reused once its streams have passed."""

from __future__ import annotations

import random

import pytest

from server.allocator import AllocatorConfig, SimulatedUpstream
from server.allocator.cache.pinned import PinnedCache
from telegrad_protocol.errors import ArgumentError, OutOfMemoryError


@pytest.fixture
def upstream() -> SimulatedUpstream:
    return SimulatedUpstream(0)


@pytest.fixture
def cache(upstream: SimulatedUpstream) -> PinnedCache:
    return PinnedCache(upstream)


def test_sizes_are_powers_of_two(cache: PinnedCache, upstream: SimulatedUpstream) -> None:
    buffers = [cache.allocate(nbytes) for nbytes in (0, 1, 512, 513, 1 << 20, (1 << 20) + 1)]
    assert sorted(map(len, upstream.pinned.values())) == [512, 512, 512, 1024, 1 << 20, 1 << 21]
    assert [buffer.array().nbytes for buffer in buffers] == [0, 1, 512, 513, 1 << 20, (1 << 20) + 1]
    with pytest.raises(ArgumentError, match="-1 bytes"):
        cache.allocate(-1)


def test_a_buffer_goes_back_with_the_last_array_on_it(cache: PinnedCache) -> None:
    buffer = cache.allocate(700)
    pointer = buffer.pointer
    view = memoryview(buffer.array())[10:20]
    del buffer
    assert cache.allocate(700).pointer != pointer
    view.release()
    del view
    assert cache.allocate(1000).pointer == pointer


def test_a_buffer_waits_for_its_streams(cache: PinnedCache, upstream: SimulatedUpstream) -> None:
    buffer = cache.allocate(100)
    pointer = buffer.pointer
    buffer.record_stream(1)
    buffer.record_stream(2)
    del buffer
    other = cache.allocate(100)
    assert other.pointer != pointer and len(upstream.unfinished) == 2
    assert cache.stats()["active_requests.current"] == 2
    upstream.finish_events()
    assert cache.allocate(100).pointer == pointer


def test_a_buffer_whose_streams_have_passed_waits_for_none(cache: PinnedCache, upstream: SimulatedUpstream) -> None:
    buffer = cache.allocate(100)
    pointer = buffer.pointer
    buffer.record_stream(1)
    buffer.has_passed()
    del buffer
    assert cache.allocate(100).pointer == pointer and not upstream.unfinished


def test_calls_of_the_upstream_are_timed(cache: PinnedCache) -> None:
    for _ in range(3):
        cache.allocate(100)
    cache.allocate(5000)
    cache.empty_cache()
    stats = cache.stats()
    for name in ("host_alloc_time", "host_free_time"):
        least, average, most = (stats[f"{name}.{part}"] for part in ("min", "avg", "max"))
        assert stats[f"{name}.count"] == 2 and 0 <= least <= average <= most <= stats[f"{name}.total"]


def test_what_is_free_is_given_back_for_want_of_room(cache: PinnedCache, upstream: SimulatedUpstream) -> None:
    upstream.pinned_size = 10_000
    for nbytes in (4096, 2048, 1024):
        cache.allocate(nbytes)
    held = cache.allocate(8192)
    assert list(map(len, upstream.pinned.values())) == [8192]
    with pytest.raises(OutOfMemoryError, match=r"no room for 4096 bytes on the host, 8192 bytes are held"):
        cache.allocate(4096)
    del held
    cache.empty_cache()
    assert not upstream.pinned and cache.stats()["num_host_free"] == cache.stats()["num_host_alloc"] == 4


@pytest.mark.parametrize("nbytes", [1, 5000, 8192, 8193, 100_000, 200_000, 250_001])
def test_what_is_large_is_neither_rounded_nor_kept(upstream: SimulatedUpstream, nbytes: int) -> None:
    cache = PinnedCache(upstream, AllocatorConfig(pinned_max_round_threshold=8192, pinned_max_cached_size=200_000))
    cache.allocate(nbytes)
    rounded = max(512, 1 << (nbytes - 1).bit_length()) if nbytes <= 8192 else nbytes
    held = cache.stats()["allocated_bytes.current"]
    assert cache.stats()["allocated_bytes.peak"] == rounded
    assert held == (rounded if nbytes <= 200_000 else 0)


def test_no_two_buffers_share_memory(cache: PinnedCache, upstream: SimulatedUpstream, seed: int) -> None:
    draw = random.Random(seed)
    live: list = []
    for step in range(2000):
        if live and draw.random() < len(live) / 20:
            mark, buffer, array = live.pop(draw.randrange(len(live)))
            assert (array == mark).all()
            if draw.random() < 0.3:
                buffer.record_stream(draw.randrange(3))
            del buffer, array
        else:
            buffer = cache.allocate(draw.randrange(1, 5000))
            array = buffer.array()
            array[:] = step % 251
            live.append((step % 251, buffer, array))
        if draw.random() < 0.2:
            upstream.finish_events()
        sizes = [max(512, 1 << (b.nbytes - 1).bit_length()) for _, b, _ in live]
        stats = cache.stats()
        assert stats["active_bytes.current"] >= sum(sizes)
        assert stats["allocated_bytes.current"] == sum(map(len, upstream.pinned.values()))
