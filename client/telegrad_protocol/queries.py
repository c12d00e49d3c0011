"""What a session can be asked in its stream of instructions: one type per question, carried by name in ``Query``.

``Query(request, "memory_stats", ["cuda:0", True])`` carries ``MemoryStats("cuda:0", True)``: the name of a type in
snake case, and its fields in order. Fields that are left out have their defaults. Each docstring says what the answer
is. ``device`` is a name such as ``cuda:0``; where it is empty, the session's default device is meant.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, TypeAlias

from msgspec import Struct

QUERIES: Final[dict[str, type[SessionQuery]]] = {}
"""All types of queries by the name under which they travel; a new type is added by its definition."""


@lru_cache(None)
def request_name(request: type) -> str:
    """Return the name under which a type of request travels: ``memory_stats`` for ``MemoryStats``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", request.__name__).lower()


class SessionQuery(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of everything that a session can be asked in its stream."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        QUERIES[request_name(cls)] = cls


class CanAccessPeer(SessionQuery, frozen=True):
    """Whether a GPU can copy from and to the memory of another one without going through the host's memory."""

    device: str
    peer: str


class Synchronize(SessionQuery, frozen=True):
    """Answered with None once a device, or each device where ``device`` is empty, has done what it was given."""

    device: str = ""


class StreamSynchronize(SessionQuery, frozen=True):
    """Answered with None once a stream has done what it was given."""

    device: str
    stream: int


class StreamQuery(SessionQuery, frozen=True):
    """Whether a stream has done what it was given."""

    device: str
    stream: int


class EventSynchronize(SessionQuery, frozen=True):
    """Answered with None once an event is reached; at once if it was never recorded."""

    event: int


class EventQuery(SessionQuery, frozen=True):
    """Whether an event is reached; true if it was never recorded."""

    event: int


class ElapsedTime(SessionQuery, frozen=True):
    """Milliseconds between two timed events, once both are reached."""

    start: int
    end: int


class Storages(SessionQuery, frozen=True):
    """For each tensor a number for its memory, the bytes of that, and the address of its first element, 0 if none."""

    ids: tuple[int, ...]


class Keep(SessionQuery, frozen=True):
    """Keep tensors under a name, in place of what has it; answered with None.

    ``structure`` describes what they are parts of; only clients read it. What is kept outlives the client's numbers.
    """

    name: str
    structure: str
    ids: list[int]


class StopKeeping(SessionQuery, frozen=True):
    """Keep nothing under a name any more; a name that is not there is no error. Answered with None."""

    name: str


class MemoryStats(SessionQuery, frozen=True):
    """The statistics of a device's allocator as ``torch.cuda.memory_stats`` names them; of all sessions if not mine."""

    device: str = ""
    mine: bool = True


class MemorySummary(SessionQuery, frozen=True):
    """The text of ``torch.cuda.memory_summary``; of all sessions if not ``mine``."""

    device: str = ""
    abbreviated: bool = False
    mine: bool = True


class MemorySnapshot(SessionQuery, frozen=True):
    """One device's part of ``torch.cuda.memory._snapshot()``; of other sessions only where their blocks lie."""

    device: str = ""
    with_traces: bool = True


class HostMemoryStats(SessionQuery, frozen=True):
    """The statistics of pinned host memory as ``torch.cuda.host_memory_stats`` names them."""

    device: str = ""


class ResetHostMemory(SessionQuery, frozen=True):
    """Let the peaks of pinned host memory's statistics begin anew, or else their counts. Answer: None."""

    device: str
    is_peak: bool


class RecordMemoryHistory(SessionQuery, frozen=True):
    """Change what the session's history of memory notes; ``enabled`` and ``context`` are empty for None."""

    device: str
    enabled: str
    max_entries: int
    context: str
    clear: bool
    skip_actions: list[str]


class ResetPeak(SessionQuery, frozen=True):
    """Let the session's peak statistics begin anew. Answer: None."""

    device: str = ""


class ResetAccumulated(SessionQuery, frozen=True):
    """Let the session's accumulated statistics begin anew. Answer: None."""

    device: str = ""


class EmptyCache(SessionQuery, frozen=True):
    """Return the session's cached memory to the device. Answer: None."""

    device: str = ""


class SetMemoryFraction(SessionQuery, frozen=True):
    """Limit the session to a fraction of the device's memory. Answer: None."""

    device: str
    fraction: float


class MemoryFraction(SessionQuery, frozen=True):
    """The fraction of the device's memory that the session is limited to."""

    device: str = ""


class CachingAllocatorAlloc(SessionQuery, frozen=True):
    """Allocate ``nbytes`` that belong to no tensor; the answer is a pointer."""

    device: str
    nbytes: int


class CachingAllocatorDelete(SessionQuery, frozen=True):
    """Free what ``CachingAllocatorAlloc`` answered. Answer: None."""

    device: str
    pointer: int


class NewMemPool(SessionQuery, frozen=True):
    """Make a private memory pool; the answer is its id, two integers."""

    device: str = ""


class UseMemPool(SessionQuery, frozen=True):
    """Let the session allocate from a private pool from here on. Answer: None."""

    device: str
    first: int
    second: int


class LeaveMemPool(SessionQuery, frozen=True):
    """End ``UseMemPool``. Answer: None."""

    device: str = ""


class ReleaseMemPool(SessionQuery, frozen=True):
    """Give a private pool up; its memory returns to the device when nothing uses it. Answer: None."""

    device: str
    first: int
    second: int


class MemPoolUses(SessionQuery, frozen=True):
    """How many users a private pool has, as ``torch.cuda.MemPool.use_count`` says."""

    device: str
    first: int
    second: int


class MemGetInfo(SessionQuery, frozen=True):
    """Free and total bytes of a device."""

    device: str = ""


class DeviceProperties(SessionQuery, frozen=True):
    """What ``torch.cuda.get_device_properties`` tells, as a dict."""

    device: str = ""


class DeviceFigure(SessionQuery, frozen=True):
    """What a GPU's management library tells, by the name of ``torch.cuda``'s function, such as ``temperature``."""

    device: str
    name: str


class GetRngState(SessionQuery, frozen=True):
    """The state of the session's generator of a device, as bytes."""

    device: str = ""


class SetRngState(SessionQuery, frozen=True):
    """Put the session's generator of a device into a state that ``GetRngState`` answered. Answer: None."""

    device: str
    state: bytes


class InitialSeed(SessionQuery, frozen=True):
    """The seed of the session's generator of a device."""

    device: str = ""


class Seed(SessionQuery, frozen=True):
    """Seed every generator of the session from one random number, which is the answer."""


class Trace(SessionQuery, frozen=True):
    """The lines that the dispatch trace has collected since they were last asked for."""


class Computed(SessionQuery, frozen=True):
    """Whether the tensors of these ids were computed: a list of booleans."""

    ids: list[int]


class Version(SessionQuery, frozen=True):
    """How often the memory of the tensor of this id was modified in place."""

    id: int


WireMeta: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int, int, str]
"""Shape, strides, offset, code of the dtype, and device of a tensor."""


