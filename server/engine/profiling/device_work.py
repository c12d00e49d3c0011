"""What notes the work of one GPU while a session is profiled: numbers for launches, and in the end their times."""

from __future__ import annotations

from typing import Protocol

from telegrad_protocol.tracing.recording import DeviceWork


class DeviceTracer(Protocol):
    """Notes the work of one GPU for one session."""

    def begin(self) -> int:
        """An operation begins: return the number of its first launch."""

    def end(self, first: int) -> int:
        """The operation ends: return how many launches it has asked for."""

    def stop(self) -> None:
        """Note nothing from here on; the times of what was launched may still be to come."""

    def result(self, began: int, ended: int) -> DeviceWork:
        """Return what the GPU did between two times, once it has done all that it was given."""
