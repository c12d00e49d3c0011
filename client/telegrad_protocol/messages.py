"""The protocol: one frozen type per verb, in both directions.

Instructions travel from client to server in one FIFO per session; answers come back. All are MessagePack arrays whose
first element is the tag. Large payloads do not travel in here but as chunks behind the message that announces them.
Ids of tensors are chosen by the client and mean something only within its session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from .extension_messages import (
    CallExtension as CallExtension,
)
from .kernel_messages import (
    DefineKernel as DefineKernel,
)
from .kernel_messages import (
    LaunchKernel as LaunchKernel,
)
from .kernel_messages import (
    LoadModule as LoadModule,
)
from .kernel_messages import (
    SetKernelAttribute as SetKernelAttribute,
)
from .pass_messages import (
    BeginPass as BeginPass,
)
from .pass_messages import (
    ClientNode as ClientNode,
)
from .pass_messages import (
    EndPass as EndPass,
)
from .pass_messages import (
    ForwardGradient as ForwardGradient,
)
from .pass_messages import (
    GiveGradients as GiveGradients,
)
from .pass_messages import (
    RandomState as RandomState,
)
from .pass_messages import (
    TakeGradients as TakeGradients,
)
from .pass_messages import (
    TakePlace as TakePlace,
)
from .pass_messages import (
    Watch as Watch,
)
from .programs.graphs import (
    BeginCapture as BeginCapture,
)
from .programs.graphs import (
    EndCapture as EndCapture,
)
from .programs.graphs import (
    ReplayGraph as ReplayGraph,
)

PROTOCOL_VERSION = 7
CHUNK_BYTES = 1 << 20
"""Payloads that are not inline travel in chunks of at most this size, so that other frames can pass between them."""
DROPPED = -1
"""The number of a ``Failure`` that answers a request which an interrupt dropped: nothing is to be resumed."""
INLINE_BYTES = 1 << 16
"""Payloads of at most this many bytes are inline in their message; larger ones follow it as chunks."""
SERVER_IDS = 1 << 52
"""Results that no client has named get ids from here upwards: clients count from 1, JavaScript ends at 2**53."""
ATTACHED = 0
"""The number of the request that ``Attach`` answers; clients count their requests from 1."""
WATCHED = (1 << 63) - 1
"""The number of an ``Answer`` that nobody has asked for: whether somebody watches what the session executes. Clients
count their requests from 1, and never come to it."""
WARNED = WATCHED - 1
"""The number of an ``Answer`` that nobody has asked for: the text of a warning, and the site that it belongs to."""
STREAM_LEVELS = 4
STREAMS_PER_LEVEL = 32
"""Streams of a session per priority level and device, numbered from 1; number 0 is the default stream."""


RequestNumber: TypeAlias = Annotated[int, Meta(ge=0)]
"""What a client calls a request, in 64 bits: chunks of the answer carry it."""


class Call(Struct, frozen=True, array_like=True, tag=0, gc=False):
    """Run operation number ``op`` of the table; its results get the ids ``outs``.

    The tensors ``freed`` are freed before it runs, also where it is skipped or fails, so that its results can take
    their memory.
    """

    op: int
    site: int
    outs: tuple[int, ...]
    args: list[Any]
    freed: Sequence[int] = ()


class Free(Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Free the tensors and events of these ids."""

    ids: list[int]


