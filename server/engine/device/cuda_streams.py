"""CUDA's streams and events: opened for sessions, kept for the next one when a session ends."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from server.engine.device.cupy_module import cp


class StreamPool:
    """The streams of one device. All are non-blocking: none waits for CUDA's legacy default stream."""

    __slots__ = ("_idle", "_link", "_open")

    def __init__(self) -> None:
        self._open: dict[int, tuple[Any, int]] = {}
        self._idle: defaultdict[int, list[Any]] = defaultdict(list)
        self._link: Any = None

    def take(self, priority: int = 0) -> int:
        """A stream that nobody else has; CUDA takes its highest priority for those beyond."""
        idle = self._idle[priority]
        stream = idle.pop() if idle else cp.cuda.Stream(non_blocking=True, priority=priority)
        self._open[stream.ptr] = (stream, priority)
        return int(stream.ptr)

    def use(self, pointer: int) -> None:
        """Launch on this stream from here on."""
        self._open[pointer][0].use()

    def give_back(self, pointer: int) -> None:
        """Wait for a stream, and keep it for the next session."""
        stream, priority = self._open.pop(pointer)
        stream.synchronize()
        self._idle[priority].append(stream)

    def join(self, producer: int, consumer: int) -> None:
        """Let what ``consumer`` gets from here on wait for what ``producer`` has by now."""
        if self._link is None:
            self._link = cp.cuda.Event(disable_timing=True)
        runtime = cp.cuda.runtime
        runtime.eventRecord(self._link.ptr, producer)
        runtime.streamWaitEvent(consumer, self._link.ptr)  # it keeps what was recorded, whatever comes after


class CudaEvent:
    """A point in the work of a stream, moved by each ``record``."""

    __slots__ = ("_event", "is_timed")

    def __init__(self, is_timed: bool) -> None:
        self._event = cp.cuda.Event(disable_timing=not is_timed)
        self.is_timed = is_timed

    def record(self, stream: int) -> None:
        """Become the point that ``stream`` will reach with what it has been given by now."""
        cp.cuda.runtime.eventRecord(self._event.ptr, stream)

    def hold(self, stream: int) -> None:
        """Let what ``stream`` is given from here on wait for this event."""
        cp.cuda.runtime.streamWaitEvent(stream, self._event.ptr)

    def is_ready(self) -> bool:
        """Whether the stream has come this far."""
        return bool(self._event.done)

    def milliseconds_to(self, later: CudaEvent) -> float:
        """The time between two timed events that have both been reached."""
        return float(cp.cuda.runtime.eventElapsedTime(self._event.ptr, later._event.ptr))
