"""What notes the work of one GPU for one session: by CUPTI where it serves, else by events around operations.

CUPTI has the times of every kernel, in graphs too, and leaves everything as it is. Events have the time from an
operation's first launch to its last, and of a graph as a whole; launches then do not wait for each other, so that an
operation's are its own. The result says which it was, and why.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from cuda.bindings import driver

from server.engine import context
from server.engine.device.cuda_graphs import CudaGraph
from server.engine.device.cupy_module import cp, runtime
from server.engine.device.current_device import current_device, on_its_device
from server.engine.device.launch_queue import LaunchQueue
from server.engine.device.streams import StreamUser
from telegrad_protocol.meta import Device
from telegrad_protocol.tracing import recording
from telegrad_protocol.tracing.recording import DeviceWork

from .cupti_activity import Activity, Work, open_activity
from .device_work import DeviceTracer
from .function_names import plain_name
from .gpu_properties import trace_properties
from .traced_launches import traced, untraced

now: Final = time.monotonic_ns
MOST_PAIRS: Final = 1 << 16
"""Times between events are taken so often; later ones are missing."""


class Gpu(Protocol):
    """The backend of a GPU, as far as it is traced."""

    index: int
    device: Device
    launches: LaunchQueue
    stream: int


def open_tracer(backend: Gpu, ctx: StreamUser) -> DeviceTracer:
    """Begin to note what a GPU does for a context."""
    activity = open_activity()
    if isinstance(activity, Activity):
        try:
            return CuptiTracer(backend, ctx, activity)
        except Exception as error:
            activity = f"CUPTI refuses: {error}"
    return EventTracer(backend, ctx, f"{activity}; times are those between two events around each operation")


class _Tracer:
    """What both ways have in common: the numbers of launches, and who is watched."""

    def __init__(self, backend: Gpu, ctx: StreamUser, waits: bool) -> None:
        self._backend, self._context, self.index = backend, ctx, backend.index
        self._queue = backend.launches
        self._launches = traced(self._queue, waits)
        self.log = self._launches if waits else None
        self._is_released = False

    def _streams(self) -> list[int]:
        return list(self._context.own_streams.opened.get(self._backend.device, {}).values())

    def _flushes(self, began: int, ended: int) -> bytes:
        rows = self._launches.rows
        kept = array("q")
        for place in range(0, len(rows), 4):
            if began <= rows[place] <= ended:
                kept.extend(rows[place : place + 4])
        return kept.tobytes()

    def _properties(self) -> dict[str, Any]:
        return trace_properties(runtime.getDeviceProperties(self._backend.index))

    def release(self) -> None:
        """Give up what is held for this tracer; a second time does nothing."""
        if not self._is_released:
            self._is_released = True
            untraced(self._queue)
            self._release()

    def _release(self) -> None:
        raise NotImplementedError

    def __del__(self) -> None:
        if not getattr(self, "_is_released", True):
            self.release()


class CuptiTracer(_Tracer):
    """Takes the records of one session's streams."""

    def __init__(self, backend: Gpu, ctx: StreamUser, activity: Activity) -> None:
        self._activity = activity
        self._numbers: set[int] = set()
        activity.use()
        try:
            self._first = activity.offset()
            super().__init__(backend, ctx, waits=True)
            self._note_streams()
        except Exception:
            activity.leave()
            raise

    def _note_streams(self) -> None:
        """Note the numbers that CUPTI has for the session's streams."""
        with current_device(self._backend.index):
            status, ctx = driver.cuCtxGetCurrent()
            if status != driver.CUresult.CUDA_SUCCESS:
                raise RuntimeError(f"no context is current: {status}")
            self._numbers.update(
                int(self._activity.cupti.get_stream_id_ex(int(ctx), stream, 0)) for stream in self._streams()
            )

    def begin(self) -> int:
        return self._launches.made + len(self._launches.waiting)

    def end(self, first: int) -> int:
        return self.begin() - first

    def stop(self) -> None:
        """Launch what waits; nothing else is left to do before the GPU has come to the end."""
        self._queue.flush()

    def result(self, began: int, ended: int, is_final: bool = True) -> DeviceWork:
        self._note_streams()
        activity = self._activity
        activity.flush()
        host = _HostTimes(self._first, activity.offset())
        work = [w for w in activity.work() if self._is_own(w) and began <= host(w.begin) <= now()]
        texts, names = list(activity.names), dict[str, int]()
        kernels, correlations = array("q"), set[int]()
        for w in work:
            correlations.add(w.correlation)
            kernels.extend((
                names.setdefault(plain_name(texts[w.name]), len(names)), w.kind, host(w.begin), host(w.end),
                w.correlation, w.stream, w.graph, w.nbytes, w.grid, w.block, w.registers, w.shared,
            ))  # fmt: skip
        calls = _calls(activity, correlations, host, names)
        flushes, dropped = self._flushes(began, ended), activity.dropped
        if is_final:
            self.release()
        return DeviceWork(
            self._backend.index, recording.CUPTI_TIMES, "", list(names), kernels.tobytes(), calls, flushes,
            self._properties(), dropped,
        )  # fmt: skip

    def _is_own(self, work: Work) -> bool:
        return work.device == self._backend.index and work.stream in self._numbers and work.end > 0

    def _release(self) -> None:
        self._activity.leave()