class Site(Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Define a number for a line of the client's program; later instructions refer to the line by it.

    ``file`` is the name of a file, or of a notebook's cell, such as ``Cell In[7]``.
    """

    number: int
    file: str
    line: int
    function: str


class Upload(Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Make a tensor of client data in row-major order, inline in ``data``, else in chunks that follow."""

    id: int
    site: int
    dtype: int
    shape: tuple[int, ...]
    device: str
    data: bytes | None = None


class Read(Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Send the elements of a tensor in row-major order; answered by ``Data``."""

    request: RequestNumber
    id: int


class Describe(Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Send the metas of tensors whose shape depends on data; answered by ``Description``."""

    request: RequestNumber
    ids: tuple[int, ...]


class Backward(Struct, frozen=True, array_like=True, tag=6, gc=False):
    """Accumulate gradients of ``roots`` into ``leaves``.

    ``leaves`` pairs every tensor that receives a ``.grad`` with the id of that gradient, which is new where the leaf
    has no gradient yet. With ``restricted`` only these leaves get one (``inputs=``), else all that the graph reaches.
    """

    site: int
    roots: tuple[int, ...]
    gradients: tuple[int | None, ...]
    leaves: list[tuple[int, int]]
    retain_graph: bool
    create_graph: bool
    restricted: bool = False


class Gradient(Struct, frozen=True, array_like=True, tag=7, gc=False):
    """Compute gradients of ``roots`` by ``inputs`` as new tensors ``outs``; where an id is None, none is wanted."""

    site: int
    roots: tuple[int, ...]
    gradients: tuple[int | None, ...]
    inputs: tuple[int, ...]
    outs: tuple[int | None, ...]
    retain_graph: bool
    create_graph: bool
    allow_unused: bool


class Mode(Struct, frozen=True, array_like=True, tag=8, gc=False):
    """Set a mode of the session (``grad``, ``inference``, ``autocast``, ``stream``, ``trace``, ...) from here on.

    The mode ``thread`` says by its number which of the client's threads has queued what follows.
    """

    name: str
    value: Any


class SetRequiresGrad(Struct, frozen=True, array_like=True, tag=9, gc=False):
    """Carry out ``tensor.requires_grad_(value)`` on a leaf."""

    id: int
    value: bool


class RetainGrad(Struct, frozen=True, array_like=True, tag=10, gc=False):
    """Carry out ``tensor.retain_grad()`` on the result of an operation."""

    id: int


class SetGrad(Struct, frozen=True, array_like=True, tag=11, gc=False):
    """Carry out ``tensor.grad = other``; with ``grad`` None the gradient is dropped."""

    id: int
    grad: int | None


class DropGrads(Struct, frozen=True, array_like=True, tag=18, gc=False):
    """Drop the gradients of these tensors; unknown ids among them do not keep the others from losing theirs."""

    ids: list[int]


class Seed(Struct, frozen=True, array_like=True, tag=12, gc=False):
    """Seed the session's generator of a device; of all devices where ``device`` is empty."""

    device: str
    value: int


class Query(Struct, frozen=True, array_like=True, tag=13, gc=False):
    """Ask for something, such as ``memory_stats``, in order with the operations; answered by ``Answer``."""

    request: RequestNumber
    what: str
    args: list[Any]


class Resume(Struct, frozen=True, array_like=True, tag=14, gc=False):
    """The client has seen failure number ``failure``; execute again from here on."""

    failure: int


class Interrupt(Struct, frozen=True, array_like=True, tag=19, gc=False):
    """The client was interrupted here, for the ``number``-th time: what follows is executed again.

    What precedes it may be dropped, as an ``INTERRUPT`` frame of this number asks, which overtakes the queue.
    """

    number: int


class RecordEvent(Struct, frozen=True, array_like=True, tag=15, gc=False):
    """Record in an event all work that a stream was given so far; the event is created if it is new."""

    event: int
    device: str
    stream: int
    is_timed: bool


class WaitEvent(Struct, frozen=True, array_like=True, tag=16, gc=False):
    """Make work that a stream is given from here on wait for an event; an event never recorded is not waited for."""

    event: int
    device: str
    stream: int


class RecordStream(Struct, frozen=True, array_like=True, tag=17, gc=False):
    """Keep the memory of a tensor, once freed, from being used again until a stream has done its work of that time."""

    id: int
    stream: int


class Detach(Struct, frozen=True, array_like=True, tag=20, gc=False):
    """The client has left the session: free all that it named, but what is kept, and forget its failure."""


class Attach(Struct, frozen=True, array_like=True, tag=21, gc=False):
    """Another client takes the session over: do what ``Detach`` does, then send an ``Answer`` to request ``ATTACHED``.

    The gateway puts it into the stream. The answer is ``Kept`` as lists and numbers, once the devices have done what
    they were given before. Whatever comes before it answers the client that had the session before.
    """


Instruction: TypeAlias = (
    Call | Free | Site | Upload | Read | Describe | Backward | Gradient | Mode | SetRequiresGrad | RetainGrad | SetGrad
    | DropGrads | Seed | Query | Resume | Interrupt | RecordEvent | WaitEvent | RecordStream | Detach
    | Attach | ClientNode | Watch | TakePlace | BeginPass | TakeGradients | GiveGradients | EndPass
    | RandomState | ForwardGradient | LoadModule | DefineKernel | SetKernelAttribute | LaunchKernel
    | CallExtension | BeginCapture | EndCapture | ReplayGraph
)  # fmt: skip


class Data(Struct, frozen=True, array_like=True, tag=0, gc=False):
    """The elements of a tensor in row-major order: inline, or in ``nbytes`` bytes of chunks that carry ``request``."""

    request: int
    dtype: int
    shape: tuple[int, ...]
    nbytes: int
    data: bytes | None = None


class Description(Struct, frozen=True, array_like=True, tag=1, gc=False):
    """``(shape, strides, offset, dtype code, requires_grad)`` of the tensors that were asked for, in order."""

    request: int
    metas: list[tuple[tuple[int, ...], tuple[int, ...], int, int, bool]]


class Answer(Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The value that a ``Query`` asked for."""

    request: int
    value: Any


class Failure(Struct, frozen=True, array_like=True, tag=3, gc=False):
    """An instruction failed; those of its thread are not executed, but for frees, until ``Resume(number)``.

    ``thread`` is the number of the thread, as the ``thread`` mode told it. ``request`` is the request that this
    answers: it failed itself or was skipped. It is None for other instructions.
    With ``DROPPED`` for a number it answers a request that an interrupt dropped, and the session goes on by itself.
    """

    number: int
    request: int | None
    code: str
    message: str
    operation: str
    operands: str
    site: str
    traceback: str
    thread: int = 0


Reply: TypeAlias = Data | Description | Answer | Failure


class KeptTensor(Struct, frozen=True, array_like=True):
    """A tensor that a session keeps, with the id that it has for a client that has attached.

    ``grad`` is the place of its gradient in ``Kept.tensors``, None where it has none; ``dtype`` is a code.
    """

    id: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: str
    requires_grad: bool
    grad: int | None


class Kept(Struct, frozen=True, array_like=True):
    """What a session keeps for the client that attaches next.

    ``named`` has, by name, the structure that the client described, and the places in ``tensors`` of the tensors in it.
    """

    tensors: list[KeptTensor]
    named: dict[str, tuple[str, list[int]]]


class Hello(Struct, frozen=True):
    """The server's description of itself to the client of a session; it travels as JSON.

    ``devices`` are named as the session names them; ``node_devices`` has what operators call them, in the same order,
    and ``worker`` is the number of the worker that they belong to. ``isolation`` says whose sessions live on it:
    everybody's (``shared``), those of one tenant (``tenant``), or this one alone (``session``).

    ``attachment`` counts the clients that the session has had; connections of earlier ones are refused.
    """

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
    worker: int = 0
    node_devices: list[str] = []
    attachment: int = 1
    isolation: str = "shared"
