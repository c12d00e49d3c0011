"""The session's GPU under the names that PyTorch has for any accelerator, ``torch.accelerator``."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from telegrad_protocol.dtypes import ALL
from telegrad_protocol.meta import Device

from . import cuda
from ._session.devices import DeviceLike
from .cuda.captures import CUDAGraph, graph

__all__ = [
    "Graph", "current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count",
    "device_index", "empty_cache", "empty_host_cache", "get_device_capability", "get_memory_info", "is_available",
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_accumulated_memory_stats", "reset_peak_memory_stats", "set_device_idx", "set_device_index", "set_stream",
    "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether the server has a GPU."""
    return cuda.is_available()


def device_count() -> int:
    """How many GPUs the session can use."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The device ``cuda`` without an index; None where the server has no GPU."""
    return Device("cuda") if cuda.is_available() else None


def current_device_index() -> int:
    """The index of the calling thread's current GPU."""
    return cuda.current_device()


def set_device_index(device: DeviceLike, /) -> None:
    """Make a GPU the calling thread's current one."""
    cuda.set_device(device)


current_device_idx, set_device_idx = current_device_index, set_device_index


class device_index(cuda.device):
    """Makes the GPU of an index the current one within the block; does nothing for None."""

    def __init__(self, device: int | None, /) -> None:
        super().__init__(device)


def current_stream(device: DeviceLike = None, /) -> cuda.Stream:
    """The stream that this thread's operations on a GPU run on."""
    return cuda.current_stream(device)


def set_stream(stream: cuda.Stream) -> None:
    """Make a stream the current one of its GPU, and that the current GPU."""
    cuda.set_stream(stream)


def synchronize(device: DeviceLike = None, /) -> None:
    """Wait until a GPU has done everything submitted to it so far; raises what failed."""
    cuda.synchronize(device)


def get_device_capability(device: DeviceLike = None, /) -> dict[str, Any]:
    """The types that a GPU computes with, under ``supported_dtypes``."""
    cuda.get_device_capability(device)
    return {"supported_dtypes": set(ALL)}


def empty_cache() -> None:
    """Give memory back to the devices that no tensor uses."""
    cuda.empty_cache()


def empty_host_cache() -> None:
    """Do nothing: the server's pinned memory serves all sessions."""


def get_memory_info(device_index: DeviceLike = None, /) -> tuple[int, int]:
    """Free and total bytes of a GPU."""
    return cuda.mem_get_info(device_index)


def memory_stats(device_index: DeviceLike = None, /) -> OrderedDict[str, Any]:
    """The allocator's statistics for this session."""
    return OrderedDict(cuda.memory_stats(device_index))


def memory_allocated(device_index: DeviceLike = None, /) -> int:
    """Bytes in tensors of this session."""
    return cuda.memory_allocated(device_index)


def max_memory_allocated(device_index: DeviceLike = None, /) -> int:
    """The most bytes that were in tensors of this session at a time."""
    return cuda.max_memory_allocated(device_index)


def memory_reserved(device_index: DeviceLike = None, /) -> int:
    """Bytes that the allocator holds for all sessions."""
    return cuda.memory_reserved(device_index)


def max_memory_reserved(device_index: DeviceLike = None, /) -> int:
    """The most bytes that the allocator held at a time."""
    return cuda.max_memory_reserved(device_index)


def reset_accumulated_memory_stats(device_index: DeviceLike = None, /) -> None:
    """Begin the counters anew."""
    cuda.reset_accumulated_memory_stats(device_index)


def reset_peak_memory_stats(device_index: DeviceLike = None, /) -> None:
    """Begin the peaks anew."""
    cuda.reset_peak_memory_stats(device_index)


class Graph(CUDAGraph):
    """A ``CUDAGraph`` that captures what is submitted within its ``with`` block."""

    def __init__(
        self, keep_graph: bool = False, *, pool: tuple[int, int] | None = None, capture_error_mode: str = "default"
    ) -> None:
        super().__init__(keep_graph)
        self._chosen_pool = pool
        self._mode = "global" if capture_error_mode == "default" else capture_error_mode
        self._blocks: list[graph] = []

    def capture_begin(
        self, pool: tuple[int, int] | None = None, capture_error_mode: str = "", check_input_liveness: bool = False
    ) -> None:
        """Capture from here on, into the pool and in the mode that the graph was made with, where none are given."""
        super().capture_begin(pool or self._chosen_pool, capture_error_mode or self._mode, check_input_liveness)

    def __enter__(self) -> Graph:
        self._blocks.append(graph(self, capture_error_mode=self._mode))
        self._blocks[-1].__enter__()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._blocks.pop().__exit__(kind, error, traceback)
