"""The server's caching allocator, under the names of ``torch.cuda.memory``.

Figures are those of the session, but for what is reserved: that is shared by all sessions of the device. Every function
waits for its answer: one round trip.
"""

from __future__ import annotations

import os
import pickle  # noqa: TID251  # written for PyTorch's viewer, never read
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from telegrad._session.current import current_session
from telegrad._session.devices import DeviceLike, device_name
from telegrad._tensor.html import escape
from telegrad_protocol.errors import ArgumentError, NotSupportedError

from .streams import Stream, check_stream

__all__ = [
    "MemPool", "caching_allocator_alloc", "caching_allocator_delete", "empty_cache", "get_allocator_backend",
    "get_per_process_memory_fraction", "host_memory_stats", "host_memory_stats_as_nested_dict",
    "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_cached", "memory_reserved", "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict",
    "memory_summary", "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_host_memory_stats", "reset_peak_memory_stats", "set_per_process_memory_fraction", "use_mem_pool",
]  # fmt: skip


def _ask(what: str, device: DeviceLike, *args: Any) -> Any:
    return current_session().query(what, device_name(device), *args)


def _all_devices() -> list[str]:
    """Return the names of all GPUs, of the CPU if there is no GPU."""
    gpus = [device.name for device in current_session().devices if device.type == "cuda"]
    return gpus or [device_name(None)]


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """The allocator's statistics for this session."""
    return _ask("memory_stats", device)  # type: ignore[no-any-return]


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """`memory_stats`, a dictionary per statistic, pool and amount."""
    return _nested(memory_stats(device))


class MemorySummary(str):
    """The text of ``memory_summary``, which notebooks show as a table and not as a quoted string."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> MemorySummary:
    """The allocator's statistics for this session as a table."""
    return MemorySummary(_ask("memory_summary", device, abbreviated))


