"""The control requests that the gateway puts to a worker: one type per request; its docstring says what the answer is.

They serve the HTTP interface, beside the instruction stream of a session, and are answered between its frames, in the
order asked. ``Gateway.ask(request, AnswerType, session)`` sends the name of the type and ``to_args(request)``; the
worker finds the function that is marked ``@answers(Type)`` and sends ``to_answer(value)``. Errors travel as errors.
This module knows nothing of HTTP and nothing of tensors' values.

JSON has no tensors, dtypes or devices, so arguments of operations are *plain*: numbers, strings, booleans, None, lists
of them, ``{"tensor": id}`` for a tensor, and ``{"complex": [re, im]}``; dtypes and devices are their names. The
session turns them into what the contract's parameter wants, and ``public`` names are resolved as the client does it.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from telegrad_protocol.queries import QUERIES, request_name

SESSION_REQUESTS: Final[dict[str, type[Struct]]] = dict(QUERIES)
"""What a session is asked by name: the queries of the stream, and the requests of this module."""
HOST_REQUESTS: Final[dict[str, type[Struct]]] = {}
"""What a host is asked by name."""


class SessionRequest(Struct, frozen=True, array_like=True):
    """Base of the requests to one session; a new type is added to ``SESSION_REQUESTS`` by its definition."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        SESSION_REQUESTS[request_name(cls)] = cls


class HostRequest(Struct, frozen=True, array_like=True):
    """Base of the requests to the whole host; a new type is added to ``HOST_REQUESTS`` by its definition."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        HOST_REQUESTS[request_name(cls)] = cls


class TensorInfo(Struct, frozen=True, array_like=True):
    """What is known of a tensor of a session; strides and offset in elements."""

    id: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: str
    requires_grad: bool


class NewTensor(Struct, frozen=True, array_like=True, tag="tensor"):
    """Make a tensor of row-major ``data``; on the session's default device where ``device`` is empty."""

    out: int | None
    dtype: str
    shape: tuple[int, ...]
    device: str
    data: bytes
    requires_grad: bool


class RunOp(Struct, frozen=True, array_like=True, tag="op"):
    """Run the operation that users call ``op``. ``out``: ids of its results, named by the session where None.

    ``requires_grad`` is set on the results where True, which makes leaves of new tensors.
    """

    op: str
    args: list[Any]
    kwargs: dict[str, Any]
    out: tuple[int, ...] | None
    requires_grad: bool


Step: TypeAlias = NewTensor | RunOp


class Interrupt(SessionRequest, frozen=True):
    """Execute nothing of the stream up to its ``Interrupt`` of this number, or of a higher one. Answer: None."""

    number: int


class RunOps(SessionRequest, frozen=True):
    """Run ``steps`` in order, and stop at the first that fails; those before it keep their results.

    The error's ``site`` becomes ``ops[first + i]``. It is the answer: the session's stream is not failed by it.
    Answer: ``list[list[TensorInfo]]``, the results of each step; an operation in place answers the tensor it changed.
    An id in ``out`` that is taken is replaced.
    """

    first: int
    steps: list[Step]


class Backward(SessionRequest, frozen=True):
    """Accumulate the gradients of ``roots`` into leaves: ``inputs``, or all that the graph reaches where None.

    ``gradients`` has one per root; None stands for one where the root is a scalar.
    Answer: ``list[tuple[int, TensorInfo]]``, leaf and gradient; gradients are named by the session where they are new.
    Leaves that no id names any more are left out.
    """

    roots: tuple[int, ...]
    gradients: tuple[int | None, ...]
    inputs: tuple[int, ...] | None
    retain_graph: bool
    create_graph: bool


class Describe(SessionRequest, frozen=True):
    """Answer: ``list[TensorInfo]``."""

    ids: tuple[int, ...]


class Free(SessionRequest, frozen=True):
    """Forget tensors; ``UnknownIdError`` where one is not there, and then none is forgotten. Answer: None."""

    ids: tuple[int, ...]


class UploadBegin(SessionRequest, frozen=True):
    """Announce the elements of a tensor. Allocates, so that lack of memory shows before anything is sent.

    Nothing is visible under ``id`` before the end. Answer: ``int``, the handle of the upload.
    """

    id: int
    dtype: str
    shape: tuple[int, ...]
    device: str


