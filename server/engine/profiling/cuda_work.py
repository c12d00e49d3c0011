"""What notes the work of one GPU for one session: by CUPTI where it serves, else by events around operations.

CUPTI has the times of every kernel, in graphs too, and leaves everything as it is. Events have the time from an
operation's first launch to its last, and of a graph as a whole; launches then do not wait for each other, so that an
operation's are its own. Operations that are captured are executed with the graph later, so none are recorded for them.
The result says which it was, and why.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol
from weakref import WeakSet

from cuda.bindings import driver

from server.engine import context
from server.engine.device.cuda_graphs import CudaGraph, captured_work
from server.engine.device.cupy_module import runtime
from server.engine.device.current_device import current_device
from server.engine.device.launch_queue import LaunchQueue
from server.engine.device.streams import StreamUser
from telegrad_protocol.meta import Device
from telegrad_protocol.tracing import recording
from telegrad_protocol.tracing.recording import DeviceWork

from .cupti_activity import Activity, Work, open_activity
from .device_work import DeviceTracer
from .event_pairs import EventPairs
from .function_names import plain_name
from .gpu_properties import trace_properties
from .traced_launches import traced, untraced

now: Final = time.monotonic_ns


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
        _graph_users.add(self)
        CudaGraph.launch = _noted_launch  # type: ignore[method-assign]

    def note_counts(self, counts: Sequence[int]) -> None:
        """Do nothing: these are counts of launches, which are made already."""

    def launch_graph(self, graph: CudaGraph, recorder: Any) -> bool:
        """Launch a graph, and note that in the device's way."""
        raise NotImplementedError

    def stop(self) -> None:
        """Note no launches of graphs from here on."""
        _graph_users.discard(self)
        if not _graph_users:
            CudaGraph.launch = _plain_launch  # type: ignore[method-assign]

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
            self.stop()
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
        if CudaGraph.is_capturing:
            return captured_work(self._backend.stream)
        return self._launches.made + len(self._launches.waiting)

    def end(self, first: int) -> int:
        return self.begin() - first

    def launch_graph(self, graph: CudaGraph, recorder: Any) -> bool:
        """Launch a graph; its kernels are those of operations where it is known of which."""
        begin = now()
        try:
            return _plain_launch(graph)
        finally:
            self._launches.note_graph(begin, graph.counts)

    def stop(self) -> None:
        """Launch what waits; nothing else is left to do before the GPU has come to the end."""
        super().stop()
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
        flushes, parts, dropped = self._flushes(began, ended), self._launches.parts.tobytes(), activity.dropped
        if is_final:
            self.release()
        return DeviceWork(
            self._backend.index, recording.CUPTI_TIMES, "", list(names), kernels.tobytes(), calls, flushes,
            self._properties(), dropped, parts,
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
        self._pairs = EventPairs(runtime, backend.index)
        self._base = self._pairs.base(backend.stream)
        self._base_time = now()

    def begin(self) -> int:
        return -1 if CudaGraph.is_capturing else self._pairs.begin(self._backend.stream)

    def end(self, first: int) -> int:
        if first < 0:
            return 0
        if CudaGraph.is_capturing:
            self._pairs.cancel(first)
            return 0
        return int(self._pairs.end(first, self._backend.stream))

    def launch_graph(self, graph: CudaGraph, recorder: Any) -> bool:
        """Launch a graph, and note the time that it takes as a whole."""
        first, begin = self.begin(), now()
        try:
            return _plain_launch(graph)
        finally:
            name = recorder.named(recording.REPLAY, "telegrad::graph_launch", graph.index)
            recorder.note(name, begin, first, self.end(first))

    def result(self, began: int, ended: int, is_final: bool = True) -> DeviceWork:
        rows, base = array("q"), self._base_time
        for number, stream, begin, end in self._pairs.times(self._base, waits=is_final):
            rows.extend((0, 0, base + begin, base + end, number, stream & 0x7FFFFFFF, *[0] * 6))
        dropped = self._pairs.dropped
        if is_final:
            self.release()
        return DeviceWork(
            self._backend.index, recording.EVENT_TIMES, self._why, ["(time between events)"], rows.tobytes(), b"", b"",
            self._properties(), dropped,
        )  # fmt: skip

    def _release(self) -> None:
        self._pairs.release(self._base)


_graph_users: WeakSet[_Tracer] = WeakSet()
_plain_launch = CudaGraph.launch


def _noted_launch(graph: CudaGraph) -> bool:
    """Launch a graph, noted by the tracer of its device, if the session is profiled that has it launched."""
    recorder = context.current.profiler
    tracers: Iterable[_Tracer] = () if recorder is None else recorder.tracers.values()
    tracer = next((t for t in tracers if t in _graph_users and t.index == graph.index), None)
    if recorder is None or tracer is None:
        return _plain_launch(graph)
    return tracer.launch_graph(graph, recorder)
