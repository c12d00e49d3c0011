"""CUDA's streams and events; streams are opened for sessions, and kept for the next session when one ends."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from server.engine.device.cupy_module import cp

from .current_device import current_device, on_its_device


class StreamPool:
    """The streams of one device. All are non-blocking: none waits for CUDA's legacy default stream."""

    __slots__ = ("_idle", "_link", "_open", "index")

    def __init__(self, index: int) -> None:
        self.index = index
        self._open: dict[int, tuple[Any, int]] = {}
        self._idle: defaultdict[int, list[Any]] = defaultdict(list)
        self._link: Any = None

    @on_its_device
    def take(self, priority: int = 0) -> int:
        """A raw stream that no other session has; CUDA takes its highest priority for higher ones."""
        idle = self._idle[priority]
        stream = idle.pop() if idle else cp.cuda.Stream(non_blocking=True, priority=priority)
        self._open[stream.ptr] = (stream, priority)
        return int(stream.ptr)

    @on_its_device
    def use(self, pointer: int) -> None:
        """Make CuPy launch on this stream from here on."""
        self._open[pointer][0].use()

    def give_back(self, pointer: int) -> None:
        """Wait for a stream's work, and keep the stream for the next session."""
        stream, priority = self._open.pop(pointer)
        stream.synchronize()
        self._idle[priority].append(stream)

    def join(self, producer: int, consumer: int) -> None:
        """Make later work of ``consumer`` wait for all work that ``producer`` has been given so far."""
        if self._link is None:
            with current_device(self.index):
                self._link = cp.cuda.Event(disable_timing=True)
        runtime = cp.cuda.runtime
        runtime.eventRecord(self._link.ptr, producer)
        runtime.streamWaitEvent(consumer, self._link.ptr)  # waits for this record, even if another follows


class CudaEvent:
    """A point in the work of a stream, moved by each ``record``."""

    __slots__ = ("_event", "is_timed")

    def __init__(self, is_timed: bool) -> None:
        self._event = cp.cuda.Event(disable_timing=not is_timed)
        self.is_timed = is_timed

    def record(self, stream: int) -> None:
        """Become the point after all work that ``stream`` has been given so far."""
        cp.cuda.runtime.eventRecord(self._event.ptr, stream)

    def hold(self, stream: int) -> None:
        """Make later work of ``stream`` wait for this event."""
        cp.cuda.runtime.streamWaitEvent(stream, self._event.ptr)

    def is_ready(self) -> bool:
        """Whether the stream has done all work before this event."""
        return bool(self._event.done)

    def milliseconds_to(self, later: CudaEvent) -> float:
        """The milliseconds between two timed events, both of which the device has reached."""
        return float(cp.cuda.runtime.eventElapsedTime(self._event.ptr, later._event.ptr))