class Derivation(SessionQuery, frozen=True):
    """The program that computes the gradients of an operation: its steps, and the numbers of the gradients.

    ``args`` are those of a call, with numbers of operands in the place of tensors, whose metas follow. ``needed`` has
    a bit for each argument whose gradient is wanted, ``reached`` tells which results have one. A step is the number of
    an operation, its arguments, and the numbers of its results. Operands have the first numbers, then come the
    results of the operation, and the gradients of those that have one.
    """

    op: int
    args: list[Any]
    metas: list[WireMeta]
    needed: int
    reached: list[bool]


class PassProgram(SessionQuery, frozen=True):
    """The program of a backward pass, in the form of ``Derivation``: steps, and the numbers of the inputs' gradients.

    The gradients of ``roots`` have the first numbers. At most ``most`` tensors that the graph has saved get ids from
    ``first`` on; for each follows its number, its meta, and whether it requires grad, as it may with ``create_graph``.
    """

    roots: list[int]
    inputs: list[int]
    first: int
    most: int
    create_graph: bool


class Expansion(SessionQuery, frozen=True):
    """The operations that a composite one consists of on such operands, in the form of ``Derivation``.

    ``tracked`` tells which operands require a gradient.
    """

    op: int
    args: list[Any]
    metas: list[WireMeta]
    tracked: list[bool]


class Composites(SessionQuery, frozen=True):
    """The numbers of the operations that consist of other ones."""


class StopsReached(SessionQuery, frozen=True):
    """The numbers of those stops of a backward pass that gradients of its roots may flow to."""

    id: int


class TensorCount(SessionQuery, frozen=True):
    """How many ids of tensors the session keeps."""


class TunableResults(SessionQuery, frozen=True):
    """The results of tunable operations, four texts each."""


class TunableValidators(SessionQuery, frozen=True):
    """What results of tunable operations depend on: pairs of a name and a value."""


class TunableLoad(SessionQuery, frozen=True):
    """Take over results that were written earlier, four texts each; the answer is how many are known then."""

    lines: list[Any]


class KernelAttributes(SessionQuery, frozen=True):
    """What a kernel of the session needs: registers, shared memory and their like, by CuPy's names."""

    kernel: int


class ElapsedTimes(SessionQuery, frozen=True):
    """Milliseconds between pairs of timed events, once all are reached."""

    starts: list[int]
    ends: list[int]


class CudnnGraphs(SessionQuery, frozen=True):
    """cuDNN's version, 0 without it, and what the first uses of shapes have cost in the worker: a dict."""
