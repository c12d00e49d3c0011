"""The caching allocator of pinned host memory, which copies between host and device run through.

Its algorithm is that of PyTorch's caching host allocator: blocks have sizes of powers of two, and are reused once the
streams that used them have passed. Blocks above a limit are given back at once. One thread calls it, but Python's
garbage collector may drop a buffer in the middle of a call, so that dropping only notes the block. Knows no device but
its upstream.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Protocol

import numpy as np

from server.allocator.core.config import AllocatorConfig
from server.allocator.core.counters import Duration, Stat
from telegrad_protocol.errors import ArgumentError, OutOfMemoryError


class PinnedUpstream(Protocol):
    """A source of pinned memory, with events that tell when a stream has passed."""

    def obtain_pinned(self, nbytes: int) -> int | None:
        """The address of page-locked memory; None where there is no room."""

    def give_back_pinned(self, pointer: int) -> None: ...
    def record_event(self, stream: int) -> Any: ...
    def is_done(self, event: Any) -> bool: ...
    def wait_for(self, event: Any) -> None: ...


class PinnedBlock:
    """A piece of pinned memory."""

    __slots__ = ("pointer", "size", "streams")

    def __init__(self, pointer: int, size: int) -> None:
        self.pointer = pointer
        self.size = size
        self.streams: set[int] = set()


class PinnedBuffer:
    """A pinned block in use: arrays can be made of it, and it is freed with the last of them."""

    __slots__ = ("__weakref__", "_block", "_cache", "nbytes")

    def __init__(self, cache: PinnedCache, block: PinnedBlock, nbytes: int) -> None:
        self._cache = cache
        self._block = block
        self.nbytes = nbytes

    @property
    def pointer(self) -> int:
        """The address of the first byte."""
        return self._block.pointer

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self._block.pointer, False), "version": 3}

    def array(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the bytes as an array, which keeps the buffer alive."""
        return np.asarray(self)

    def record_stream(self, stream: int) -> None:
        """Hold the block back, once dropped, until what ``stream`` has queued by then is done."""
        self._block.streams.add(stream)

    def has_passed(self) -> None:
        """Note that all streams that were recorded have done their work on the buffer: nothing is to be waited for."""
        self._block.streams.clear()

    def __del__(self) -> None:
        self._cache.returned.append(self._block)


class PinnedCache:
    """The pinned blocks of one device's host, with the free ones by size."""

    def __init__(self, upstream: PinnedUpstream, config: AllocatorConfig | None = None) -> None:
        self.config = config or AllocatorConfig()
        # The blocks whose buffers were dropped since the last call; appending to it is all that a finalizer does.
        self.returned: deque[PinnedBlock] = deque()
        self._upstream = upstream
        self._free: dict[int, list[PinnedBlock]] = {}
        self._waiting: deque[tuple[list[Any], PinnedBlock]] = deque()
        self._stats = {name: Stat() for name in ("allocations", "allocated_bytes", "active_requests", "active_bytes")}
        self._alloc_time, self._free_time = Duration(), Duration()

    def allocate(self, nbytes: int) -> PinnedBuffer:
        """Return pinned memory of at least ``nbytes``; raises OutOfMemoryError where there is no room."""
        if nbytes < 0:
            raise ArgumentError(f"pinned memory: {nbytes} bytes")
        self._poll()
        size = self.config.round_pinned(nbytes)
        free = self._free.get(size)
        block = free.pop() if free else self._obtain(size)
        self._stats["active_requests"].increase(1)
        self._stats["active_bytes"].increase(size)
        return PinnedBuffer(self, block, nbytes)

    def empty_cache(self) -> None:
        """Give the free blocks back to the upstream, without waiting for any stream."""
        self._poll()
        for blocks in self._free.values():
            for block in blocks:
                self._give_back(block)
        self._free.clear()

    def stats(self) -> dict[str, int]:
        """Return the statistics under the names of ``torch.cuda.host_memory_stats``."""
        self._poll()
        flat = {f"{name}.{part}": getattr(stat, part) for name, stat in self._stats.items() for part in Stat.__slots__}
        flat |= self._alloc_time.table("host_alloc_time") | self._free_time.table("host_free_time")
        return flat | {
            "num_host_alloc": self._stats["allocations"].allocated, "num_host_free": self._stats["allocations"].freed,
        }  # fmt: skip

    def reset_stats(self, is_peak: bool) -> None:
        """Let the peaks begin at what is there now, or else count what is added, removed and timed from zero."""
        for stat in self._stats.values():
            if is_peak:
                stat.peak = stat.current
            else:
                stat.allocated = stat.freed = 0
        if not is_peak:
            self._alloc_time, self._free_time = Duration(), Duration()

    def _obtain(self, size: int) -> PinnedBlock:
        begin = time.perf_counter()
        pointer = self._upstream.obtain_pinned(size)
        if pointer is None:
            self.empty_cache()
            pointer = self._upstream.obtain_pinned(size)
        self._alloc_time.note(time.perf_counter() - begin)
        if pointer is None:
            held = self._stats["allocated_bytes"].current
            raise OutOfMemoryError(f"pinned memory: no room for {size} bytes on the host, {held} bytes are held")
        self._stats["allocations"].increase(1)
        self._stats["allocated_bytes"].increase(size)
        return PinnedBlock(pointer, size)

    def _give_back(self, block: PinnedBlock) -> None:
        begin = time.perf_counter()
        self._upstream.give_back_pinned(block.pointer)
        self._free_time.note(time.perf_counter() - begin)
        self._stats["allocations"].decrease(1)
        self._stats["allocated_bytes"].decrease(block.size)

    def _poll(self) -> None:
        """Record events for the blocks that were dropped, and free those that no stream uses any more."""
        while self.returned:
            block = self.returned.popleft()
            if block.streams:
                self._waiting.append(([self._upstream.record_event(stream) for stream in sorted(block.streams)], block))
            else:
                self._release(block)
        for _ in range(len(self._waiting)):
            events, block = self._waiting.popleft()
            events[:] = [event for event in events if not self._upstream.is_done(event)]
            if events:
                self._waiting.append((events, block))
            else:
                self._release(block)

    def _release(self, block: PinnedBlock) -> None:
        block.streams.clear()
        self._stats["active_requests"].decrease(1)
        self._stats["active_bytes"].decrease(block.size)
        if block.size > self.config.pinned_max_cached_size:
            self._give_back(block)
        else:
            self._free.setdefault(block.size, []).append(block)
