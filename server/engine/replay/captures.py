"""What is captured of work that comes again: one mechanism for backward passes and for runs of programs.

Work is captured when it comes again in the same state. It is made as usual, and then gone through once more as a *dry
run* on *shadow blocks* of the same memory, while the device notes what it is given and runs none of it. Later the host
launches what was noted, and has the allocator count the calls that the work would have made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

from server.allocator.cache.call_sequences import CallSequence, DryRun, SequenceStart
from server.engine import context
from server.engine.context import Held
from server.engine.device.interface import Capture
from server.engine.random import PlacedGenerator
from server.engine.value import Backend
from server.replay_policy import Limits, ReplayPolicy, Sightings
from telegrad_protocol.errors import OutOfMemoryError
from telegrad_protocol.meta import Device


class Captured(Protocol):
    """Work that was captured: the calls of the allocator that it makes, and what the device launches."""

    @property
    def calls(self) -> CallSequence: ...

    @property
    def graph(self) -> Capture: ...


Kept = TypeVar("Kept", bound=Captured)


class CaptureTable(Generic[Kept]):
    """What was captured of one piece of work, by the state that it begins with.

    ``policy`` counts launches as hits and captures as misses.
    """

    __slots__ = ("__weakref__", "_backend", "_hits", "_kept", "_most", "_seen", "policy")

    def __init__(self, limits: Limits) -> None:
        self.policy = ReplayPolicy(limits)
        self._most = limits.records
        self._seen = Sightings(limits.sightings)
        self._kept: dict[Any, tuple[Kept, Held]] = {}
        self._backend: Backend | None = None
        self._hits = 0

    def __del__(self) -> None:
        self._clear()

    def find(self, state: Any, backend: Backend) -> Kept | None:
        """Return what was captured in this state, if memory is as it was then."""
        entry = self._kept.get(state)
        return entry[0] if entry is not None and backend.allocator.can_replay(entry[0].calls) else None

    def launch(self, state: Any, captured: Kept, backend: Backend) -> bool:
        """Launch it; False if the device refuses, which it will not be asked again."""
        backend.flush()
        if not captured.graph.launch():
            self._drop(state)
            return False
        backend.graph_memory.note_launch(captured)
        self._hits += 1
        return True

    def note_launch(self) -> None:
        """Count a launch of what others keep of the same work."""
        self._hits += 1

    def start(self, state: Any, backend: Backend) -> SequenceStart | None:
        """Return where the allocator's calls begin, if work in this state is to be captured."""
        return backend.allocator.start_sequence() if self.repeats(state, backend) else None

    def start_remembered(self, backend: Backend) -> SequenceStart | None:
        """Return where the allocator's calls begin, if work is to be captured where all of them are remembered.

        They are from the third time on, and the first of them may be only then.
        """
        start = backend.allocator.start_sequence() if self.policy.can_afford() else None
        return start if start is not None and start.state else None

    def repeats(self, state: Any, backend: Backend) -> bool:
        """Return whether work came before in this state, so that it may be captured; notes it if not."""
        start = backend.allocator.start_sequence()
        return start is not None and self.policy.can_afford() and self._seen.repeats(state, start.state)

    def note_sighting(self, state: Any, start: SequenceStart) -> None:
        """Note that work was made in this state, where the allocator's calls began so."""
        self._seen.repeats(state, start.state)

    def spend(self) -> bool:
        """Count a capture; returns whether there may be more."""
        self.policy.hit(self._hits)
        self._hits = 0
        self.policy.miss()
        return self.policy.can_afford()

    def keep(self, state: Any, captured: Kept, backend: Backend) -> None:
        """Keep what was captured, unless the session may hold no more."""
        if len(self._kept) >= self._most:
            self._clear()
        nbytes = captured.graph.nbytes
        with suppress(OutOfMemoryError):
            self._drop(state)
            self._kept[state] = captured, Held(context.current.host_memory, nbytes)
            self._backend = backend
            backend.graph_memory.add(captured, nbytes, context.current.owner, _Drop(self, state))

    def _drop(self, state: Any) -> None:
        entry = self._kept.pop(state, None)
        if entry is not None and self._backend is not None:
            self._backend.graph_memory.forget(entry[0])

    def _clear(self) -> None:
        for state in list(self._kept):
            self._drop(state)


class _Drop:
    """Has a table drop what it keeps for a state, as long as there is the table."""

    __slots__ = ("_state", "_table")

    def __init__(self, table: CaptureTable[Any], state: Any) -> None:
        self._table, self._state = ref(table), state

    def __call__(self) -> None:
        table = self._table()
        if table is not None:
            table._drop(self._state)


@contextmanager
def drawing_from(device: Device, generator: PlacedGenerator) -> Iterator[None]:
    """Have what draws on a device in this block draw from a generator whose state is read at an address."""
    current = context.current
    generators = current.generators
    current.generators = {**generators, device: generator}
    try:
        yield
    finally:
        current.generators = generators


@contextmanager
def settling(backend: Backend, is_captured_next: bool = True) -> Iterator[None]:
    """Have kernels be chosen for good in this block, if its work will be captured next."""
    before, backend.settles = backend.settles, is_captured_next
    try:
        yield
    finally:
        backend.settles = before


def go_through(backend: Backend, calls: CallSequence, work: Callable[[DryRun], object]) -> bool:
    """Make a dry run of work; returns whether it asked for the same memory in the same order."""
    with backend.allocator.dry_run(calls) as dry_run:
        return succeeds(work, dry_run) and dry_run.is_complete


def succeeds(work: Callable[[Any], object], given: Any) -> bool:
    """Whether work on shadows raises nothing."""
    try:
        work(given)
    except Exception as error:
        error.__traceback__ = error.__context__ = error.__cause__ = None  # they refer to shadow blocks
        return False
    return True
