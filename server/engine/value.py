"""Values, their storage and the device behind them: the types that everything in the engine refers to.

A ``Value`` is a view of a ``Storage`` as its ``Meta`` says; ``AutogradMeta`` holds what autograd knows of it. Methods
and operators of values are attached by ``functional``; kernels never see values, only their arrays. Knows neither
sessions nor operations, and not how a device does its work: ``Backend`` only declares it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType

import numpy as np

from server.allocator import Block, CachingAllocator
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Device, Meta

from .device import interface
from .device.graph_memory import GraphMemory
from .device.interface import Capture, Counter, DeviceFigures, Download, Event, Mark, NoCounter, RandomState, Upload
from .device.streams import StreamUser
from .keys import AUTOGRAD
from .user_kernels.interface import KernelDriver


class Storage:
    """A block of device memory shared by all views of it; freed with the last of them.

    ``version`` counts in-place modifications. ``keeper`` is what gives the block back instead, None if nothing does.
    ``elements`` is set where the host knows what integers there are (``integers``).
    """

    __slots__ = ("__weakref__", "backend", "block", "elements", "keeper", "nbytes", "version")

    elements: Any

    def __init__(self, backend: Backend, block: Block, nbytes: int, keeper: Any = None) -> None:
        self.backend = backend
        self.block = block
        self.nbytes, self.version = nbytes, 0
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


def memory_of(storage: Storage) -> Storage:
    """The storage that owns the memory of another one, or that one itself."""
    keeper = storage.keeper
    return keeper if keeper.__class__ is Storage else storage


new_storage = partial(object.__new__, Storage)  # without attributes: operations set them all, faster than ``__init__``
CHANGING = "changing"
"""The ``elements`` of memory that is written to without a count: by captured graphs, extensions, and ``x.data``."""
TRACKED, UNTRACKED, MULTIPLE = range(3)
"""A view's ``origin``: made with gradients on, made with gradients off, or made as one of several results."""


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
    """The engine's tensor, as PyTorch's TensorImpl.

    A view has a ``base``, which is no view itself, an ``origin``, and in ``seen`` the version of the storage up to
    which its autograd history is valid.
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
        array = self._array
        if array is None:
            array = self._array = self.backend.array(self.storage, self.meta)
        return array

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
        alias = Value(self.storage, self.meta, self.backend)
        alias._array = self._array
        return alias

    def __repr__(self) -> str:
        return f"Value({self.meta}, {self.device})"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


new_value = partial(object.__new__, Value)
"""A value without attributes, for the same reason as ``new_storage``."""


Launch = Callable[[tuple[Any, ...], tuple[Value, ...]], None]
"""A prepared kernel: takes the arguments as they were bound, and the values to write into."""


class Backend(DeviceFigures):
    """What every device offers: memory for values, arrays over it, copies, streams and the launch queue.

    Only declared here, with defaults for devices that have no streams; ``device`` holds the implementations.
    """

    __slots__ = ("__dict__", "__weakref__", "allocator", "apart", "in_allocator", "queued_frees", "stream")  # read by C
    xp: Any
    key: int
    least_spent = 8 << 20
    """Values of fewer bytes are not freed early, or written over: to look whether they may be would take too long."""
    can_capture = False
    """Whether work can be captured and launched as one, as CUDA graphs do; see ``capture``."""
    is_capturing = False
    """Whether work is being captured, and not done."""
    captured_work: Callable[[], Counter] = NoCounter
    """Returns what counts the work of the graph that is being captured."""
    gains_by_stretches = False
    """Whether calls that a program makes again and again take less time as one: where each of them is a launch."""
    settles = False
    """Whether what is being done will be captured next: kernels that are chosen by their cost are chosen now."""

    def __init__(self, device: Device, allocator: CachingAllocator) -> None:
        self.device = device
        self.allocator = allocator
        self.stream = 0
        """The raw stream that work is launched on: that of the session whose turn it is."""
        self.apart: dict[int, int] | None = None
        """By how many bytes are asked for, on which number: memory that lies apart; see ``autograd.apart``."""
        self.in_allocator = False
        """Whether a call into the allocator is under way: Python's garbage collector must not enter it again."""
        self.queued_frees: list[Block] = []
        """Blocks that were released while the allocator was in use."""
        self.graph_memory = GraphMemory()
        """What captured work of this device holds."""
        allocator.pressure_callbacks.append(self.graph_memory.drop_all)
        self.last_completion = 0.0
        """When the device was last seen to have come to a mark, of whichever session, by the monotonic clock."""

    def as_current(self) -> AbstractContextManager[None]:
        """Make this the device that libraries work on within the block; another may be current before and after."""
        return nullcontext()

    def on_device(self, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """``run``, which executes an operation here, with this the device that libraries work on."""
        return run

    def can_access_peer(self, peer: Device) -> bool:
        """Whether this device can read and write the memory of ``peer`` by itself."""
        return False

    def array(self, storage: Storage, meta: Meta) -> Any:
        """An array over ``storage`` as ``meta`` says."""
        raise NotImplementedError

    def begin_session(self) -> None:
        """Look for work that repeats itself anew: what earlier sessions did says nothing of a new one."""

    def synchronize(self) -> None:
        """Wait until everything that was launched has run."""

    def array_from(self, value: Value) -> Any:
        """A copy of another device's value in this device's memory, made through the host."""
        return self.xp.asarray(value.backend.host_array(value))

    def host_array(self, value: Value) -> np.ndarray[Any, Any]:
        """A row-major copy of one of this device's values on the host; waits for the device."""
        return self.to_host(value.array)

    def mark(self) -> Mark:
        """The point after all work launched so far; waiting for it does not block other sessions' work."""
        raise NotImplementedError

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """A row-major host copy; waits for the device."""
        raise NotImplementedError

    def fill_from_host(self, value: Value, data: np.ndarray[Any, Any]) -> None:
        """Copy ``data``, of the value's shape and dtype, into it."""
        raise NotImplementedError

    def open_upload(self, value: Value) -> Upload:
        """Begin an upload into a new row-major value, whose bytes come in order."""
        raise NotImplementedError

    def open_download(self, value: Value) -> Download:
        """Begin to copy a value's elements, in row-major order, into host memory."""
        raise NotImplementedError

    def bytes_at_once(self, value: Value) -> bytes | None:
        """Return a value's elements, in row-major order, where that waits for nothing; otherwise None."""
        return None

    def enter(self, ctx: StreamUser) -> None:
        """Launch on the current stream of ``ctx`` from here on."""

    def leave(self, ctx: StreamUser) -> None:
        """Wait for all work of ``ctx``, which has ended, and take its streams back."""

    def use_stream(self, ctx: StreamUser, number: int) -> None:
        """Make the stream that ``ctx`` knows by a number its current one, and launch on it."""
        raise self._without_streams()

    def stream_of(self, ctx: StreamUser, number: int) -> int:
        """The raw stream that ``ctx`` knows by a number."""
        raise self._without_streams()

    def switch(self, ctx: StreamUser, stream: int) -> None:
        """Make a raw stream the current one of ``ctx``, and launch on it."""
        raise self._without_streams()

    def join(self, producer: int, consumer: int) -> None:
        """Make later work of the raw stream ``consumer`` wait for all work that ``producer`` has been given so far."""
        raise self._without_streams()

    def new_event(self, is_timed: bool) -> Event:
        """An event that is not recorded yet."""
        raise self._without_streams()

    def _without_streams(self) -> NotSupportedError:
        return NotSupportedError(f"stream: device {self.device} has no streams and events; CUDA devices have")

    def kernel_driver(self) -> KernelDriver:
        """What compiles, loads and launches kernels of clients here."""
        raise NotSupportedError(f"kernel: device {self.device} runs no CUDA kernels; GPUs do")

    def marks(self, ctx: StreamUser) -> list[Mark]:
        """The points after all work launched so far on each stream of ``ctx``."""
        return [self.mark()]

    def host_view(self, value: Value) -> Download | None:
        """The value's own memory in place of a copy, None where the host cannot address it.

        Nobody may write to the value while the view is in use.
        """
        return None

    def capture(self, work: Callable[[], bool]) -> Capture | None:
        """Capture what ``work`` launches instead of executing it; None if that fails or ``work`` returns False."""
        raise NotImplementedError

    def relocatable(self, work: interface.RelocatableWork) -> interface.Relocatable | None:
        """Note the launches of some work, to make them again on other memory; None where it does more than launch."""
        return None

    def random_state(self) -> RandomState:
        """Memory for a generator's state, which kernels of captured work read."""
        raise NotImplementedError

    def place(self) -> tuple[Any, ...]:
        """What captured work depends on beside the memory of its operands: the stream, and scratch memory."""
        raise NotImplementedError

    def allow_waiting(self) -> None:
        """Let launches wait in the launch queue from here on; the caller must end that with ``end_waiting``."""

    def end_waiting(self) -> None:
        """Make the launches that wait, and let no more wait from here on."""

    def flush(self) -> None:
        """Make the launches that wait in the launch queue."""

    def deferring(self, launch: Launch) -> Launch:
        """``launch``, which uses the device by kernel launches alone, so that these may wait in the queue."""
        return launch

    def submit(self, perform: Callable[..., None], *arguments: Any) -> None:
        """Call ``perform(stream, *arguments)``, which starts a kernel and does no more, now or in the launch queue.

        Two launches by one function are the same where their arguments are equal.
        """
        perform(self.stream, *arguments)

    def forget_launches(self, performs: Collection[Callable[..., None]]) -> None:
        """Keep nothing of launches that were made by these functions."""

    def at_once(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """``work``, which uses the device in other ways too, with the launch queue flushed before it."""
        return work

    def trace_work(self, ctx: StreamUser) -> Any:
        """Return a ``profiling.device_work.DeviceTracer`` of what this device does for a context from here on."""
        raise NotSupportedError(f"{self.device} has no work of its own to trace")

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
