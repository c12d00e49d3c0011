"""What a finished profile shows: tables, events, and files. The profilers of both namespaces are made of it."""

from __future__ import annotations

import warnings
from typing import Any

from telegrad._session.current import current_session
from telegrad._session.own_code import depth_of_program
from telegrad_protocol.errors import ArgumentError, AutogradError

from ._build import Wanted, build_events
from ._capture import Capture, Captured
from ._event_list import EventList
from ._events import FunctionEventAvg
from ._labels import Labels
from ._memory_timeline import write_memory_timeline
from ._range_log import RangeNote, current
from ._round_trips import RoundTrips
from ._trace_file import trace_document, write_trace


class Results:
    """One captured stretch and what can be made of it."""

    def __init__(self, captured: Captured, ranges: list[RangeNote], wanted: Wanted, metadata: dict[str, Any]) -> None:
        self.captured, self.ranges, self.wanted, self.metadata = captured, ranges, wanted, metadata
        self._events: EventList | None = None
        self.earlier: Results | None = None
        """The stretch before this one, whose events are counted as well."""

    @property
    def events(self) -> EventList:
        """All events, made when they are first asked for."""
        if self._events is None:
            wanted = self.wanted
            events = [*(self.earlier.events if self.earlier else ()), *build_events(self.captured, wanted)]
            self._events = EventList(
                events, use_device=wanted.use_device, profile_memory=wanted.memory, with_flops=wanted.flops
            )
        return self._events

    function_events = events

    def table(self, *arguments: Any, **named: Any) -> str:
        """Return the events as a table."""
        return self.events.table(*arguments, **named)

    def key_averages(self, *grouping: Any, **named: Any) -> EventList:
        """Return averages of the events."""
        return self.events.key_averages(*grouping, **named)

    def total_average(self) -> FunctionEventAvg:
        """Return one average of all events."""
        return self.events.total_average()

    def export_chrome_trace(self, path: str) -> None:
        """Write everything that was noted, in Chrome's format."""
        document = trace_document(self.captured, self.ranges, self.metadata, self.wanted)
        write_trace(path, {**document, "traceName": str(path)})

    def export_memory_timeline(self, path: str, device: str | None) -> None:
        """Write the memory of a device over time."""
        if not self.wanted.memory:
            raise ArgumentError(
                "export_memory_timeline: record_shapes=True, profile_memory=True, with_stack=True required for memory "
                "profiling"
            )
        write_memory_timeline(self.captured, path, device or ("cuda:0" if self.wanted.use_device else "cpu"))

    def round_trips(self) -> RoundTrips:
        """Return the waits of the stretch, by line."""
        return RoundTrips.of(self.captured.log.waits)


class Stretch:
    """Records one stretch of the program; only one is recorded at a time."""

    def __init__(self, wanted: Wanted, metadata: dict[str, Any]) -> None:
        if current:
            raise AutogradError("profile: another profile, or emit_nvtx, is going on in this program; end it first")
        self._wanted, self._metadata = wanted, metadata
        self._ranges: list[RangeNote] = []
        self._capture = Capture(memory=wanted.memory, devices=wanted.use_device is not None, with_stack=wanted.stacks)
        current[:] = [self._capture, self._ranges]
        self._labels = Labels.of_all()

    def stop(self) -> Results:
        """End the stretch and return what it shows."""
        current.clear()
        for labels in self._labels:
            labels.remove()
        captured = self._capture.stop()
        recorded = captured.timeline.recorded
        if recorded.message:
            warnings.warn(f"profile: {recorded.message} ({recorded.dropped} events)", stacklevel=depth_of_program())
        return Results(captured, self._ranges, self._wanted, self._metadata)


def has_gpu() -> bool:
    """Tell whether the session's server has a GPU."""
    return current_session().first_gpu is not None
