"""The CUDA backend: CuPy over the allocator's device blocks, one default stream per session.

What CuPy allocates for itself (temporaries, workspaces, results of kernels) comes from the same allocator, accounted to
the session whose turn it is, so that a kernel's result is adopted without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, cast

import cupy as cp
import numpy as np

from server.allocator import Block, CachingAllocator, CudaUpstream
from server.allocator.cache.pinned import PinnedCache, PinnedUpstream
from server.allocator.core.options import options_of_environment
from server.allocator.upstream.pluggable import plugged_in
from server.engine import context, keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.cuda.random.placed_state import PlacedState
from server.engine.cuda.runtime.launch import launches_on
from server.engine.cuda.runtime.user_driver import CudaKernelDriver, kernel_driver_of
from server.engine.device.interface import Download, Event, Mark, RelocatableWork, Upload
from server.engine.profiling.cuda_work import open_tracer
from server.engine.profiling.device_work import DeviceTracer
from server.engine.value import Launch, Storage, Value
from telegrad_protocol.dtypes import complex32, int32
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.meta import Device, Meta

from . import nvml
from .cuda_graphs import CudaGraph, GraphCounter
from .cuda_properties import properties_of
from .cuda_streams import CudaEvent, StreamPool
from .cuda_transfers import SMALL_BYTES, CudaDownload, CudaUpload, KeptCopy, PinnedMemory, SmallDownload
from .current_device import current_device, device_count, on_its_device, run_on
from .peers import enable_peer_access, has_peer_access
from .relocated_graph import RelocatedGraph, WaitingCounter
from .stream_backend import StreamedBackend
from .streams import StreamUser

_OPEN: dict[int, CudaBackend] = {}
"""The backends of this process by the index of their GPU: CuPy takes memory from the one that is current."""
_ANY_DEVICE = nullcontext()


def _allocate_on_current_device(nbytes: int) -> Any:
    return _OPEN[cp.cuda.runtime.getDevice()].allocate_for_cupy(nbytes)


def _allocate_pinned_on_current_device(nbytes: int) -> Any:
    return _OPEN[cp.cuda.runtime.getDevice()].allocate_pinned_for_cupy(nbytes)


class BlockMemory(cp.cuda.memory.BaseMemory):  # type: ignore[misc]
    """A block as CuPy's arrays hold it; it is given back with the last array that uses it.

    ``block`` is None from when a value has adopted the block.
    """

    def __init__(self, backend: CudaBackend, block: Block, nbytes: int) -> None:
        self.backend = backend
        self.block: Block | None = block
        self.ptr = block.pointer
        self.size = nbytes
        self.device_id = backend.index

    def __del__(self) -> None:
        if self.block is not None:
            self.backend.release(self.block)


class CudaMark:
    """The point in a stream's work at which this was made."""

    __slots__ = ("_event",)

    def __init__(self, stream: int) -> None:
        self._event = cp.cuda.Event(disable_timing=True)
        cp.cuda.runtime.eventRecord(self._event.ptr, stream)

    def is_ready(self) -> bool:
        return bool(self._event.done)


