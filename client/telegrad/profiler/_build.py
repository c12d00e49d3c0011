"""Events for people and programs, made of a captured stretch: spans of the worker, kernels, lines of the client."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Any, Final, NamedTuple

from telegrad_protocol.tracing import recording
from telegrad_protocol.tracing.spans import KernelSpan, Span, overload_name, shown_type

from ._capture import Captured
from ._events import DeviceType, FunctionEvent, RecordScope
from ._flops import flops_of
from ._log import CallNote, told

WORKER_THREAD: Final = 1
_AROUND_CALLS: Final = (recording.RANGE, recording.INSTRUCTION)
"""What operations of the client's calls may lie in: labels, and calls that are executed as one."""


class Wanted(NamedTuple):
    """What a profile was asked to show."""

    use_device: str | None
    shapes: bool
    stacks: bool
    flops: bool
    memory: bool


def client_calls(captured: Captured) -> dict[int, CallNote]:
    """Return the client's call that each of the worker's operations was executed for, by the number of its span."""
    queued: dict[tuple[str, int], deque[CallNote]] = {}
    for call in captured.log.calls:
        if call.out:
            queued.setdefault((call.name, call.out), deque()).append(call)
    found: dict[int, CallNote] = {}
    for span in captured.timeline.spans:
        if span.kind == recording.OPERATION and (span.parent is None or span.parent.kind in _AROUND_CALLS):
            waiting = queued.get((span.descriptor.name, span.out))
            if waiting:
                found[span.number] = waiting.popleft()
    return found


def build_events(captured: Captured, wanted: Wanted) -> list[FunctionEvent]:
    """Return the events in the order of their beginnings, on the host and on GPUs."""
    timeline = captured.timeline
    calls = client_calls(captured) if wanted.stacks else {}
    by_span: dict[int, FunctionEvent] = {}
    events: list[FunctionEvent] = []
    for span in timeline.spans:
        event = by_span[span.number] = _event(captured, span, wanted, calls)
        events.append(event)
        if span.parent is not None:
            parent = by_span[span.parent.number]
            parent.append_cpu_child(event)
            event.set_cpu_parent(parent)
            event.stack = event.stack or parent.stack
    if wanted.memory:
        _add_memory(captured, by_span)
    if wanted.use_device:
        for kernel in timeline.kernels:
            events.append(_kernel_event(kernel, len(events), wanted.use_device))
            if kernel.parent is not None:
                by_span[kernel.parent.number].append_kernel(kernel.name, kernel.device, kernel.end - kernel.begin)
    return events


def _event(captured: Captured, span: Span, wanted: Wanted, calls: dict[int, CallNote]) -> FunctionEvent:
    descriptor, name = span.descriptor, span.name
    is_step = span.kind == recording.RANGE and name.startswith("ProfilerStep#")
    scopes = {recording.NODE: RecordScope.BACKWARD_FUNCTION, recording.RANGE: RecordScope.USER_SCOPE}
    return FunctionEvent(
        span.number, "ProfilerStep*" if is_step else name, WORKER_THREAD, span.begin, span.end,
        overload_name=overload_name(descriptor), trace_name=name,
        scope=scopes.get(span.kind, RecordScope.FUNCTION).value,
        fwd_thread=WORKER_THREAD if span.kind == recording.NODE else 0,
        input_shapes=[_flat(shape) for shape in descriptor.shapes] if wanted.shapes else [],
        concrete_inputs=descriptor.concrete if wanted.shapes else [],
        input_dtypes=[*map(shown_type, descriptor.dtypes)] if wanted.shapes else [],
        structured_input_shapes=descriptor.shapes if wanted.shapes else [],
        structured_input_strides=descriptor.strides if wanted.shapes else [],
        stack=_stack(captured, span, calls) if wanted.stacks else [], use_device=wanted.use_device,
        flops=flops_of(name, descriptor.shapes, descriptor.concrete) if wanted.flops else 0,
        is_user_annotation=span.kind == recording.RANGE, sequence_nr=span.sequence,
    )  # fmt: skip


def _flat(shape: Any) -> Any:
    """A list of tensors has no shape of its own, as in PyTorch."""
    return [] if shape and isinstance(shape[0], list) else shape


def _stack(captured: Captured, span: Span, calls: dict[int, CallNote]) -> list[str]:
    call = calls.get(span.number)
    lines = told(call.stack) if call is not None else []
    if lines:
        return lines
    site = captured.timeline.sites.get(span.site)
    return [] if site is None else [f"{site.file}({site.line}): {site.function}"]


def _kernel_event(kernel: KernelSpan, id: int, use_device: str) -> FunctionEvent:
    return FunctionEvent(
        id + 1, kernel.name, kernel.row.stream, kernel.begin, kernel.end, use_device=use_device, input_shapes=[],
        device_type=DeviceType.CUDA, device_index=kernel.device, device_resource_id=kernel.row.stream, is_async=False,
    )  # fmt: skip


def _add_memory(captured: Captured, by_span: dict[int, FunctionEvent]) -> None:
    """Add each change of memory to the operation after which it was seen, and to what that was part of."""
    spans = sorted(captured.timeline.spans, key=lambda span: span.end)
    ends = [span.end for span in spans]
    for at, device, nbytes, _ in captured.timeline.memory:
        place = bisect_right(ends, at) - 1
        span: Span | None = spans[place] if place >= 0 else None
        while span is not None:
            event = by_span[span.number]
            if device == "cpu":
                event.cpu_memory_usage += nbytes
            else:
                event.device_memory_usage += nbytes
            span = span.parent
