"""What notes the work of one GPU while a session is profiled: numbers for launches, and in the end their times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from telegrad_protocol.tracing.recording import DeviceWork

from .traced_launches import LaunchLog


class DeviceTracer(Protocol):
    """Notes the work of one GPU for one session."""

    log: LaunchLog | None
    """Numbers the launches, where ``begin`` and ``end`` do no more than to read it; None where they note something."""

    def note_counts(self, counts: Sequence[int]) -> None:
        """Do nothing: these are counts of launches, which are made already."""

    def begin(self) -> int:
        """An operation begins: return the number of its first launch, or of its first node in what is captured."""

    def end(self, first: int) -> int:
        """The operation ends: return how many launches it has asked for."""

    def stop(self) -> None:
        """Note nothing from here on; the times of what was launched may still be to come."""

    def result(self, began: int, ended: int, is_final: bool = True) -> DeviceWork:
        """Return what the GPU did between two times, as far as it has done what it was given; ``is_final``: the last.

        The tracer is released then.
        """

    def release(self) -> None:
        """Give up what is held for this; a second time does nothing."""
