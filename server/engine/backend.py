"""A device as the engine sees it: memory for values, arrays over that memory, and the array library.

``CpuBackend`` is NumPy over the allocator's host arenas, ``CudaBackend`` CuPy over its device blocks; everything above
works on both without a branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import CPU, Device, Meta

from . import context, keys
from .value import Storage, Value

if TYPE_CHECKING:
    from server.allocator import CachingAllocator

NUMPY_DTYPES: dict[DType, np.dtype[Any]] = {
    dtype: np.dtype(ml_dtypes.bfloat16 if dtype is dtypes.bfloat16 else dtype.name) for dtype in dtypes.ALL
}
np.seterr(all="ignore")  # kernels meet infinities and NaN as a matter of course

BY_NUMPY: dict[np.dtype[Any], DType] = {numpy_dtype: dtype for dtype, numpy_dtype in NUMPY_DTYPES.items()}
HALVES = frozenset((dtypes.float16, dtypes.bfloat16))


class Backend:
    """What every device offers; subclasses say how arrays come about."""

    xp: Any
    key: int

    def __init__(self, device: Device, allocator: CachingAllocator) -> None:
        self.device = device
        self.allocator = allocator

    def array(self, storage: Storage, meta: Meta) -> Any:
        """An array over ``storage`` as ``meta`` says."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until everything that was launched has run."""

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """A row-major host copy; waits for the device."""
        raise NotImplementedError

    def fill_from_host(self, value: Value, data: np.ndarray[Any, Any]) -> None:
        """Copy ``data``, of the value's shape and dtype, into it."""
        raise NotImplementedError

    def empty(self, meta: Meta) -> Value:
        """A new value of uninitialised memory, accounted to the current owner."""
        ctx = context.current
        itemsize = meta.dtype.itemsize
        nbytes = meta.numel * itemsize if meta.is_contiguous else meta.extent * itemsize
        block = self.allocator.allocate(nbytes, ctx.streams.get(self.device, 0), ctx.owner)
        return Value(Storage(self.allocator, block, nbytes), meta, self)

    def adopt(self, array: Any, meta: Meta) -> Value:
        """A value of what a kernel returned, in the layout and dtype that the contract promised."""
        value = self.empty(meta)
        self.store(value.array, array)
        return value

    def store(self, target: Any, array: Any) -> None:
        """Copy ``array`` into ``target``, casting without checks."""
        self.xp.copyto(target, array, casting="unsafe")


class CpuBackend(Backend):
    """NumPy on the allocator's host arenas."""

    xp = np
    key = keys.CPU

    def array(self, storage: Storage, meta: Meta) -> Any:
        block = storage.block
        itemsize = meta.dtype.itemsize
        offset = block.offset + meta.offset * itemsize
        strides = None if meta.is_contiguous else tuple([stride * itemsize for stride in meta.strides])
        return np.ndarray(meta.shape, NUMPY_DTYPES[meta.dtype], block.segment.buffer, offset, strides)

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        return np.array(array, order="C")

    def fill_from_host(self, value: Value, data: np.ndarray[Any, Any]) -> None:
        np.copyto(value.array, data)


_OPEN: dict[Device, Backend] = {}


def open_device(device: Device) -> Backend:
    """The process's one backend of a device; opened at first use."""
    found = _OPEN.get(device)
    if found is None:
        found = _OPEN[device] = _open_cpu() if device.type == "cpu" else _open_cuda(device)
    return found


def _open_cpu() -> Backend:
    from server.allocator import CachingAllocator, HostUpstream

    return CpuBackend(CPU, CachingAllocator(HostUpstream()))


def _open_cuda(device: Device) -> Backend:
    from .cuda import CudaBackend

    return CudaBackend.open(device)
