"""What the worker has noted of one session while it was profiled: rows of whole numbers, and what these refer to.

Times are nanoseconds of the worker's monotonic clock. A row of ``events`` has eight numbers, of which the first says by
the place in ``descriptors`` what happened; ``EventRow`` names all of them. What a device did is in ``DeviceWork``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

OPERATION: Final = 0
"""An operation was dispatched."""
NODE: Final = 1
"""A node of the backward graph was evaluated."""
INSTRUCTION: Final = 2
"""An instruction that is no operation was executed: a backward pass, a read, an upload."""
RANGE: Final = 3
"""What the client has put between two marks: a block of ``record_function``, or a step."""
MEMORY: Final = 4
"""Memory was allocated or freed: ``first`` has the bytes, negative if freed; ``launches`` what is allocated then."""
FRAME: Final = 5
"""A frame of instructions has arrived: ``first`` has its bytes."""
REPLAY: Final = 6
"""A recorded backward pass was launched as one graph."""

CPU_TIMES: Final = "host"
"""There is no other device than the host's, whose operations are done when their dispatch ends."""
CUPTI_TIMES: Final = "cupti"
EVENT_TIMES: Final = "events"


class EventRow(NamedTuple):
    """One event: when it began and ended, and the number of the client's line.

    ``out`` is the id of the first result of the call that is executed, or with a minus that of what a call without
    results writes into; 0 where there is none, or no call. ``first`` and ``launches`` say which launches of a GPU it
    asked for, by their numbers in the order in which these were asked for, or what the kind of the descriptor says; the
    descriptor names the GPU. ``sequence`` is that of a node of the backward graph; of
    everything else it is larger than those of all nodes that were made until then.
    """

    descriptor: int
    begin: int
    end: int
    site: int
    out: int
    first: int
    launches: int
    sequence: int


class KernelRow(NamedTuple):
    """Work of a GPU: ``name`` is a place in the names; ``correlation`` is that of the call which launched it.

    ``graph`` is not 0 where the work was part of a graph. ``kind`` is one of the names of ``KINDS`` by its place;
    ``nbytes`` is what a copy has moved; ``grid`` and ``block`` are packed with ``packed``.
    """

    name: int
    kind: int
    begin: int
    end: int
    correlation: int
    stream: int
    graph: int
    nbytes: int
    grid: int
    block: int
    registers: int
    shared: int


KINDS: Final = ("kernel", "gpu_memcpy", "gpu_memset")


class CallRow(NamedTuple):
    """A call of CUDA's that launched something: ``name`` is a place in the names."""

    name: int
    begin: int
    end: int
    correlation: int


class FlushRow(NamedTuple):
    """Launches that had waited for each other were made: the number of the first, and how many there were."""

    begin: int
    end: int
    first: int
    launches: int


class PartRow(NamedTuple):
    """A launch that was made as a part of a graph, by its number, and how many kernels and copies it is there.

    Launches of graphs are one each where there is no such row.
    """

    launch: int
    kernels: int


class Descriptor(Struct, array_like=True, frozen=True):
    """What events of one kind have in common; of operations also their operands, of which ``shapes`` may be lists.

    ``device`` is the index of the GPU that launches are of, and of changes of memory a place in ``memory_devices``.
    """

    kind: int
    name: str
    shapes: list[Any] = []
    strides: list[Any] = []
    dtypes: list[str] = []
    concrete: list[str] = []
    device: int = 0


class SiteName(Struct, array_like=True, frozen=True):
    """A line of the client's program, by its number."""

    number: int
    file: str
    line: int
    function: str


class DeviceWork(Struct, array_like=True):
    """What one GPU did: rows as bytes, the names that they refer to, and what PyTorch's tools want to know of it."""

    device: int
    times: str
    why: str
    names: list[str]
    kernels: bytes
    calls: bytes
    flushes: bytes
    properties: dict[str, Any]
    dropped: int = 0
    parts: bytes = b""


class Recording(Struct, array_like=True):
    """All that was noted. ``dropped`` counts events for which there was no room; ``message`` says why not.

    ``sequence`` is larger than those of all nodes of the backward graph that were made before.
    """

    process: int
    began: int
    ended: int
    descriptors: list[Descriptor]
    sites: list[SiteName]
    events: bytes
    devices: list[DeviceWork]
    memory_devices: list[str]
    dropped: int = 0
    message: str = ""
    sequence: int = 0

    def halve(self) -> None:
        """Leave the later half of the events out, and say so."""
        size = 8 * len(EventRow._fields)
        count = len(self.events) // size
        self.events = self.events[: count // 2 * size]
        self.dropped += count - count // 2
        self.message = (
            self.message or "the session's quota has no room for the whole trace, so later events are missing"
        )

    def rows(self) -> Iterator[EventRow]:
        """Yield the events in the order in which they ended."""
        return rows_of(EventRow, self.events)


def rows_of(kind: Any, data: bytes) -> Iterator[Any]:
    """Yield rows of whole numbers, eight little-endian bytes each, as tuples of one kind."""
    numbers = array("q")
    numbers.frombytes(data)
    return map(kind._make, _groups(numbers, len(kind._fields)))


def _groups(numbers: array[int], size: int) -> Iterator[tuple[int, ...]]:
    iterator = iter(numbers)
    return zip(*[iterator] * size, strict=True)


def packed(x: int, y: int, z: int) -> int:
    """Return the three extents of a grid or block as one number."""
    return x | y << 31 | z << 47


def unpacked(number: int) -> list[int]:
    """Return the three extents that ``packed`` has made one number of."""
    return [number & (1 << 31) - 1, number >> 31 & 0xFFFF, number >> 47 & 0xFFFF]


encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(Recording)


def decode(data: bytes | memoryview) -> Recording:
    """Return the recording that ``encode`` has made bytes of."""
    return _decoder.decode(data)