class CudaBackend(StreamedBackend):
    """One GPU."""

    xp = cp
    key = keys.CUDA
    can_capture = True

    def __init__(self, device: Device, allocator: CachingAllocator) -> None:
        self.index = device.index or 0
        super().__init__(device, allocator, StreamPool(self.index))
        self.pinned = PinnedCache(cast(PinnedUpstream, allocator.upstream), allocator.config)
        self._copied: list[Any] = []
        """Events that copies to the host have waited for, and later ones may record again."""
        self._kept_copies: list[KeptCopy] = []
        """What small copies to the host have gone through, and later ones go through again."""
        self.launches = launches_on(self.index)
        self._workspaces: dict[int, Block] = {}
        self.is_capturing = False
        allocator.free_memory_callbacks.append(self._free_workspaces)

    @classmethod
    def open(cls, device: Device) -> CudaBackend:
        """The backend of a GPU, its context created, CuPy's allocations routed through it."""
        index = device.index or 0
        if not _OPEN:
            cp.cuda.Device(index).use()
            cp.cuda.set_allocator(_allocate_on_current_device)
            cp.cuda.set_pinned_memory_allocator(_allocate_pinned_on_current_device)
        options = options_of_environment()
        flush = launches_on(index).flush
        own = CudaUpstream(index, registers_pinned=options.pinned_use_cuda_host_register, flush=flush)
        upstream = plugged_in(own, index, flush)
        backend = _OPEN[index] = cls(device, CachingAllocator(upstream, options, device=device.name))
        return backend

    def as_current(self) -> AbstractContextManager[None]:
        return _ANY_DEVICE if device_count() < 2 else current_device(self.index)

    def on_device(self, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return run_on(self.index, run)

    def allocate_for_cupy(self, nbytes: int) -> Any:
        """Memory for an array that CuPy makes on this device."""
        block = self._allocate(nbytes)
        return cp.cuda.MemoryPointer(BlockMemory(self, block, nbytes), 0)

    def allocate_pinned_for_cupy(self, nbytes: int) -> Any:
        """Pinned memory for a copy that CuPy makes."""
        if self.is_capturing:
            raise NotSupportedError("capture: what is copied from the host now would be copied again")
        return cp.cuda.PinnedMemoryPointer(PinnedMemory(self.pinned.allocate(nbytes)), 0)

    @on_its_device
    def new_event(self, is_timed: bool) -> Event:
        return CudaEvent(is_timed)

    def _forget_stream(self, ctx: StreamUser, pointer: int) -> None:
        ctx.checks.records.pop(pointer, None)
        if pointer in self._workspaces:
            self.release(self._workspaces.pop(pointer))

    def workspace(self, nbytes: int) -> Block:
        """Scratch memory for a library's calls on the current stream, kept for the next one.

        Accounted to the server. CuPy's own cuBLAS calls cannot use it: each sets its handle's stream, which makes
        cuBLAS forget the workspace it was given.
        """
        stream = self.stream
        block = self._workspaces.get(stream)
        if block is None or block.size < nbytes:
            if block is not None:
                self.release(self._workspaces.pop(stream))
            with self.exclusive_allocator() as allocator:
                block = self._workspaces[stream] = allocator.allocate(nbytes, stream)
        return block

    def _free_workspaces(self) -> bool:
        """Give other streams' workspaces back when memory is short; work being launched may use the current one's."""
        unused = [stream for stream in self._workspaces if stream != self.stream]
        for stream in unused:
            self.allocator.free(self._workspaces.pop(stream))
        return bool(unused)

    def begin_session(self) -> None:
        super().begin_session()
        self.launches.end_cooldown()

    def allow_waiting(self) -> None:
        self.launches.allow()

    def flush(self) -> None:
        self.launches.flush()

    def end_waiting(self) -> None:
        self.launches.disallow()

    def deferring(self, launch: Launch) -> Launch:
        return self.launches.deferring(launch)

    def submit(self, perform: Callable[..., None], *arguments: Any) -> None:
        self.launches.submit(perform, self.stream, *arguments)

    def forget_launches(self, performs: Collection[Callable[..., None]]) -> None:
        self.launches.forget(performs)

    def at_once(self, work: Callable[..., Any]) -> Callable[..., Any]:
        return self.launches.at_once(work)

    @on_its_device
    def trace_work(self, ctx: StreamUser) -> DeviceTracer:
        return open_tracer(self, ctx)

    @on_its_device
    def capture(self, work: Callable[[], bool]) -> CudaGraph | None:
        self.is_capturing = True
        try:
            graph: CudaGraph | None = self.at_once(CudaGraph.of)(self.stream, work)
            return graph
        finally:
            self.is_capturing = False

    def captured_work(self) -> GraphCounter:
        return GraphCounter(self.stream)

    @on_its_device
    def relocatable(self, work: RelocatableWork) -> RelocatedGraph | None:
        counter = WaitingCounter(self.launches)
        run = partial(work.note, counter)
        return RelocatedGraph.noted(self.launches, self.stream, run, work.rows, counter.counts)

    def random_state(self) -> PlacedState:
        return PlacedState(self)

    def place(self) -> tuple[Any, ...]:
        return self.stream, self._workspaces.get(self.stream)

    def host_memory_stats(self) -> dict[str, int]:
        return self.pinned.stats()

    def reset_host_memory_stats(self, is_peak: bool) -> None:
        self.pinned.reset_stats(is_peak)

    def figure(self, name: str) -> Any:
        return nvml.figure(name, cp.cuda.runtime.deviceGetPCIBusId(self.index))

    def can_access_peer(self, peer: Device) -> bool:
        return peer.type == "cuda" and peer != self.device and has_peer_access(self.index, peer.index or 0)

    def send(self, peer: CudaBackend, work: Callable[[], None]) -> None:
        """Have ``work``, launched on this GPU's current stream, write to memory of another GPU in the order of both.

        It comes after all that the other GPU's current stream was given, and before all that this will be given. The
        host does not wait.
        """
        enable_peer_access(self.index, peer.index)
        peer.join(peer.stream, self.stream)
        self.flush()
        work()
        self.join(self.stream, peer.stream)

    def copy_to_peer(self, peer: CudaBackend, pointer: int, target: int, nbytes: int) -> None:
        """Copy memory from an address on this GPU to one on another, for ``send``.

        The driver copies directly where the GPUs can access each other, and else through pinned memory of the host.
        """
        cp.cuda.runtime.memcpyPeerAsync(target, peer.index, pointer, self.index, nbytes, self.stream)

    def array(self, storage: Storage, meta: Meta) -> Any:
        if meta.dtype is complex32:
            raise NotSupportedError("complex32 is stored, copied and converted on a GPU; compute with cfloat()")
        itemsize = meta.dtype.itemsize
        block = storage.block
        memory = cp.cuda.UnownedMemory(block.pointer, block.size, storage, self.index)
        # Without elements the offset means nothing, and CuPy refuses one into memory that was never allocated.
        pointer = cp.cuda.MemoryPointer(memory, meta.offset * itemsize if meta.numel else 0)
        strides = None if meta.is_contiguous else tuple([stride * itemsize for stride in meta.strides])
        return cp.ndarray(meta.shape, NUMPY_DTYPES[meta.dtype], pointer, strides)

    def adopt(self, array: Any, meta: Meta) -> Value:
        """Take over the block that CuPy allocated for the array, which nobody may use from here on; or copy it."""
        memory = array.data.mem if isinstance(array, cp.ndarray) else None
        if not isinstance(memory, BlockMemory) or memory.block is None or not _is_laid_out(array, memory, meta):
            return super().adopt(array, meta)
        value = Value(Storage(self, memory.block, array.nbytes), meta, self)
        memory.block = None
        return value

    @on_its_device
    def store(self, target: Any, array: Any) -> None:
        self.launches.flush()
        target[...] = array if getattr(array, "dtype", target.dtype) == target.dtype else array.astype(target.dtype)

    @on_its_device
    def synchronize(self) -> None:
        self.launches.flush()
        cp.cuda.runtime.deviceSynchronize()
        context.current.checks.raise_fault()

    @on_its_device
    def mark(self) -> Mark:
        self.launches.flush()
        return CudaMark(cp.cuda.get_current_stream().ptr)

    def kernel_driver(self) -> CudaKernelDriver:
        return kernel_driver_of(self.index)

    @on_its_device
    def marks(self, ctx: StreamUser) -> list[Mark]:
        self.launches.flush()
        return [CudaMark(pointer) for pointer in ctx.own_streams.opened.get(self.device, {}).values()]

    @on_its_device
    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        self.launches.flush()
        # Where CuPy itself makes an array contiguous while it copies, it forgets which stream is current.
        compact = array if array.flags.c_contiguous else cp.ascontiguousarray(array)
        host: np.ndarray[Any, Any] = cp.asnumpy(compact)
        context.current.checks.raise_fault()
        return host

    def host_array(self, value: Value) -> np.ndarray[Any, Any]:
        if value.meta.dtype is complex32:
            return self.to_host(self._pairs_as_integers(value)).view(NUMPY_DTYPES[complex32])
        return self.to_host(value.array)

    def _pairs_as_integers(self, value: Value) -> Any:
        """An array of as many 32-bit integers, in place of complex32, of which CuPy has no arrays."""
        meta = value.meta
        return self.array(value.storage, Meta.of(meta.shape, int32, meta.device, meta.strides, meta.offset))

    @on_its_device
    def fill_from_host(self, value: Value, data: np.ndarray[Any, Any]) -> None:
        self.launches.flush()
        if data.size and value.meta.dtype is complex32:
            self._pairs_as_integers(value)[...] = cp.asarray(np.ascontiguousarray(data).view(np.int32))
        elif data.size:
            value.array[...] = cp.asarray(np.ascontiguousarray(data))

    @on_its_device
    def open_upload(self, value: Value) -> Upload:
        self.launches.flush()
        return CudaUpload(value, context.current.streams.get(self.device, 0), self.pinned)

    @on_its_device
    def open_download(self, value: Value) -> Download:
        self.launches.flush()
        meta = value.meta
        if meta.is_contiguous and 0 < meta.numel * meta.dtype.itemsize <= SMALL_BYTES:
            return SmallDownload(value, self.stream, self.pinned, self._kept_copies)
        return CudaDownload(value.array, cp.cuda.get_current_stream(), self.pinned, self._copied)

    def memory_info(self) -> tuple[int, int]:
        free, total = cp.cuda.Device(self.index).mem_info
        return int(free), int(total)

    def properties(self) -> dict[str, Any]:
        return properties_of(self.index)


def _is_laid_out(array: Any, memory: BlockMemory, meta: Meta) -> bool:
    itemsize = meta.dtype.itemsize
    return (
        array.dtype == NUMPY_DTYPES[meta.dtype]
        and array.data.ptr == memory.ptr
        and array.shape == meta.shape
        and tuple(stride // itemsize for stride in array.strides) == meta.strides
    )
