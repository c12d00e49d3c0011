"""A device as the engine sees it: memory for values, arrays over that memory, and the array library.

``CpuBackend`` is NumPy over the allocator's host arenas, ``CudaBackend`` CuPy over its device blocks; everything above
works on both without a branch.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import ml_dtypes
import numpy as np

from server.engine import context
from server.engine.value import Storage, Value, new_storage, new_value
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.meta import Device, Meta

if TYPE_CHECKING:
    from server.allocator import Block, CachingAllocator
    from server.engine.operators import Launch

NUMPY_DTYPES: dict[DType, np.dtype[Any]] = {
    dtype: np.dtype(ml_dtypes.bfloat16 if dtype is dtypes.bfloat16 else dtype.name) for dtype in dtypes.ALL
}
np.seterr(all="ignore")  # kernels meet infinities and NaN as a matter of course

BY_NUMPY: dict[np.dtype[Any], DType] = {numpy_dtype: dtype for dtype, numpy_dtype in NUMPY_DTYPES.items()}
HALVES = frozenset((dtypes.float16, dtypes.bfloat16))


class Upload(Protocol):
    """The receiving end of an upload."""

    def write(self, offset: int, data: memoryview) -> None:
        """Store bytes at an offset."""


class Download(Protocol):
    """A copy on its way to the host."""

    def is_ready(self) -> bool:
        """Whether all bytes have arrived."""

    def bytes(self) -> memoryview:
        """The bytes; waits for them if need be."""


class Mark(Protocol):
    """A point in the work of a device."""

    def is_ready(self) -> bool:
        """Whether the device has come this far."""


class Event(Mark, Protocol):
    """A mark that can be moved, that streams can wait for, and between two of which time can be told."""

    is_timed: bool

    def record(self, stream: int) -> None:
        """Become the point that a raw stream will reach with what it has been given by now."""

    def hold(self, stream: int) -> None:
        """Let what a raw stream is given from here on wait for this event."""

    def milliseconds_to(self, later: Any) -> float:
        """The time between two timed events that have both been reached."""


class Capture(Protocol):
    """Work that a device has noted."""

    def launch(self) -> bool:
        """Do it, on the stream that it was noted on; False where the device refuses, and nothing was done."""


class Backend:
    """What every device offers; subclasses say how arrays come about."""

    xp: Any
    key: int
    can_capture = False
    """Whether work can be noted and launched at once; see ``capture``."""

    def __init__(self, device: Device, allocator: CachingAllocator) -> None:
        self.device = device
        self.allocator = allocator
        self.stream = 0
        """The stream that work is launched on: that of the session whose turn it is."""
        self._busy = False
        self._late: list[Block] = []

    def array(self, storage: Storage, meta: Meta) -> Any:
        """An array over ``storage`` as ``meta`` says."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until everything that was launched has run."""

    def array_from(self, value: Value) -> Any:
        """The elements of another device's value, in memory of this one; through the host."""
        return self.xp.asarray(value.backend.to_host(value.array))

    def mark(self) -> Mark:
        """What has been launched so far; waiting for it holds up nobody else."""
        raise NotImplementedError

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """A row-major host copy; waits for the device."""
        raise NotImplementedError

    def fill_from_host(self, value: Value, data: np.ndarray[Any, Any]) -> None:
        """Copy ``data``, of the value's shape and dtype, into it."""
        raise NotImplementedError

    def open_upload(self, value: Value) -> Upload:
        """Where the bytes of a new row-major value are written, in order."""
        raise NotImplementedError

    def open_download(self, value: Value) -> Download:
        """Begin to copy a value's elements, row-major, into host memory."""
        raise NotImplementedError

    def enter(self, ctx: context.Context) -> None:
        """Work for ``ctx`` from here on: use its stream."""

    def leave(self, ctx: context.Context) -> None:
        """``ctx`` has ended: wait for what it launched."""

    def use_stream(self, ctx: context.Context, number: int) -> None:
        """Work for ``ctx`` on its stream of that number from here on."""
        raise self._without_streams()

    def stream_of(self, ctx: context.Context, number: int) -> int:
        """The raw stream that ``ctx`` knows by a number."""
        raise self._without_streams()

    def switch(self, ctx: context.Context, stream: int) -> None:
        """Work for ``ctx`` on a raw stream from here on."""
        raise self._without_streams()

    def join(self, producer: int, consumer: int) -> None:
        """Let what one raw stream gets from here on wait for what another one has by now."""
        raise self._without_streams()

    def new_event(self, is_timed: bool) -> Event:
        """A point in the work of a stream, not recorded yet."""
        raise self._without_streams()

    def _without_streams(self) -> NotSupportedError:
        return NotSupportedError(f"stream: device {self.device} has no streams and events; CUDA devices have")

    def marks(self, ctx: context.Context) -> list[Mark]:
        """What has been launched so far on all streams of ``ctx``."""
        return [self.mark()]

    def open_window(self, value: Value) -> Download | None:
        """The value's own memory instead of a copy, where the host can see it; nobody may write there meanwhile."""
        return None

    def capture(self, work: Callable[[], bool]) -> Capture | None:
        """What ``work`` launches, noted instead of done; None where that fails or ``work`` says False."""
        raise NotImplementedError

    def place(self) -> tuple[Any, ...]:
        """What captured work depends on beside the memory that it is given: stream and scratch memory."""
        raise NotImplementedError

    def allow_waiting(self) -> None:
        """Launches may wait for others from here on; whoever says so sees to it that they are not forgotten."""

    def end_waiting(self) -> None:
        """Launch at once from here on, after what waits."""

    def flush(self) -> None:
        """Launch what waits."""

    def deferring(self, launch: Launch) -> Launch:
        """A launch of nothing but kernels, which may wait."""
        return launch

    def at_once(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """``work`` that comes to the device by other ways, after what waits."""
        return work

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes of the device."""
        raise NotImplementedError

    def host_memory_stats(self) -> dict[str, int]:
        """Statistics of the pinned memory that copies run through; none where there are no copies."""
        return {}

    def properties(self) -> dict[str, Any]:
        """Name, total memory and capability of the device, under PyTorch's names."""
        raise NotImplementedError

    def empty(self, meta: Meta) -> Value:
        """A new value of uninitialised memory, accounted to the current owner."""
        nbytes = meta.extent * meta.dtype.itemsize
        self._busy = True  # `_allocate`, without a call
        try:
            block = self.allocator.allocate(nbytes, self.stream, context.current.owner)
        finally:
            self._busy = False
            if self._late:
                self._release_late()
        storage: Storage = new_storage()
        storage.backend, storage.block, storage.nbytes = self, block, nbytes
        storage.keeper, storage.version = None, 0
        value: Value = new_value()
        value.storage, value.meta, value.backend = storage, meta, self
        value.base = value.autograd = value._array = None
        value.keys = self.key
        return value

    def writing(self, meta: Meta, launch: Launch) -> Callable[[tuple[Any, ...]], Value]:
        """What makes a new value, as ``empty`` does, and has ``launch`` write it.

        Most operations do no more than this: what it calls, and what is looked up each time, all of them pay for.
        """
        nbytes, key, allocator = meta.extent * meta.dtype.itemsize, self.key, self.allocator

        def run(args: tuple[Any, ...]) -> Value:
            self._busy = True
            try:
                block = allocator.allocate(nbytes, self.stream, context.current.owner)
            finally:
                self._busy = False
                if self._late:
                    self._release_late()
            storage: Storage = new_storage()
            storage.backend, storage.block, storage.nbytes = self, block, nbytes
            storage.keeper, storage.version = None, 0
            value: Value = new_value()
            value.storage, value.meta, value.backend = storage, meta, self
            value.base = value.autograd = value._array = None
            value.keys = key
            launch(args, (value,))
            return value

        return run

    def _allocate(self, nbytes: int) -> Block:
        with self.undisturbed() as allocator:
            return allocator.allocate(nbytes, self.stream, context.current.owner)

    @contextmanager
    def undisturbed(self) -> Iterator[CachingAllocator]:
        """The allocator, for more than an allocation: what the garbage collector releases meanwhile is freed after."""
        before, self._busy = self._busy, True
        try:
            yield self.allocator
        finally:
            self._busy = before
        if self._late and not before:
            self._release_late()

    def check_room(self, nbytes: int) -> None:
        """Refuse work on more bytes than the session whose turn it is could hold, before any of it is done."""
        with self.undisturbed() as allocator:
            allocator.check_room(nbytes, context.current.owner)

    def release(self, block: Block) -> None:
        """Give a block back; later, where Python's garbage collector struck in the middle of the allocator."""
        if self._busy:
            self._late.append(block)
            return
        self._busy = True
        try:
            self.allocator.free(block)
        finally:
            self._busy = False
        if self._late:
            self._release_late()

    def retire(self) -> None:
        """Free nothing any more: the process ends, and what frees memory may be gone before the last value is."""
        self._busy = True

    def _release_late(self) -> None:
        while self._late:
            self.release(self._late.pop())

    def adopt(self, array: Any, meta: Meta) -> Value:
        """A value of what a kernel returned, in the layout and dtype that the contract promised."""
        value = self.empty(meta)
        self.store(value.array, array)
        return value

    def store(self, target: Any, array: Any) -> None:
        """Copy ``array`` into ``target``, casting without checks."""
        self.xp.copyto(target, array, casting="unsafe")


_OPEN: dict[Device, Backend] = {}


def open_device(device: Device) -> Backend:
    """The process's one backend of a device; opened at first use."""
    found = _OPEN.get(device)
    if found is None:
        found = _OPEN[device] = _open_cpu() if device.type == "cpu" else _open_cuda(device)
        atexit.register(found.retire)
    return found


def _open_cpu() -> Backend:
    from .cpu_backend import CpuBackend

    return CpuBackend.open()


def _open_cuda(device: Device) -> Backend:
    from .cuda_backend import CudaBackend

    return CudaBackend.open(device)
