"""Pairs of events of one GPU, before and after pieces of work: recorded one by one, and read in the end.

An event is CUDA's raw handle. Making one takes about as long as recording it, so they are made many at once and used
again, by later profiles too. What cannot be recorded or read is left out and counted, and spoils nothing else. Knows
neither sessions nor operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

MOST_PAIRS: Final = 1 << 16
"""Times between events are taken so often; later ones are missing."""
MOST_FREE: Final = 1 << 13
"""So many events of a GPU are kept for later at most."""
_MADE_AT_ONCE: Final = 512
_LAST_SPECIAL_STREAM: Final = 2
"""Handles up to this one stand for default streams, of whichever GPU is current."""
_DONE: Final = 0
"""cudaSuccess; while there is work left it is cudaErrorNotReady."""

_free: dict[int, list[int]] = {}
"""Events that are in no use, by the numbers of their GPUs."""


class EventPairs:
    """The pairs of one profile, on the GPU that is ``index``. Numbers of pairs count from 0; -1 is none.

    ``runtime`` is CUDA's runtime as CuPy has it: what fails raises.
    """

    def __init__(self, runtime: Any, index: int) -> None:
        self.dropped = 0
        self._runtime, self._index = runtime, index
        self._record = runtime.eventRecord
        self._unused = _free.setdefault(index, [])
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._streams: list[int] = []
        if len(self._unused) < _MADE_AT_ONCE:
            self._make_events()

    def begin(self, stream: int) -> int:
        """Record the first event of a pair on a raw stream; return the pair's number."""
        unused = self._unused
        number = len(self._firsts)
        if number >= MOST_PAIRS:
            self.dropped += 1
            return -1
        try:
            if not unused:
                self._make_events()
            first = unused.pop()
            self._firsts.append(first)
            self._lasts.append(0)
            self._streams.append(stream)
            if stream > _LAST_SPECIAL_STREAM:
                self._record(first, stream)
            else:
                self._record_here(first, stream)
        except Exception:
            self._drop(number)
            return -1
        return number

    def end(self, number: int, stream: int) -> bool:
        """Record the last event of a pair; returns whether the pair tells a time."""
        try:
            if not self._unused:
                self._make_events()
            self._lasts[number] = last = self._unused.pop()
            if stream > _LAST_SPECIAL_STREAM:
                self._record(last, stream)
            else:
                self._record_here(last, stream)
        except Exception:
            self._drop(number)
            return False
        return True

    def cancel(self, number: int) -> None:
        """Leave out a pair whose last event is not to be recorded."""
        self._drop(number)

    def base(self, stream: int) -> int:
        """Record an event, wait for it, and return it: times are told from it on."""
        if not self._unused:
            self._make_events()
        event = self._unused.pop()
        self._record_here(event, stream)
        self._runtime.eventSynchronize(event)
        return event

    def times(self, base: int, waits: bool) -> Iterator[tuple[int, int, int, int]]:
        """Yield the number, stream, begin and end of each pair, in nanoseconds since the event ``base``.

        With ``waits`` all of them, which are counted as dropped where they cannot be read; else those that are reached.
        """
        for number, (first, last, stream) in enumerate(zip(self._firsts, self._lasts, self._streams)):
            if not last or not (waits or self._is_reached(last)):
                continue
            try:
                begin, end = self._read(base, first, last)
            except Exception:
                if waits:
                    self._drop(number)
                continue
            yield number, stream, begin, end

    def release(self, base: int) -> None:
        """Keep the events for later, and destroy what is too many."""
        unused = self._unused
        unused += [event for event in (base, *self._firsts, *self._lasts) if event]
        self._firsts, self._lasts, self._streams = [], [], []
        while len(unused) > MOST_FREE:
            self._destroy(unused.pop())

    def _read(self, base: int, first: int, last: int) -> tuple[int, int]:
        """Return the two times; the second from the first, since a float has few digits for a time from far away."""
        runtime = self._runtime
        runtime.eventSynchronize(last)
        begin = int(1e6 * runtime.eventElapsedTime(base, first))
        return begin, begin + int(1e6 * runtime.eventElapsedTime(first, last))

    def _is_reached(self, event: int) -> bool:
        try:
            return bool(self._runtime.eventQuery(event) == _DONE)
        except Exception:
            return False

    def _drop(self, number: int) -> None:
        """Leave out a pair, and use its events no more: nobody knows what state they are in."""
        self.dropped += 1
        if number >= len(self._firsts):
            return
        for events in (self._firsts, self._lasts):
            event, events[number] = events[number], 0
            if event:
                self._destroy(event)

    def _destroy(self, event: int) -> None:
        try:
            self._runtime.eventDestroy(event)
        except Exception:  # the device may be gone
            return

    def _make_events(self) -> None:
        runtime = self._runtime
        before = runtime.getDevice()
        runtime.setDevice(self._index)
        try:
            self._unused += [runtime.eventCreateWithFlags(0) for _ in range(_MADE_AT_ONCE)]
        finally:
            runtime.setDevice(before)

    def _record_here(self, event: int, stream: int) -> None:
        """Record an event on a stream whose handle may stand for another one on another GPU."""
        runtime = self._runtime
        before = runtime.getDevice()
        runtime.setDevice(self._index)
        try:
            self._record(event, stream)
        finally:
            runtime.setDevice(before)