class UploadChunk(SessionRequest, frozen=True):
    """The bytes at ``offset``; row-major, in order, at most ``CHUNK_BYTES``. Answer: None."""

    upload: int
    offset: int
    data: bytes


class UploadEnd(SessionRequest, frozen=True):
    """Give the tensor its id, which is replaced if it is taken; or, where not ``commit``, drop what came.

    Answer: ``TensorInfo``, or None where nothing was kept. Dropping an unknown upload is no error.
    """

    upload: int
    commit: bool


class ReadBegin(SessionRequest, frozen=True):
    """Hold the elements of a tensor as they are now, row-major. Answer: ``ReadInfo``."""

    id: int


class ReadInfo(Struct, frozen=True, array_like=True):
    """The handle of a read, and what it reads."""

    read: int
    tensor: TensorInfo
    nbytes: int


class ReadChunk(SessionRequest, frozen=True):
    """Answer: ``bytes``, the ``size`` of them at ``offset``; at most ``CHUNK_BYTES``.

    None while the device has not delivered them: the worker waits for nothing, the gateway asks again.
    """

    read: int
    offset: int
    size: int


class ReadEnd(SessionRequest, frozen=True):
    """Let go of what ``ReadBegin`` held; an unknown handle is no error. Answer: None."""

    read: int


class MemorySummary(HostRequest, frozen=True):
    """Answer: ``str``, PyTorch's table. For the session numbered ``session``; all of the host where None.

    ``shown_as`` is the device's name in the table, where operators know it by another.
    """

    device: str = ""
    session: int | None = None
    shown_as: str = ""


class MemoryStats(HostRequest, frozen=True):
    """Answer: ``dict[str, dict[str, int | float]]``, by device, the names of ``torch.cuda.memory_stats``."""

    device: str = ""
    session: int | None = None


class MemorySnapshot(HostRequest, frozen=True):
    """Answer: a dict in the format of ``torch.cuda.memory._snapshot()``, as JSON types.

    ``devices`` has the names of the devices in the order in which segments and traces number them, ``records_lines``
    whether the operator's history is on.
    """

    device: str = ""
    session: int | None = None
    traces: bool = True


class MemoryHistory(HostRequest, frozen=True):
    """Keep a trace of all allocations (``all``), only the lines that hold memory (``state``), or nothing (None)."""

    enabled: Literal["all", "state"] | None
    max_entries: int
    device: str = ""


class WatchTrace(SessionRequest, frozen=True):
    """Note what the session executes from here on, the latest of it; ``enabled`` False ends it. Answer: None.

    A client that profiles its session is left alone; it ends a watch that is going on when it begins.
    """

    enabled: bool


class ReadTrace(SessionRequest, frozen=True):
    """Answer: ``bytes``, the ``last`` events that were noted, as ``telegrad_protocol.tracing.recording`` encodes them.

    An error where nothing is noted. What devices have not completed is missing.
    """

    last: int


class Devices(HostRequest, frozen=True):
    """Answer: ``list[DeviceInfo]``."""


class DeviceInfo(Struct, frozen=True, array_like=True):
    """A device as users see it. ``capability`` is the CUDA compute capability, ``pid`` the worker that owns it."""

    device: str
    name: str
    type: str
    index: int | None
    total_memory: int
    free_memory: int
    allocated_memory: int
    reserved_memory: int
    capability: tuple[int, int] | None
    multiprocessors: int | None
    pid: int


class Counters(HostRequest, frozen=True):
    """Answer: ``dict[str, int]``, by tenant the number of operations executed since the worker started."""


class Measurements(HostRequest, frozen=True):
    """Answer: ``WorkerState`` of ``server.ipc.measures``. The worker's loop gives it, which knows what waits."""


def to_args(request: Struct) -> list[Any]:
    """Return a request as lists and numbers; bytes stay bytes."""
    args: list[Any] = to_answer(request)
    return args


def to_answer(value: Any) -> Any:
    """Return an answer as lists and numbers; bytes stay bytes."""
    return msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview))
