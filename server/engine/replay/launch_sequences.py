"""Sequences of launches that come again: captured as one CUDA graph where that pays, and launched as it from then on.

Two sequences are the same if all their launches are, with all arguments: what was captured once does the same work on
the same memory, whatever happened in between. A capture takes the host longer than the launches themselves, and a
device that has more than enough to do gains nothing from it. So a sequence is captured once it has cost about as much
as a capture does, if the device was seen idle lately and the budget of `LAUNCH_SEQUENCES` is not spent: at its second
sighting where its launches are made one by one, and much later where chains make them.

Knows no CUDA and no operations: how a sequence is captured, and whether a stream is idle, is given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, TypeAlias

from server.engine.device.interface import Capture
from server.replay_policy import IDLE_WINDOW, LAUNCH_SEQUENCES, Limits, ReplayPolicy

Launch: TypeAlias = tuple[Any, ...]
"""The function that performs a launch, then its arguments: the raw stream first."""
Sequence: TypeAlias = tuple[Launch, ...]
_CHAINED: Final = 0.3
"""Microseconds that a launch costs in a chain, and a launch of what was captured does not."""
_CAPTURE: Final = 300.0
"""Microseconds that a capture costs, beside its launches."""
_CAPTURED: Final = 10.0
"""Microseconds that a launch costs in a capture. Made alone it costs four, and a call of a library more, so that a few
sightings of these pay for their parts of a capture; it is taken that one does."""


Capturing: TypeAlias = "Callable[[int, Callable[..., bool]], Capture | None]"
"""Given a raw stream and work, captures what the work launches there; None if that fails.

The work calls what it is given, if anything, after each launch.
"""


class LaunchSequences:
    """The captured sequences of one device. ``policy`` counts replays as hits and captures as misses."""

    __slots__ = (
        "_capture", "_clock", "_hits", "_idle_window", "_is_idle", "_key", "_paid", "_records", "_sizes", "launched",
        "policy",
    )  # fmt: skip

    def __init__(self, capture: Capturing, is_idle: Callable[[int], bool], limits: Limits = LAUNCH_SEQUENCES) -> None:
        self._capture = capture
        self._is_idle = is_idle
        self._sizes = limits
        self.policy = ReplayPolicy(limits)
        self.launched: Capture | None = None
        """The graph that was launched last."""
        self._records: dict[int, _Record] = {}
        self._paid: dict[int, float] = {}
        """What sequences have cost that were not launched as graphs, by their hashes, in captures of each."""
        self._key = 0
        """The hash of the sequence that came last."""
        self._clock = self._idle_window = self._hits = 0

    def replay(self, sequence: Sequence) -> bool:
        """Launch a sequence as its graph, capturing it first if it is time to; returns False if nothing was done.

        Whoever makes it otherwise then says by ``note_made`` what that has cost.
        """
        self._key = hash(sequence)
        record = self._records.get(self._key)
        if record is None or record.sequence != sequence:
            record = self._learn(sequence)
        if record is None or record.graph is None:
            return False
        self._clock += 1
        record.used = self._clock
        if not record.graph.launch():
            record.graph = None
            return False
        self.launched = record.graph
        self._hits += 1
        return True

    def note_made(self, launches: int, chained: int) -> None:
        """Note that the sequence that came last was made otherwise: so many launches, of which some in chains."""
        if len(self._paid) >= self._sizes.sightings:
            self._paid.clear()
        in_chains = chained * _CHAINED / (launches * _CAPTURED + _CAPTURE)
        paid = (launches - chained) / launches + in_chains
        self._paid[self._key] = self._paid.get(self._key, 0.0) + paid

    def _learn(self, sequence: Sequence) -> _Record | None:
        """Capture a sequence if it is time to; returns what was captured."""
        if self._paid.get(self._key, 0.0) < 1:
            return None
        stream = sequence[0][1]
        self._idle_window = IDLE_WINDOW if self._is_idle(stream) else self._idle_window - 1
        self.policy.hit(self._hits)
        self._hits = 0
        if self._idle_window <= 0 or not self.policy.can_afford():
            return None
        if len(self._records) >= self._sizes.records:
            self._evict()
        self.policy.miss()
        graph = self._capture(stream, partial(_performs, sequence))
        record = self._records[self._key] = _Record(sequence, graph)
        return record

    def forget(self, performs: Collection[Callable[..., None]]) -> None:
        """Drop the sequences that have launches by one of these functions."""
        self.launched = None
        self._records = {
            key: record
            for key, record in self._records.items()
            if not any(launch[0] in performs for launch in record.sequence)
        }

    def _evict(self) -> None:
        """Drop the half of the records that have not been used for the longest time."""
        latest = sorted(self._records.items(), key=lambda item: item[1].used)[self._sizes.records // 2 :]
        self._records = dict(latest)


class _Record:
    """A captured sequence and when it was last used; ``graph`` is None if it cannot be captured or launched."""

    __slots__ = ("graph", "sequence", "used")

    def __init__(self, sequence: Sequence, graph: Capture | None) -> None:
        self.sequence = sequence
        self.graph = graph
        self.used = 0


def perform(sequence: Sequence) -> None:
    """Make launches one by one: all of them, even if one fails; raises the first error in the end."""
    failure: Exception | None = None
    for launch, *arguments in sequence:
        try:
            launch(*arguments)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _performs(sequence: Sequence, after: Callable[[], object] = bool) -> bool:
    """Make launches while they are captured, and call ``after`` after each; returns whether that worked."""
    try:
        for launch, *arguments in sequence:
            launch(*arguments)
            after()
    except Exception as error:
        error.__traceback__ = None
        return False
    return True
