"""What is noted of one session: events as rows of numbers, in memory that is charged to the session.

The fields of an event are first appended to one flat list, which costs least, and a thousand events become rows at
once. No tuples or other containers are made, since Python's garbage collector would look at them. Rows lie in tensors
of the host's device, which the session's quota counts. What happened is said by a descriptor; there are as many of
these as there are operations on different operands, and no more than a bound.
"""

from __future__ import annotations

import logging
import os
import struct
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np

from server.disclosure import without_folders
from server.engine import keys
from server.engine.autograd.graph import next_sequence
from server.engine.context import Context
from server.engine.device.interface import Counter, NoCounter
from server.engine.value import Backend, Value
from telegrad_protocol import dtypes
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.tracing import recording
from telegrad_protocol.tracing.recording import DeviceWork, EventRow, Recording, SiteName

from .descriptions import Description
from .device_work import DeviceTracer

log = logging.getLogger(__name__)
now: Final = time.monotonic_ns
COLUMNS: Final = len(EventRow._fields)
SPILL: Final = 1024
"""So many events become rows at once: it takes less than a millisecond."""
FULL: Final = SPILL * COLUMNS
"""The length of the list of fields that becomes rows."""
CHUNK_ROWS: Final = 8 * SPILL
MOST_BYTES: Final = 64 << 20
"""The rows of one session take at most so much memory: a million events."""
MOST_DESCRIPTORS: Final = 1 << 14
MOST_NAMES: Final = 1 << 12
MOST_OPEN_RANGES: Final = 256
LONGEST_NAME: Final = 512
_LARGEST: Final = (1 << 63) - 1


class Source(Protocol):
    """Whose events are noted."""

    instruction: Any
    """The instruction that is being executed."""


def work_of(device: Device, tracer: DeviceTracer, began: int, ended: int, is_final: bool) -> DeviceWork:
    """Return what a device did, or why that is not known: the rest of the profile does not depend on it."""
    try:
        return tracer.result(began, ended, is_final)
    except Exception as error:
        log.exception("the work of %s could not be told", device)
        if is_final:
            tracer.release()
        why = f"the device's work could not be told: {type(error).__name__}: {without_folders(str(error))}"
        return DeviceWork(device.index or 0, "", why, [], b"", b"", b"", {})


_NO_LAUNCHES: Final = NoCounter()


class _Places(dict[Description, int]):
    """The places of descriptions in the order in which they were first noted."""

    def __missing__(self, description: Description) -> int:
        if len(self) >= MOST_DESCRIPTORS:
            description = description.without_operands
        return self.setdefault(description, len(self))


class _Watched:
    """A device whose memory is looked at after each operation: what was in use at the last look, of all or an owner."""

    __slots__ = ("allocated", "backend", "description", "read")

    def __init__(self, backend: Backend, owner: int | None) -> None:
        self.backend = backend
        self.read = backend.allocator.allocated_bytes
        self.allocated = 0 if owner is None else self.read(owner)
        self.description: Description | None = None


