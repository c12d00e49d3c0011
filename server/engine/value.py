"""Values, their storage and the device behind them: the types that everything in the engine refers to.

A ``Value`` is a view of a ``Storage`` as its ``Meta`` says; ``AutogradMeta`` holds what autograd knows of it. Methods
and operators of values are attached by ``functional``; kernels never see values, only their arrays. Knows neither
sessions nor operations, and not how a device does its work: ``Backend`` only declares it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType

import numpy as np

from server.allocator import Block, CachingAllocator
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Device, Meta

from .device.interface import Capture, Download, Event, Mark, Upload
from .device.streams import StreamUser
from .keys import AUTOGRAD


class Storage:
    """A block of device memory shared by all views of it; freed with the last of them.

    ``version`` counts in-place modifications. ``keeper`` owns the block instead where a library allocated it.
    """

    __slots__ = ("__weakref__", "backend", "block", "keeper", "nbytes", "version")

    def __init__(self, backend: Backend, block: Block, nbytes: int, keeper: Any = None) -> None:
        self.backend = backend
        self.block = block
        self.nbytes = nbytes
        self.version = 0
        self.keeper = keeper

    def __del__(self) -> None:
        if self.keeper is not None:
            return
        backend = self.backend
        if backend.in_allocator:
            backend.release(self.block)
            return
        backend.in_allocator = True  # `release`, inlined: most operations free a block
        try:
            backend.allocator.free(self.block)
        finally:
            backend.in_allocator = False
            if backend.queued_frees:
                backend.free_queued()


new_storage = partial(object.__new__, Storage)
"""A storage without its attributes, for who sets them all: no detour through ``__init__`` with every operation."""
TRACKED, UNTRACKED, MULTIPLE = range(3)
"""How a view was made: with gradients on, with gradients off, or as one of several results."""


class AutogradMeta:
    """Autograd's part of a value: a leaf's gradient, or the node that computed the value.

    ``grad_fn`` is an ``autograd.graph.Node``, and ``output`` the number of its result that this value is;
    ``accumulator`` refers to a leaf's one ``AccumulateGrad``. ``rebased`` is the storage's version at the last in-place
    operation that changed the history, 0 if there was none.
    """

    __slots__ = ("accumulator", "grad", "grad_fn", "output", "rebased", "requires_grad")

    grad: Value | None
    accumulator: ReferenceType[Any] | None

    def __init__(self, requires_grad: bool = False, grad_fn: Any = None, output: int = 0) -> None:
        self.requires_grad = requires_grad
        self.grad_fn = grad_fn
        self.output = output
        self.grad = self.accumulator = None
        self.rebased = 0


class Value:
    """The engine's tensor (the seeds' TensorImpl).

    Views have a ``base`` that is no view itself, an ``origin``, and the storage's version that their history has
    ``seen``.
    """

    __slots__ = ("__weakref__", "_array", "autograd", "backend", "base", "keys", "meta", "origin", "seen", "storage")

    def __init__(self, storage: Storage, meta: Meta, backend: Backend, base: Value | None = None) -> None:
        self.storage = storage
        self.meta = meta
        self.backend = backend
        self.base = base
        self.autograd: AutogradMeta | None = None
        self._array: Any = None
        if base is None:
            self.keys = backend.key
        else:
            self.keys = backend.key | AUTOGRAD
            self.seen = storage.version
            self.origin = TRACKED

    @property
    def array(self) -> Any:
        """The NumPy or CuPy array over this value's elements."""
        found = self._array
        if found is None:
            found = self._array = self.backend.array(self.storage, self.meta)
        return found

    @property
    def shape(self) -> Size:
        return self.meta.shape

    @property
    def dtype(self) -> DType:
        return self.meta.dtype

    @property
    def device(self) -> Device:
        return self.meta.device

    @property
    def ndim(self) -> int:
        return self.meta.ndim

    @property
    def numel(self) -> int:
        return self.meta.numel

    @property
    def T(self) -> Value:
        """The matrix transpose."""
        return self.t()  # type: ignore[no-any-return]

    def alias(self) -> Value:
        """The same elements without autograd history."""
        twin = Value(self.storage, self.meta, self.backend)
        twin._array = self._array
        return twin

    def __repr__(self) -> str:
        return f"Value({self.meta}, {self.device})"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


new_value = partial(object.__new__, Value)
"""A value without its attributes, as ``new_storage``."""


Launch = Callable[[tuple[Any, ...], tuple[Value, ...]], None]
"""A prepared kernel: takes the arguments as they were bound, and the values to write into."""


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
        self.in_allocator = False
        """Whether a call into the allocator is under way: Python's garbage collector must not enter it again."""
        self.queued_frees: list[Block] = []
        """Blocks that were released while the allocator was in use."""

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

    def enter(self, ctx: StreamUser) -> None:
        """Work for ``ctx`` from here on: use its stream."""

    def leave(self, ctx: StreamUser) -> None:
        """``ctx`` has ended: wait for what it launched."""

    def use_stream(self, ctx: StreamUser, number: int) -> None:
        """Work for ``ctx`` on its stream of that number from here on."""
        raise self._without_streams()

    def stream_of(self, ctx: StreamUser, number: int) -> int:
        """The raw stream that ``ctx`` knows by a number."""
        raise self._without_streams()

    def switch(self, ctx: StreamUser, stream: int) -> None:
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

    def marks(self, ctx: StreamUser) -> list[Mark]:
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
        """A new value of uninitialised memory, accounted to the session whose turn it is."""
        raise NotImplementedError

    def threaded(self, run: Callable[..., Any], nbytes: int) -> Callable[..., Any]:
        """``run``, with all threads of the host's libraries if it is worth them for work on ``nbytes`` bytes."""
        return run

    def exclusive_allocator(self) -> AbstractContextManager[CachingAllocator]:
        """The allocator, for more than one call; blocks that the garbage collector frees meanwhile are freed after."""
        raise NotImplementedError

    def check_room(self, nbytes: int) -> None:
        """Raise OutOfMemoryError if the session whose turn it is could never hold ``nbytes`` bytes."""
        raise NotImplementedError

    def release(self, block: Block) -> None:
        """Give a block back, or queue it where the garbage collector runs in the middle of an allocator call."""
        raise NotImplementedError

    def free_queued(self) -> None:
        """Give back the blocks that were queued while the allocator was in use."""
        raise NotImplementedError

    def stop_freeing(self) -> None:
        """Free nothing from here on: the process ends, and what frees memory may be gone before the last value."""
        raise NotImplementedError

    def adopt(self, array: Any, meta: Meta) -> Value:
        """A value that holds what a kernel returned, in the layout and dtype that the contract promised."""
        raise NotImplementedError

    def store(self, target: Any, array: Any) -> None:
        """Copy ``array`` into ``target``, casting without checks."""
        self.xp.copyto(target, array, casting="unsafe")
