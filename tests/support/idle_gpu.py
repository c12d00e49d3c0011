"""A GPU on which nothing runs: launches are prepared, wait and are flushed as on a real one, but no kernel is started.

So all that a session does on the host for an operation is there to be measured or counted, but for the driver. Elements
are whatever the memory holds. A process that opens this device must open no other one of its name.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from server.engine import keys
from server.engine.device.interface import NoCounter, RelocatableWork
from server.engine.device.launch_queue import LaunchQueue
from server.engine.operators import OPERATORS, Preparer, Request
from server.engine.profiling.traced_launches import traced, untraced
from server.engine.value import Launch, Value
from server.worker.host import Host
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.tracing.recording import CUPTI_TIMES, DeviceWork

from ..session.queued import QueuedBackend

GPU = Device("cuda", 0)


class IdleGraph:
    """What was captured, and is launched by doing nothing."""

    nbytes = 1 << 10
    counts: Sequence[int] = ()

    def launch(self) -> bool:
        return True


class IdleRelocated(IdleGraph):
    """What was noted, and is launched on any memory by doing nothing."""

    def launch_on(self, values: Sequence[Any], made: Sequence[Any]) -> bool:
        return True


class _Noting(NoCounter):
    """Counts no launches while they are noted in a queue."""

    def __init__(self, queue: LaunchQueue) -> None:
        self.forget = queue.waiting.clear


class NoState:
    """Kernels that are never started read no random state."""

    pointer = 0

    def write(self, stream: int, seed: int, offset: int) -> None:
        pass


class IdleGpu(QueuedBackend):
    """The device."""

    can_capture = True

    def capture(self, work: Callable[[], bool]) -> IdleGraph | None:
        return IdleGraph() if self.at_once(work)() else None

    def relocatable(self, work: RelocatableWork) -> IdleRelocated | None:
        counter = _Noting(self.launches)
        return IdleRelocated() if self.launches.noted(lambda: work.note(counter)) else None

    def place(self) -> tuple[Any, ...]:
        return ()

    def random_state(self) -> NoState:
        return NoState()

    def __init__(self) -> None:
        super().__init__(GPU)
        self.launches = LaunchQueue(lambda stream, work: None, lambda stream: False)

    def allow_waiting(self) -> None:
        self.launches.allow()

    def flush(self) -> None:
        self.launches.flush()

    def end_waiting(self) -> None:
        self.launches.disallow()

    def begin_session(self) -> None:
        super().begin_session()
        self.launches.end_cooldown()

    def deferring(self, launch: Launch) -> Launch:
        return self.launches.deferring(launch)

    def submit(self, perform: Callable[..., None], *arguments: Any) -> None:
        self.launches.submit(perform, self.stream, *arguments)

    def at_once(self, work: Callable[..., Any]) -> Callable[..., Any]:
        return self.launches.at_once(work)

    def trace_work(self, ctx: Any) -> IdleTracer:
        return IdleTracer(self.launches)


class IdleTracer:
    """Numbers launches as they are where CUPTI has the times of kernels, of which there are none here."""

    def __init__(self, queue: LaunchQueue) -> None:
        self._queue, self.log = queue, traced(queue, waits=True)
        self._is_released = False

    def begin(self) -> int:
        return self.log.made + len(self.log.waiting)

    def end(self, first: int) -> int:
        return self.begin() - first

    def note_counts(self, counts: Sequence[int]) -> None:
        """Do nothing: these are counts of launches, which are made already."""

    def stop(self) -> None:
        self._queue.flush()

    def result(self, began: int, ended: int, is_final: bool = True) -> DeviceWork:
        rows = self.log.rows.tobytes()
        if is_final:
            self.release()
        return DeviceWork(0, CUPTI_TIMES, "", [], b"", b"", rows, {})

    def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            untraced(self._queue)


class IdleHost(Host):
    """A host of the worker whose devices are an idle GPU and the CPU."""

    def __init__(self, devices: list[str] | None = None) -> None:
        super().__init__(["cpu"])
        self.backends = {GPU: IdleGpu(), **self.backends}
        self.default_device = GPU
        for operator in OPERATORS.values():
            operator.preparers.setdefault(keys.CUDA, [Preparer(_launch_of, True, True, True)])


def _launch_of(request: Request) -> Launch:
    """A prepared kernel that passes the addresses of its operands on, as one of a GPU does, and starts nothing."""
    places = [place for place, item in enumerate(request.args) if isinstance(item, Meta)]
    backend: Any = request.backend
    perform = _kernel(len(places) + len(request.outs), backend.launches)

    def work(bound: tuple[Any, ...], values: tuple[Value, ...]) -> None:
        operands = [bound[place] for place in places]
        perform(backend.stream, *[_pointer(value) for value in (*operands, *values)])

    return work


def _pointer(value: Value) -> int:
    meta = value.meta
    return value.storage.block.pointer + meta.offset * meta.dtype.itemsize


def _kernel(count: int, launches: LaunchQueue) -> Callable[..., None]:
    fill = struct.Struct(f"={count}Q").pack_into
    buffer = ctypes.create_string_buffer(8 * count + 1)

    def launch(stream: int, *pointers: int) -> None:
        if launches.is_open:
            launches.waiting.append((launch, stream, *pointers))
            return
        fill(buffer, 0, *pointers)

    return launch
