"""Which stream of a device a session launches on, and which one it launched on when it made a node of the graph.

A session numbers its streams: 0 is its default one, the others come in levels of priority. They are opened when first
used. Does not know how a device makes streams.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol

from server.engine.checks import Checks
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.messages import STREAM_LEVELS, STREAMS_PER_LEVEL
from telegrad_protocol.meta import Device

DEFAULT_STREAM = 0
_KEPT_CHANGES = 1 << 16
"""Changes of the current stream that are kept per session; the older half is dropped when there are more."""


def priority_of(number: int) -> int:
    """The priority of a stream by its number, as CUDA counts them: 0, or negative for streams that go first."""
    if not 0 <= number <= STREAM_LEVELS * STREAMS_PER_LEVEL:
        raise ArgumentError(f"stream: there is no stream number {number}")
    return -((number - 1) // STREAMS_PER_LEVEL) if number else 0


class Streams:
    """One session's streams on all its devices."""

    __slots__ = ("_sequences", "_snapshots", "left_default", "opened")

    def __init__(self) -> None:
        self.opened: dict[Device, dict[int, int]] = {}
        """Raw streams by number."""
        self.left_default = False
        """Whether the session ever left a default stream."""
        self._sequences: list[int] = []
        self._snapshots: list[dict[Device, int]] = []

    def note_change(self, sequence: int, before: dict[Device, int], after: dict[Device, int]) -> None:
        """Note that nodes after number ``sequence`` are made on the streams of ``after``, one per device."""
        if not self._sequences:
            self.left_default = True
            self._append(0, before)
        if self._sequences[-1] == sequence - 1:
            self._sequences[-1], self._snapshots[-1] = sequence, dict(after)
            return
        self._append(sequence, after)
        if len(self._sequences) > _KEPT_CHANGES:
            del self._sequences[: _KEPT_CHANGES // 2], self._snapshots[: _KEPT_CHANGES // 2]

    def _append(self, sequence: int, current: dict[Device, int]) -> None:
        self._sequences.append(sequence)
        self._snapshots.append(dict(current))

    def at(self, sequence: int, device: Device) -> int | None:
        """The raw stream that was current when a node was made; None if that is no longer kept."""
        place = bisect_right(self._sequences, sequence) - 1
        return self._snapshots[place].get(device) if place >= 0 else None


class StreamUser(Protocol):
    """What a backend needs of a context to choose its streams: see ``context.Context``."""

    streams: dict[Device, int]
    """The raw stream that is current, by device."""
    own_streams: Streams
    checks: Checks