def memory_snapshot(mempool_id: Sequence[int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """Segments and their blocks; of other sessions only where their blocks lie. ``mempool_id`` picks one pool's."""
    segments: list[dict[str, Any]] = _snapshot(include_traces=include_traces)["segments"]
    wanted = None if mempool_id is None else tuple(mempool_id)
    return [segment for segment in segments if wanted in (None, segment["segment_pool_id"])]


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes in tensors of this session."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes that were in tensors of this session at a time."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that the allocator holds for all sessions."""
    return int(_ask("memory_stats", device, False)["reserved_bytes.all.current"])


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes that the allocator held at a time."""
    return int(_ask("memory_stats", device, False)["reserved_bytes.all.peak"])


def memory_cached(device: DeviceLike = None) -> int:
    """`memory_reserved`; the older name."""
    return memory_reserved(device)


def max_memory_cached(device: DeviceLike = None) -> int:
    """`max_memory_reserved`; the older name."""
    return max_memory_reserved(device)


def host_memory_stats() -> dict[str, int]:
    """Statistics of the pinned memory that copies of all sessions run through, for the current GPU; empty for a CPU."""
    return _ask("host_memory_stats", None)  # type: ignore[no-any-return]


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """`host_memory_stats`, a dictionary per statistic and amount."""
    return _nested(host_memory_stats())


def reset_peak_host_memory_stats() -> None:
    """Begin the peaks of `host_memory_stats` anew, for all sessions."""
    _ask("reset_host_memory", None, True)


def reset_accumulated_host_memory_stats() -> None:
    """Begin the counters of `host_memory_stats` anew, for all sessions."""
    _ask("reset_host_memory", None, False)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Begin the peaks anew."""
    _ask("reset_peak", device)


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """Begin the peaks anew; the older name."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """Begin the peaks anew; the older name."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Begin the counters anew."""
    _ask("reset_accumulated", device)


def empty_cache() -> None:
    """Give memory back to the devices that no tensor uses and that no other session can use."""
    for name in _all_devices():
        _ask("empty_cache", name)


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free and total bytes of the device."""
    free, total = _ask("mem_get_info", device)
    return free, total


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limit the bytes in use by this session to a share of the device's memory; the operator's limit still holds."""
    _ask("set_memory_fraction", device, float(fraction))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """The share of the device's memory that this session may have in use."""
    return float(_ask("memory_fraction", device))


def caching_allocator_alloc(size: int, device: DeviceLike = None, stream: Stream | None = None) -> int:
    """The address, on the server, of memory that stays until ``caching_allocator_delete`` or the session's end.

    ``stream``, which only has to be one, changes nothing: no kernel of the program uses the memory.
    """
    if stream is not None:
        check_stream("caching_allocator_alloc", stream)
    return int(_ask("caching_allocator_alloc", device, size))


def caching_allocator_delete(mem_ptr: int) -> None:
    """Give back what ``caching_allocator_alloc`` returned; ArgumentError if no device has such memory."""
    *others, last = _all_devices()
    for name in others:
        with suppress(ArgumentError):
            _ask("caching_allocator_delete", name, mem_ptr)
            return
    _ask("caching_allocator_delete", last, mem_ptr)


def get_allocator_backend() -> str:
    """Which allocator the server has: there is one."""
    return "native"


class MemPool:
    """Memory of its own: what is allocated within `use_mem_pool` shares nothing with the rest.

    It belongs to the current GPU, and is there until `release`, or the end of the session. The other arguments of
    PyTorch's are refused: the server has one allocator, which uses a pool for nothing else and splits its segments.
    """

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if allocator is not None or use_on_oom or no_split:
            raise NotSupportedError(
                "MemPool: the server has one allocator, without use_on_oom and no_split; use MemPool()"
            )
        self._session = current_session()
        self._device = device_name(None)
        first, second = self._session.query("new_mem_pool", self._device)
        self.id: tuple[int, int] = (first, second)

    def use_count(self) -> int:
        """How many uses keep the pool: its own, and one for every `use_mem_pool` that it is in."""
        return int(self._session.query("mem_pool_uses", self._device, *self.id))

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """The pool's segments and their blocks."""
        snapshot = self._session.query("memory_snapshot", self._device, include_traces)
        return [segment for segment in _with_pool_tuples(snapshot)["segments"] if segment["segment_pool_id"] == self.id]

    def release(self) -> None:
        """Give the pool up; its memory goes back as it becomes free."""
        self._session.query("release_mem_pool", self._device, *self.id)


@contextmanager
def use_mem_pool(pool: MemPool, device: DeviceLike = None) -> Iterator[None]:
    """Let what this session allocates within the block come from ``pool``."""
    name = pool._device if device is None else device_name(device)
    if name != pool._device:
        raise ArgumentError(f"use_mem_pool: the pool is one of {pool._device}, not of {name}")
    pool._session.query("use_mem_pool", name, *pool.id)
    try:
        yield
    finally:
        pool._session.query("leave_mem_pool", name)


def _record_memory_history(
    enabled: str | None = "all", context: str | None = "all", stacks: str = "all", max_entries: int = sys.maxsize,
    device: DeviceLike = None, clear_history: bool = False, skip_actions: Sequence[str] | None = None,
) -> None:  # fmt: skip
    """Keep a trace of this session's allocations (``"all"``), or the lines that hold memory (``"state"``), or nothing.

    Frames are the operation and the line of this program that called it; ``stacks`` is there for PyTorch's callers.
    The server keeps at most the last 100,000 entries. While anybody records, allocations take microseconds longer.
    """
    skipped = list(skip_actions or ())
    _ask("record_memory_history", device, enabled or "", max_entries, context or "", clear_history, skipped)


def _snapshot(device: DeviceLike = None, include_traces: bool = True) -> dict[str, Any]:
    """Segments, blocks, trace and settings of the allocator, as `torch.cuda.memory._snapshot` has them.

    Those of all GPUs, numbered in their order, where no device is named.
    """
    names = _all_devices() if device is None else [device_name(device)]
    snapshots = [_with_pool_tuples(_ask("memory_snapshot", name, include_traces)) for name in names]
    if len(snapshots) > 1:
        for number, snapshot in enumerate(snapshots):
            for segment in snapshot["segments"]:
                segment["device"] = number
        for key in ("segments", "device_traces"):
            snapshots[0][key] = [item for snapshot in snapshots for item in snapshot[key]]
    return snapshots[0]


def _dump_snapshot(filename: str | os.PathLike[str] = "dump_snapshot.pickle") -> None:
    """Write `_snapshot` as the file that pytorch.org/memory_viz and ``torch/cuda/_memory_viz.py`` open."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file, protocol=4)


def _with_pool_tuples(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the snapshot with the ids of pools as tuples, as PyTorch has them; they travel as lists."""
    for segment in snapshot["segments"]:
        segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
    return snapshot


def _nested(flat: dict[str, int]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, amount in flat.items():
        *path, last = key.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = amount
    return nested