def _calls(activity: Activity, correlations: set[int], host: Callable[[int], int], names: dict[str, int]) -> bytes:
    """Return the calls that launched work; of nested calls of one correlation the outermost."""
    latest: dict[int, tuple[int, int, int, int]] = {}
    for kind, function, begin, end, correlation in activity.calls():
        known = latest.get(correlation)
        if correlation in correlations and (known is None or begin < known[2]):
            latest[correlation] = (kind, function, begin, end)
    rows, known_names = array("q"), dict[tuple[int, int], int]()
    for correlation, (kind, function, begin, end) in latest.items():
        name = known_names.get((kind, function))
        if name is None:
            text = activity.name_of_call(kind, function)
            name = known_names[kind, function] = names.setdefault(text, len(names))
        rows.extend((name, host(begin), host(end), correlation))
    return rows.tobytes()


class _HostTimes:
    """Converts CUPTI's times to the host's, by two comparisons of the clocks."""

    def __init__(self, first: tuple[int, int], last: tuple[int, int]) -> None:
        self._begin, self._offset = first[0] + first[1], first[1]
        passed = last[0] - first[0]
        self._drift = (last[1] - first[1]) / passed if passed > 0 else 0.0

    def __call__(self, theirs: int) -> int:
        return theirs - self._offset - int(self._drift * (theirs - self._begin))


class EventTracer(_Tracer):
    """Records an event before and after each operation."""

    def __init__(self, backend: Gpu, ctx: StreamUser, why: str) -> None:
        super().__init__(backend, ctx, waits=False)
        self._why = why
        self._pairs: list[list[Any]] = []
        self._dropped = 0
        with current_device(backend.index):
            self._base = cp.cuda.Event()
            self._base.record(cp.cuda.get_current_stream())
            self._base.synchronize()
        self._base_time = now()
        _graph_users.append(self)
        CudaGraph.launch = _noted_launch  # type: ignore[method-assign]

    def begin(self) -> int:
        if len(self._pairs) >= MOST_PAIRS:
            self._dropped += 1
            return -1
        self._pairs.append([self._event(), None, self._backend.stream])
        return len(self._pairs) - 1

    def end(self, first: int) -> int:
        if first < 0:
            return 0
        self._pairs[first][1] = self._event()
        return 1

    @on_its_device
    def _event(self) -> Any:
        event = cp.cuda.Event()
        runtime.eventRecord(event.ptr, self._backend.stream)
        return event

    def stop(self) -> None:
        if self in _graph_users:
            _graph_users.remove(self)
        if not _graph_users:
            CudaGraph.launch = _plain_launch  # type: ignore[method-assign]

    def result(self, began: int, ended: int, is_final: bool = True) -> DeviceWork:
        rows = array("q")
        with current_device(self._backend.index):
            for number, (first, last, stream) in enumerate(self._pairs):
                if last is not None and (is_final or last.done):
                    rows.extend((0, 0, self._time(first), self._time(last), number, stream & 0x7FFFFFFF, *[0] * 6))
        if is_final:
            self._pairs.clear()
            self.release()
        return DeviceWork(
            self._backend.index, recording.EVENT_TIMES, self._why, ["(time between events)"], rows.tobytes(), b"", b"",
            self._properties(), self._dropped,
        )  # fmt: skip

    def _time(self, event: Any) -> int:
        event.synchronize()
        return self._base_time + int(1e6 * runtime.eventElapsedTime(self._base.ptr, event.ptr))

    def _release(self) -> None:
        self.stop()


_graph_users: list[EventTracer] = []
_plain_launch = CudaGraph.launch


def _noted_launch(graph: CudaGraph) -> bool:
    """Launch a graph, and note the time that it takes as a whole."""
    recorder = context.current.profiler
    tracers: Iterable[Any] = () if recorder is None else recorder.tracers.values()
    tracer = next((t for t in tracers if t in _graph_users and t._backend.index == graph.index), None)
    if recorder is None or tracer is None:
        return _plain_launch(graph)
    first, begin = tracer.begin(), now()
    try:
        return _plain_launch(graph)
    finally:
        name = recorder.named(recording.REPLAY, "telegrad::graph_launch", graph.index)
        recorder.note(name, begin, first, tracer.end(first))
