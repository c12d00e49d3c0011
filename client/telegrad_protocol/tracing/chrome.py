"""A timeline as a trace in Chrome's format, with the categories and fields that PyTorch's tools read.

The worker is a process of its own, with its operations (``cpu_op``), labelled ranges (``user_annotation``) and calls of
CUDA (``cuda_runtime``); each GPU is one, with a row per stream. Arrows lead from calls to kernels (``ac2g``), and from
operations to the nodes of the backward graph that they have made (``fwdbwd``).
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

from . import recording
from .recording import KernelRow, unpacked
from .spans import CallSpan, KernelSpan, Span, shown_type
from .timeline import Timeline

Event = dict[str, Any]
_CATEGORIES: Final = {
    recording.OPERATION: "cpu_op", recording.NODE: "cpu_op", recording.INSTRUCTION: "cpu_op",
    recording.RANGE: "user_annotation", recording.REPLAY: "cpu_op",
}  # fmt: skip
_WARP: Final = 32
GAP_ROWS: Final = 1_000_000
"""The row of a stream's gaps has this more than the stream's number."""
_GAP_LEAST: Final = 1.0
"""Gaps on a stream from so many microseconds on are shown."""


def complete(cat: str, name: str, pid: Any, tid: Any, begin: float, end: float, args: Event) -> Event:
    """Return an event with a beginning and a duration, in microseconds."""
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": round(begin, 3),
        "dur": round(max(end - begin, 0.0), 3), "args": args,
    }  # fmt: skip


def named_process(pid: Any, name: str, label: str, place: int) -> list[Event]:
    """Return what tells the name of a process and its place among others."""
    texts = (
        ("process_name", "name", name),
        ("process_labels", "labels", label),
        ("process_sort_index", "sort_index", place),
    )
    return [
        {"ph": "M", "name": kind, "pid": pid, "tid": 0, "ts": 0, "args": {key: value}} for kind, key, value in texts
    ]


def named_thread(pid: Any, tid: Any, name: str, place: int) -> list[Event]:
    """Return what tells the name of a thread, or of a stream, and its place among others."""
    texts = (("thread_name", "name", name), ("thread_sort_index", "sort_index", place))
    return [
        {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": {key: value}} for kind, key, value in texts
    ]


def flow(phase: str, name: str, number: int, pid: Any, tid: Any, at: float) -> Event:
    """Return the beginning (``s``) or the end (``f``) of an arrow."""
    event = {"ph": phase, "id": number, "pid": pid, "tid": tid, "ts": round(at, 3), "cat": name, "name": name}
    return {**event, "bp": "e"} if phase == "f" else event


def events_of(timeline: Timeline, with_shapes: bool = True) -> list[Event]:
    """Return the events of the worker and its GPUs."""
    pid = timeline.recorded.process
    events = [*named_process(pid, "telegrad worker", "CPU", 1), *named_thread(pid, pid, "operations", 0)]
    events += [_span_event(timeline, span, pid, with_shapes) for span in timeline.spans]
    for span in timeline.spans:
        if span.forward is not None:
            events.append(flow("s", "fwdbwd", span.number, pid, pid, span.forward.begin))
            events.append(flow("f", "fwdbwd", span.number, pid, pid, span.begin))
    for place, work in enumerate(timeline.recorded.devices):
        events += named_process(work.device, f"GPU {work.device}", f"GPU {work.device}", 5_000_000 + place)
    for call in timeline.calls:
        events.append(_call_event(call, pid))
    streams = {(kernel.device, kernel.row.stream) for kernel in timeline.kernels}
    for device, stream in sorted(streams):
        events += named_thread(device, stream, f"stream {stream}", stream)
    properties = {work.device: work.properties for work in timeline.recorded.devices}
    for kernel in timeline.kernels:
        events += _kernel_events(kernel, pid, properties[kernel.device])
    return [*events, *_labelled_work(timeline), *_memory_events(timeline, pid), *_gap_events(timeline)]


def _span_event(timeline: Timeline, span: Span, pid: int, with_shapes: bool) -> Event:
    descriptor = span.descriptor
    args: Event = {"External id": span.number, "Record function id": 0, "Ev Idx": span.number}
    if with_shapes and span.kind == recording.OPERATION:
        args |= {
            "Input Dims": descriptor.shapes, "Input Strides": descriptor.strides,
            "Input type": [*map(shown_type, descriptor.dtypes)],
            "Concrete Inputs": descriptor.concrete,
        }  # fmt: skip
    if span.sequence >= 0:
        args |= {"Sequence number": span.sequence, "Fwd thread id": int(span.kind == recording.NODE)}
    site = timeline.sites.get(span.site)
    if site is not None:
        args["Call stack"] = f"{site.file}({site.line}): {site.function}"
    return complete(_CATEGORIES[span.kind], span.name, pid, pid, span.begin, span.end, args)


def _call_event(call: CallSpan, pid: int) -> Event:
    args: Event = {"correlation": call.correlation, "cbid": 0}
    if call.parent is not None:
        args["External id"] = call.parent.number
    return complete("cuda_runtime", call.name, pid, pid, call.begin, call.end, args)


def _occupancy(row: KernelRow, properties: Event) -> Event:
    """Return how full a kernel can make a GPU, by its grid, its block and what a thread needs; nothing if unknown."""
    multiprocessors, most_threads = properties.get("numSms", 0), properties.get("maxThreadsPerMultiprocessor", 0)
    threads = prod(unpacked(row.block))
    if not (multiprocessors and most_threads and threads):
        return {}
    warps, blocks = -(-threads // _WARP), prod(unpacked(row.grid)) / multiprocessors
    resident = [most_threads // threads]
    if row.registers and properties.get("regsPerMultiprocessor"):
        resident.append(properties["regsPerMultiprocessor"] // (row.registers * warps * _WARP))
    if row.shared and properties.get("sharedMemPerMultiprocessor"):
        resident.append(properties["sharedMemPerMultiprocessor"] // row.shared)
    share = min(blocks, *resident) * warps * _WARP / most_threads
    return {
        "blocks per SM": round(blocks, 4), "warps per SM": round(blocks * warps, 4),
        "est. achieved occupancy %": min(100, round(100 * share)),
    }  # fmt: skip


def _kernel_events(kernel: KernelSpan, pid: int, properties: Event) -> list[Event]:
    row, device, stream, parent = kernel.row, kernel.device, kernel.row.stream, kernel.parent
    args: Event = {
        "External id": parent.number if parent else 0, "queued": 0, "device": device, "context": 1,
        "stream": stream, "correlation": row.correlation,
    }  # fmt: skip
    if kernel.kind == "kernel":
        args |= {
            "registers per thread": row.registers, "shared memory": row.shared, "grid": unpacked(row.grid),
            "block": unpacked(row.block), **_occupancy(row, properties),
        }  # fmt: skip
    elif kernel.end > kernel.begin:
        args |= {"bytes": row.nbytes, "memory bandwidth (GB/s)": row.nbytes / (kernel.end - kernel.begin) / 1000}
    if row.graph:
        args["graph id"] = row.graph
    events = [complete(kernel.kind, kernel.name, device, stream, kernel.begin, kernel.end, args)]
    call = kernel.call
    begin = call.begin if call is not None else min(parent.begin, kernel.begin) if parent is not None else None
    if call is None and parent is not None and begin is not None:
        launch = {"correlation": row.correlation, "External id": parent.number, "cbid": 0}
        events.append(complete("cuda_runtime", "cudaLaunchKernel", pid, pid, begin, parent.end, launch))
    if begin is not None:
        events.append(flow("s", "ac2g", row.correlation, pid, pid, begin))
        events.append(flow("f", "ac2g", row.correlation, device, stream, kernel.begin))
    return events


def _labelled_work(timeline: Timeline) -> list[Event]:
    """Labelled ranges where their work was done: on each stream from the first kernel's begin to the last one's end.

    Steps are not among them: TensorBoard's plugin takes each for another step of the program.
    """
    extents: dict[tuple[int, int, int], tuple[Span, float, float]] = {}
    for kernel in timeline.kernels:
        span = kernel.parent
        while span is not None:
            if span.kind == recording.RANGE and not span.name.startswith("ProfilerStep#"):
                key = (span.number, kernel.device, kernel.row.stream)
                _, begin, end = extents.get(key, (span, kernel.begin, kernel.end))
                extents[key] = (span, min(begin, kernel.begin), max(end, kernel.end))
            span = span.parent
    return [
        complete("gpu_user_annotation", span.name, device, stream, begin, end, {"External id": span.number})
        for (_, device, stream), (span, begin, end) in extents.items()
    ]


def _memory_events(timeline: Timeline, pid: int) -> list[Event]:
    """Changes of memory, each with an address of its own.

    What an operation takes and frees is noted as one change, so that addresses are not known. TensorBoard's plugin
    draws no memory without them, and would pair changes that have the same one as taking and freeing one block.
    """
    events = []
    for number, (at, device, nbytes, allocated) in enumerate(timeline.memory, 1):
        kind, _, index = device.partition(":")
        args = {
            "Total Reserved": 0, "Total Allocated": allocated, "Bytes": nbytes, "Addr": number,
            "Device Id": int(index) if index else -1, "Device Type": 1 if kind == "cuda" else 0,
        }  # fmt: skip
        events.append({
            "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": pid, "tid": pid,
            "ts": round(at, 3), "args": args,
        })  # fmt: skip
    return events


def _gap_events(timeline: Timeline) -> list[Event]:
    """Times in which a stream had nothing to do between two kernels, on a row of their own.

    They have no ``stream`` among their arguments, since Holistic Trace Analysis takes all that has one for work.
    """
    latest: dict[tuple[int, int], float] = {}
    events: list[Event] = []
    rows: set[tuple[int, int]] = set()
    for kernel in timeline.kernels:
        key = (kernel.device, kernel.row.stream)
        before = latest.get(key)
        if before is not None and kernel.begin - before >= _GAP_LEAST:
            row = GAP_ROWS + key[1]
            rows.add((kernel.device, row))
            events.append(complete("gap", "gap", kernel.device, row, before, kernel.begin, {}))
        latest[key] = max(before or kernel.end, kernel.end)
    for device, row in sorted(rows):
        events += named_thread(device, row, f"gaps of stream {row - GAP_ROWS}", row)
    return events


def device_properties(timeline: Timeline) -> list[Event]:
    """Return what PyTorch's traces say of GPUs, under its names."""
    return [{"id": work.device, **work.properties} for work in timeline.recorded.devices]


def document(events: list[Event], timeline: Timeline, base: int, metadata: Event) -> Event:
    """Return the whole trace; ``base`` are the nanoseconds of the time of day at which its times begin."""
    recorded = timeline.recorded
    notes = [f"GPU {work.device}: {work.why}" for work in recorded.devices if work.why]
    return {
        "schemaVersion": 1, "deviceProperties": device_properties(timeline),
        "telegrad": {
            "kernel_times": {str(work.device): work.times for work in recorded.devices}, "notes": notes,
            "dropped_events": recorded.dropped + sum([work.dropped for work in recorded.devices]),
            "message": recorded.message, **metadata,
        },
        "displayTimeUnit": "ms", "baseTimeNanoseconds": base, "traceEvents": events,
    }  # fmt: skip
