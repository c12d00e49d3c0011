"""A device that claims to be a GPU: NumPy on host memory, with streams and events that only write down what happens."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from server.allocator import CachingAllocator, HostUpstream
from server.engine import keys
from server.engine.context import Context
from server.engine.device.cpu_backend import CpuBackend
from server.engine.device.stream_backend import StreamedBackend
from server.worker.host import Host
from telegrad_protocol.meta import Device

GPU = Device("cuda", 7)
"""Of a number that no real one has: what is worked out for a device is kept for the process."""


class QueuePool:
    """Streams are numbers; ``joins`` are pairs of who was waited for and who waited."""

    def __init__(self) -> None:
        self._numbers = itertools.count(100)
        self.priorities: dict[int, int] = {}
        self.joins: list[tuple[int, int]] = []
        self.used: list[int] = []
        self.returned: list[int] = []

    def take(self, priority: int = 0) -> int:
        pointer = next(self._numbers)
        self.priorities[pointer] = priority
        return pointer

    def use(self, pointer: int) -> None:
        if self.used[-1:] != [pointer]:
            self.used.append(pointer)

    def give_back(self, pointer: int) -> None:
        self.returned.append(pointer)

    def join(self, producer: int, consumer: int) -> None:
        self.joins.append((producer, consumer))


class QueuedEvent:
    """Reached after it was asked ``delay`` times."""

    def __init__(self, backend: QueuedBackend, is_timed: bool) -> None:
        self._backend = backend
        self.is_timed = is_timed
        self.recorded: list[int] = []
        self.held: list[int] = []
        self._left = 0
        backend.events.append(self)

    def record(self, stream: int) -> None:
        self.recorded.append(stream)
        self._left = self._backend.delay

    def hold(self, stream: int) -> None:
        self.held.append(stream)

    def is_ready(self) -> bool:
        self._left -= 1
        return self._left < 0

    def milliseconds_to(self, later: Any) -> float:
        assert self._left < 0 and later._left < 0, "time is told between events that were reached"
        return 2.5


class QueuedBackend(StreamedBackend, CpuBackend):
    """Notes on which stream each piece of memory was asked for."""

    key = keys.CUDA

    def __init__(self, device: Device = GPU) -> None:
        self.pool = QueuePool()
        self.events: list[QueuedEvent] = []
        self.delay = 0
        self.held_back: list[tuple[int, int]] = []
        super().__init__(device, CachingAllocator(HostUpstream()), self.pool)

        def note(block: Any, stream: int) -> None:
            self.held_back.append((block.stream, stream))

        self.allocator.record_stream = note  # type: ignore[method-assign]

    def forget(self) -> None:
        """Begin to write anew."""
        self.pool.priorities.clear()
        for log in (self.pool.joins, self.pool.used, self.pool.returned, self.events, self.held_back):
            log.clear()
        self.delay = 0

    def new_event(self, is_timed: bool) -> QueuedEvent:
        return QueuedEvent(self, is_timed)

    def marks(self, ctx: Context) -> list[Any]:
        made = []
        for pointer in ctx.own_streams.opened.get(self.device, {}).values():
            made.append(self.new_event(False))
            made[-1].record(pointer)
        return made


@functools.cache
def queued_host() -> tuple[Host, QueuedBackend]:
    """The process's one host whose default device is such a GPU."""
    host, backend = Host(["cpu"]), QueuedBackend()
    host.backends[GPU] = backend
    host.default_device = GPU
    return host, backend
