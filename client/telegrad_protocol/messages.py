"""The protocol: one frozen type per verb, in both directions.

Instructions travel from client to server in one FIFO per session; answers come back. All are MessagePack arrays whose
first element is the tag. Large payloads do not travel in here but as chunks behind the message that announces them.
Ids of tensors are chosen by the client and mean something only within its session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct

PROTOCOL_VERSION = 3
CHUNK_BYTES = 1 << 20
INLINE_BYTES = 1 << 16
"""Payloads up to this size ride inside their message; larger ones follow as chunks."""
SERVER_IDS = 1 << 52
"""Results that no client has named get ids from here upwards: clients count from 1, JavaScript ends at 2**53."""
STREAM_LEVELS = 4
STREAMS_PER_LEVEL = 32
"""A session has so many streams per level of priority on each device, numbered from 1; number 0 is its default one."""


class Call(Struct, frozen=True, array_like=True, tag=0, gc=False):
    """Run operation number ``op`` of the table; ``outs`` name its results.

    ``freed`` is forgotten before it runs, whatever becomes of it: its results may take the memory.
    """

    op: int
    site: int
    outs: tuple[int, ...]
    args: list[Any]
    freed: Sequence[int] = ()


class Free(Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Forget these tensors, and events."""

    ids: list[int]


class Site(Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Introduce a number for a line of the client's program; later instructions refer to it."""

    number: int
    file: str
    line: int
    function: str


class Upload(Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Make a tensor of client data: row-major, inline in ``data`` or as ``nbytes`` of chunks that follow."""

    id: int
    site: int
    dtype: int
    shape: tuple[int, ...]
    device: str
    data: bytes | None = None


class Read(Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Send the elements of a tensor in row-major order; answered by ``Data``."""

    request: int
    id: int


class Describe(Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Send the metas of tensors whose shape depends on data; answered by ``Description``."""

    request: int
    ids: tuple[int, ...]


class Backward(Struct, frozen=True, array_like=True, tag=6, gc=False):
    """Accumulate gradients of ``roots`` into ``leaves``.

    ``leaves`` pairs each tensor that receives a ``.grad`` with the id of that gradient: a new id where the leaf has
    none yet. ``restricted``: only these leaves are wanted (``inputs=``), else all that the graph reaches.
    """

    site: int
    roots: tuple[int, ...]
    gradients: tuple[int | None, ...]
    leaves: list[tuple[int, int]]
    retain_graph: bool
    create_graph: bool
    restricted: bool = False


class Gradient(Struct, frozen=True, array_like=True, tag=7, gc=False):
    """Make the gradients of ``roots`` with respect to ``inputs`` as new tensors ``outs``; None where not wanted."""

    site: int
    roots: tuple[int, ...]
    gradients: tuple[int | None, ...]
    inputs: tuple[int, ...]
    outs: tuple[int | None, ...]
    retain_graph: bool
    create_graph: bool
    allow_unused: bool


class Mode(Struct, frozen=True, array_like=True, tag=8, gc=False):
    """Set a mode of the session from here on: ``grad``, ``inference``, ``autocast``, ``stream``, ``trace``, ..."""

    name: str
    value: Any


class SetRequiresGrad(Struct, frozen=True, array_like=True, tag=9, gc=False):
    """``tensor.requires_grad_(value)`` on a leaf."""

    id: int
    value: bool


class RetainGrad(Struct, frozen=True, array_like=True, tag=10, gc=False):
    """``tensor.retain_grad()`` on a result."""

    id: int


class SetGrad(Struct, frozen=True, array_like=True, tag=11, gc=False):
    """``tensor.grad = other``; None drops it."""

    id: int
    grad: int | None


class DropGrads(Struct, frozen=True, array_like=True, tag=18, gc=False):
    """``tensor.grad = None`` of each of these; all that are there lose theirs, also where others are not."""

    ids: list[int]


class Seed(Struct, frozen=True, array_like=True, tag=12, gc=False):
    """Seed the session's generator of a device; of all devices where ``device`` is empty."""

    device: str
    value: int


class Query(Struct, frozen=True, array_like=True, tag=13, gc=False):
    """Ask for something in order with the operations, such as ``memory_stats``; answered by ``Answer``."""

    request: int
    what: str
    args: list[Any]


class Resume(Struct, frozen=True, array_like=True, tag=14, gc=False):
    """The client has seen failure number ``failure``; execute again from here on."""

    failure: int


class RecordEvent(Struct, frozen=True, array_like=True, tag=15, gc=False):
    """Let an event be the point that a stream reaches with what it was given before; the first time, make it."""

    event: int
    device: str
    stream: int
    is_timed: bool


class WaitEvent(Struct, frozen=True, array_like=True, tag=16, gc=False):
    """Let what a stream is given from here on wait for an event; for none, if it was never recorded."""

    event: int
    device: str
    stream: int


class RecordStream(Struct, frozen=True, array_like=True, tag=17, gc=False):
    """Hold a tensor's memory back, once it is freed, until what a stream was given by then is done."""

    id: int
    stream: int


Instruction: TypeAlias = (
    Call | Free | Site | Upload | Read | Describe | Backward | Gradient | Mode | SetRequiresGrad | RetainGrad | SetGrad
    | DropGrads | Seed | Query | Resume | RecordEvent | WaitEvent | RecordStream
)  # fmt: skip


class Data(Struct, frozen=True, array_like=True, tag=0, gc=False):
    """The elements of a tensor, row-major: inline, or as ``nbytes`` of chunks that follow, marked with ``request``."""

    request: int
    dtype: int
    shape: tuple[int, ...]
    nbytes: int
    data: bytes | None = None


class Description(Struct, frozen=True, array_like=True, tag=1, gc=False):
    """``(shape, strides, offset, dtype code, requires_grad)`` of each tensor that was asked for."""

    request: int
    metas: list[tuple[tuple[int, ...], tuple[int, ...], int, int, bool]]


class Answer(Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The value that a ``Query`` asked for."""

    request: int
    value: Any


class Failure(Struct, frozen=True, array_like=True, tag=3, gc=False):
    """An instruction failed; nothing but frees is executed until ``Resume(number)``.

    ``request`` is set where the failure answers a request: then the request itself failed or was skipped.
    """

    number: int
    request: int | None
    code: str
    message: str
    operation: str
    operands: str
    site: str
    traceback: str


Reply: TypeAlias = Data | Description | Answer | Failure


class Hello(Struct, frozen=True):
    """What a new session is told by the server; travels as JSON."""

    session: str
    key: str
    protocol: int
    server_version: str
    table_hash: str
    dtypes: list[str]
    devices: list[str]
    default_device: str
    limits: dict[str, int]
    lease_seconds: float