class Recorder:
    """Notes the events of one session; ``pending`` has the fields of those that are no rows yet, one after the other.

    ``logs`` has for GPUs whose launches are numbered, by their indices, what numbers them. With ``wraps`` the oldest
    rows make room for new ones; otherwise noting ends once ``limit`` bytes are used.
    """

    emits: Final = False
    """Whether it emits ranges for another profiler instead: see ``emitter.Emitter``."""

    def __init__(
        self, source: Source, ctx: Context, host: Backend, tracers: dict[Device, DeviceTracer], with_memory: bool,
        limit: int, wraps: bool = False,
    ) -> None:  # fmt: skip
        self.source = source
        self.tracers = tracers
        self.logs = {device.index or 0: tracer.log for device, tracer in tracers.items() if tracer.log is not None}
        self.with_memory = with_memory
        self.due = 0 if with_memory else FULL
        """From which length of ``pending`` on ``attend`` is to be called after an operation."""
        self.notes_stretches = len(self.logs) == len(tracers)
        """Whether operations may be executed as one without anything of them being lost.

        Of devices that are not traced nothing is told, so nothing can be lost.
        """
        self.executed: tuple[Any, Any, Sequence[float]] | None = None
        """What notes the stretch that was just executed, its stamps, and its numbers that are others each time."""
        self.pending: list[Any] = []
        self.dropped = 0
        self.undrawn = -1
        """How many of the events have not drawn a number of their own, less one for the number drawn at the begin."""
        self._spilled = 0
        self.message = ""
        self.is_full = False
        self.began = now()
        self._first_sequence = next_sequence()
        self.memory_devices: list[Device] = []
        self._watched: list[_Watched] = []
        self._context = ctx
        self._host = host
        self.wraps = wraps
        self._limit = min(limit, MOST_BYTES)
        self._chunks: list[Value] = []
        self._taken = 0
        """How many bytes of the session's memory the chunks take."""
        self._used = CHUNK_ROWS
        if with_memory:
            self._watched = [_Watched(backend, ctx.owner) for backend in ctx.backends.values()]
        self._places = _Places()
        self._named: dict[tuple[int, str, int], Description] = {}
        self._ranges: list[tuple[int, Description, int]] = []

    def note(
        self, description: Description, begin: int, first: int = 0, count: int = 0, sequence: int = 0,
        origin: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """Note what began at a time and ends now; ``sequence`` is the number of a node of the backward graph.

        ``origin`` is the line that it was done for, and ``EventRow.out``; if None, the line of the present instruction.
        """
        end = now()
        self.undrawn += bool(sequence)
        site, out = origin or (getattr(self.source.instruction, "site", 0), 0)
        self.pending.extend((description, begin, end, site, out, first, count, sequence or next_sequence()))
        if len(self.pending) >= FULL:
            self.spill()

    def named(self, kind: int, name: str, device: int = 0) -> Description:
        """Return the description of what is no operation."""
        name = name[:LONGEST_NAME]
        known = self._named.get((kind, name, device))
        if known is None:
            if len(self._named) >= MOST_NAMES:
                name = "(other names)"
            known = self._named.setdefault((kind, name, device), Description(kind, name, device=device))
        return known

    def open_range(self, number: int, name: str) -> None:
        """Note that a range of this number begins; beyond a depth ranges are not noted."""
        if len(self._ranges) < MOST_OPEN_RANGES:
            self._ranges.append((number, self.named(recording.RANGE, name), now()))

    def close_range(self, number: int) -> None:
        """Note that a range has ended; one that is not open is none of this recording."""
        for place in range(len(self._ranges) - 1, -1, -1):
            if self._ranges[place][0] == number:
                _, description, begin = self._ranges.pop(place)
                self.note(description, begin)
                return

    @property
    def drawn(self) -> int:
        """How many numbers of nodes of the backward graph were drawn to have events among nodes in their order."""
        return self._spilled + len(self.pending) // COLUMNS - self.undrawn

    def counter(self, device: Device) -> Counter:
        """Return what counts the launches of a device."""
        tracer = self.tracers.get(device)
        return _NO_LAUNCHES if tracer is None or tracer.log is None else tracer

    def note_executed(self, ids: Sequence[int]) -> None:
        """Note the operations of a stretch, if one was executed as one; its results have these ids by slot."""
        if self.executed is not None:
            notes, stamps, numbers = self.executed
            self.executed = None
            notes.note(self, ids, stamps, numbers)

    def attend(self) -> None:
        """Do what is due after an operation: note what memory it has taken, and make rows of pending events."""
        if self.with_memory:
            self.note_memory()
        if len(self.pending) >= FULL:
            self.spill()

    def note_memory(self) -> None:
        """Note how the session's memory has changed since the last look, by device."""
        owner, backends = self._context.owner, self._context.backends
        if len(backends) > len(self._watched):
            known = [watched.backend for watched in self._watched]
            self._watched += [_Watched(backend, None) for backend in backends.values() if backend not in known]
        for watched in self._watched:
            allocated = watched.read(owner)
            if allocated != watched.allocated:
                self._note_change(watched, allocated)

    def _note_change(self, watched: _Watched, allocated: int) -> None:
        change, watched.allocated = allocated - watched.allocated, allocated
        if watched.description is None:
            place = len(self.memory_devices)
            self.memory_devices.append(watched.backend.device)
            watched.description = Description(recording.MEMORY, "[memory]", device=place)
        if watched.backend is self._host:
            allocated -= self._taken
        at = now()
        self.undrawn += 1
        self.pending.extend((watched.description, at, at, 0, 0, change, allocated, 0))

    def spill(self) -> None:
        """Make rows of the pending events."""
        pending, self.pending = self.pending, []
        count = len(pending) // COLUMNS
        self._spilled += count
        if self.is_full or not count:
            self.dropped += count
            return
        pending[::COLUMNS] = list(map(self._places.__getitem__, pending[::COLUMNS]))
        try:
            packed = struct.pack(f"{len(pending)}q", *pending)  # twice as quick as NumPy and array are
        except struct.error:  # a client may number as it likes
            for place in (3, 4):
                pending[place::COLUMNS] = [number & _LARGEST for number in pending[place::COLUMNS]]
            packed = struct.pack(f"{len(pending)}q", *pending)
        rows = np.frombuffer(packed, np.int64).reshape(count, COLUMNS)
        while len(rows) and self._has_room():
            room = min(CHUNK_ROWS - self._used, len(rows))
            self._chunks[-1].array[self._used : self._used + room] = rows[:room]
            self._used += room
            rows = rows[room:]
        self.dropped += len(rows)

    def _has_room(self) -> bool:
        """Return whether another row fits; takes another chunk of memory where that is needed."""
        if self._used < CHUNK_ROWS:
            return True
        nbytes = CHUNK_ROWS * COLUMNS * 8
        if (len(self._chunks) + 1) * nbytes > self._limit:
            if not self.wraps:
                self._stop(f"the limit of {self._limit >> 20} MiB for the trace of a session is reached")
                return False
            self._chunks.append(self._chunks.pop(0))
            self.dropped += CHUNK_ROWS
        else:
            try:
                chunk = self._host.empty(Meta.of((CHUNK_ROWS, COLUMNS), dtypes.int64, self._host.device))
            except TelegradError as error:
                self._stop(f"the session's quota has no room for its trace: {error.message}")
                return False
            self._chunks.append(chunk)
            self._take(chunk.storage.block.size)
        self._used = 0
        return True

    def _take(self, nbytes: int) -> None:
        """Leave what the rows take of the host's memory out of what is noted."""
        self._taken += nbytes
        for watched in self._watched:
            if watched.backend is self._host:
                watched.allocated += nbytes

    def _stop(self, message: str) -> None:
        self.is_full = True
        self.notes_stretches = False
        self.message = f"{message}, so later events are missing; profile fewer steps, as schedule() says"
        self._context.included &= ~keys.PROFILER

    def rows(self) -> bytes:
        """Return the rows as bytes, the oldest first."""
        parts = [chunk.array.tobytes() for chunk in self._chunks[:-1]]
        if self._chunks:
            parts.append(self._chunks[-1].array[: self._used].tobytes())
        return b"".join(parts)

    def end(self) -> None:
        """End ranges that are still open, and take up the memory for the last events."""
        while self._ranges:
            self.close_range(self._ranges[-1][0])
        self.spill()

    def result(self, sites: list[SiteName], last: int | None = None) -> Recording:
        """Return all that was noted, or the ``last`` events while more are noted; ``spill`` or ``end`` came before."""
        events, began, ended = self.rows(), self.began, now()
        if last is None:
            self._chunks.clear()
        descriptions = list(self._places)
        if last is not None and len(events) > last * COLUMNS * 8:
            events = events[-last * COLUMNS * 8 :]
            began = int(np.frombuffer(events, np.int64).reshape(-1, COLUMNS)[:, 1].min())
        devices = [work_of(device, tracer, began, ended, last is None) for device, tracer in self.tracers.items()]
        return Recording(
            os.getpid(), began, ended, [description.told() for description in descriptions], sites, events, devices,
            [device.name for device in self.memory_devices], self.dropped, self.message,
            self._first_sequence,
        )  # fmt: skip
