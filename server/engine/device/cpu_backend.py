"""The host as the engine sees it: NumPy over the allocator's host arenas."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any

import numpy as np

from server.allocator import CachingAllocator, HostUpstream
from server.allocator.core.options import options_of_environment
from server.engine import keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.blas_threads import LARGE, on_all_threads
from server.engine.device.interface import Download, Mark, Upload
from server.engine.in_c import arrays as arrays_in_c
from server.engine.value import Storage, Value
from telegrad_protocol.meta import CPU, Meta

from .memory import AllocatingBackend

np.seterr(all="ignore")  # kernels meet infinities and NaN as a matter of course


class HostMark:
    """A point in the host's work, which is always done: the host computes at once."""

    def is_ready(self) -> bool:
        return True


class HostUpload:
    """Writes into a host value's own memory."""

    __slots__ = ("_memory", "_value")

    def __init__(self, value: Value) -> None:
        self._value = value  # keeps the storage alive
        self._memory = value.array.reshape(-1).view(np.uint8)

    def write(self, offset: int, data: memoryview) -> None:
        self._memory[offset : offset + len(data)] = np.frombuffer(data, np.uint8)


class HostDownload:
    """A copy of a host value, or a view of it, which is complete from the start."""

    __slots__ = ("_copy",)

    def __init__(self, copy: np.ndarray[Any, Any]) -> None:
        self._copy = copy

    def is_ready(self) -> bool:
        return True

    def bytes(self) -> memoryview:
        flat = self._copy if isinstance(self._copy, _HostView) else self._copy.reshape(-1).view(np.uint8)
        return flat.data


class _HostView(np.ndarray[Any, Any]):
    """A view of a host value's own memory, which keeps that memory allocated."""

    storage: Storage


def layout_of(meta: Meta) -> tuple[tuple[int, ...], np.dtype[Any], tuple[int, ...] | None, int]:
    """Return the shape, dtype, and strides in bytes of arrays of a meta, None for row-major, and where they begin.

    That is in bytes from where the memory of the tensor begins.
    """
    itemsize = meta.dtype.itemsize
    strides = None if meta.is_contiguous else tuple([stride * itemsize for stride in meta.strides])
    return meta.shape, NUMPY_DTYPES[meta.dtype], strides, meta.offset * itemsize if meta.numel else 0


class CpuBackend(AllocatingBackend):
    """NumPy on the allocator's host arenas."""

    xp = np
    key = keys.CPU
    least_spent = 1 << 20

    @classmethod
    def open(cls) -> CpuBackend:
        """The backend of this host's memory."""
        return cls(CPU, CachingAllocator(HostUpstream(), options_of_environment()))

    def array(self, storage: Storage, meta: Meta) -> Any:
        block = storage.block
        if block.meta is meta and block.is_stable:
            return block.array
        shape, dtype, strides, offset = layout_of(meta)
        array = np.ndarray(shape, dtype, block.segment.buffer, block.offset + offset, strides)
        if strides is None and block.is_stable:
            block.array, block.meta = array, meta
        return array

    def mark(self) -> Mark:
        return HostMark()

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        return np.array(array, order="C")

    def fill_from_host(self, value: Value, data: np.ndarray[Any, Any]) -> None:
        np.copyto(value.array, data)

    def open_upload(self, value: Value) -> Upload:
        return HostUpload(value)

    def open_download(self, value: Value) -> Download:
        return HostDownload(self.to_host(value.array))

    def bytes_at_once(self, value: Value) -> bytes | None:
        return value.array.tobytes()  # type: ignore[no-any-return]

    def host_view(self, value: Value) -> Download | None:
        if not value.meta.is_contiguous:
            return None
        view = value.array.reshape(-1).view(np.uint8).view(_HostView)
        view.storage = value.storage
        return HostDownload(view)

    def threaded(self, run: Callable[..., Any], nbytes: int) -> Callable[..., Any]:
        return on_all_threads(run) if nbytes >= LARGE else run

    def memory_info(self) -> tuple[int, int]:
        free, total = self.allocator.upstream.free_and_total()
        return min(free, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")), total

    def properties(self) -> dict[str, Any]:
        return {
            "name": platform.processor() or platform.machine(),
            "total_memory": self.memory_info()[1],
            "multi_processor_count": os.cpu_count() or 1,
        }


arrays_in_c.prepare(CpuBackend, layout_of)
