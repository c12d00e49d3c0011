"""Profiling one stretch of a session: the server notes, the client notes, and in the end both are one trace.

The worker's clock is compared with the client's before and after: the shortest of several round trips says most. Where
both run on one host the clocks are the same, and no difference is applied.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from telegrad._session.current import current_session
from telegrad._session.session import ClientSession
from telegrad_protocol.errors import OutOfMemoryError, TelegradError
from telegrad_protocol.tracing import recording
from telegrad_protocol.tracing.recording import Recording
from telegrad_protocol.tracing.timeline import Timeline

from ._log import ClientLog, now
from ._requests import untold

CLOCK_ROUND_TRIPS: Final = 5
LIMIT: Final = 64 << 20


class ClockReading(NamedTuple):
    """The worker's clock minus the client's, in nanoseconds, at a time of the client's; wrong by at most ``error``."""

    at: int
    offset: int
    error: int


def read_clock(session: ClientSession) -> ClockReading:
    """Compare the clocks: what the shortest of several round trips says."""
    best: ClockReading | None = None
    for _ in range(CLOCK_ROUND_TRIPS):
        begin = now()
        theirs = session.query("profile_clock")
        end = now()
        reading = ClockReading((begin + end) // 2, theirs - (begin + end) // 2, (end - begin) // 2)
        if best is None or reading.error < best.error:
            best = reading
    assert best is not None  # there is at least one round trip
    return best


class Clocks:
    """Converts the worker's nanoseconds to microseconds on the client's clock."""

    def __init__(self, first: ClockReading, last: ClockReading) -> None:
        self.is_same = abs(first.offset) <= first.error and abs(last.offset) <= last.error
        self.error = max(first.error, last.error)
        self.offset = 0 if self.is_same else first.offset
        passed = last.at - first.at
        self._begin = first.at + first.offset
        self._drift = 0.0 if self.is_same or passed <= 0 else (last.offset - first.offset) / passed

    def __call__(self, nanoseconds: int) -> float:
        return (nanoseconds - self.offset - self._drift * (nanoseconds - self._begin)) / 1000


class Captured(NamedTuple):
    """One recorded stretch: the worker's part on the client's clock, and the client's own."""

    timeline: Timeline
    log: ClientLog
    clocks: Clocks
    wall_offset: int
    """Nanoseconds between the client's monotonic clock and the time of day."""


class Capture:
    """A stretch that is being recorded; ``stop`` returns what was noted."""

    def __init__(self, *, memory: bool, devices: bool, with_stack: bool) -> None:
        self.session = current_session()
        self.log = ClientLog(self.session, with_stack)
        with untold():
            self._first = read_clock(self.session)
            self.session.query("start_profile", memory, devices, LIMIT)
        self.log.start()

    def stop(self) -> Captured:
        """End the recording; waits until the server has done all that was queued. Raises what has failed of it."""
        self.log.stop()
        failure: TelegradError | None = None
        with untold():
            try:
                recorded = self._fetch()
            except OutOfMemoryError:
                raise
            except TelegradError as error:
                failure = error
                recorded = self._fetch()  # the failure was told, and the session goes on
            last = read_clock(self.session)
        clocks = Clocks(self._first, last)
        if failure is not None:
            raise failure
        return Captured(Timeline(recorded, clocks), self.log, clocks, time.time_ns() - now())

    def _fetch(self) -> Recording:
        session = self.session
        id = session.query("stop_profile")
        if id is None:
            raise OutOfMemoryError("profile: the session's quota has no room for its trace; free tensors first")
        try:
            return recording.decode(bytes(session.read(id)[2]))
        finally:
            session.free(id)
