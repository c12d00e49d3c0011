"""A recording as a tree of spans, with the work of GPUs given to the operations that asked for it.

The worker has one thread, so that what lies within another span was done for it. A launch that waited is known by its
number; any other belongs to the innermost span in which CUDA was called. Times are those of the reader's clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

from . import recording
from .recording import CallRow, Descriptor, DeviceWork, FlushRow, KernelRow, Recording, rows_of

Clock = Callable[[int], float]
"""Converts the worker's nanoseconds to microseconds of the reader's clock."""
_OWN_QUERIES = ("profile_clock", "start_profile", "stop_profile")


class Span:
    """Something that the worker did, from ``begin`` to ``end`` in microseconds, for the client's line ``site``."""

    __slots__ = (
        "begin", "children", "count", "descriptor", "device", "end", "first", "forward", "kernels", "name", "number",
        "out", "parent", "sequence", "site",
    )  # fmt: skip

    def __init__(self, number: int, descriptor: Descriptor, row: recording.EventRow, clock: Clock) -> None:
        self.number = number
        self.descriptor = descriptor
        self.name = shown_name(descriptor)
        self.begin, self.end = clock(row.begin), clock(row.end)
        self.site, self.out = row.site, row.out
        self.first, self.count, self.device = row.first, row.launches, descriptor.device
        self.parent: Span | None = None
        self.forward: Span | None = None
        """The operation that has made the node which was evaluated."""
        self.sequence = -1
        """The number of the node that was evaluated, or that the operation has made, where both are known."""
        self.children: list[Span] = []
        self.kernels: list[KernelSpan] = []

    @property
    def kind(self) -> int:
        """The kind of what was done, as ``recording`` names them."""
        return self.descriptor.kind

    @property
    def microseconds(self) -> float:
        """How long it took."""
        return self.end - self.begin


class CallSpan:
    """A call of CUDA's that launched something; ``parent`` is the span that it was made for."""

    __slots__ = ("begin", "correlation", "end", "name", "parent")

    def __init__(self, name: str, begin: float, end: float, correlation: int) -> None:
        self.name, self.begin, self.end, self.correlation = name, begin, end, correlation
        self.parent: Span | None = None


class KernelSpan:
    """Work of a GPU, the call that launched it, and the span that it was done for."""

    __slots__ = ("begin", "call", "device", "end", "name", "parent", "row")

    def __init__(self, row: KernelRow, name: str, device: int, clock: Clock) -> None:
        self.row, self.name, self.device = row, name, device
        self.begin, self.end = clock(row.begin), clock(row.end)
        self.call: CallSpan | None = None
        self.parent: Span | None = None

    @property
    def kind(self) -> str:
        """Its category in a trace, such as ``kernel``."""
        return recording.KINDS[self.row.kind]


class Timeline:
    """What a recording tells: spans by their beginning, kernels, calls of CUDA, and changes of memory."""

    def __init__(self, recorded: Recording, clock: Clock = lambda nanoseconds: nanoseconds / 1000) -> None:
        self.recorded = recorded
        self.clock = clock
        self.sites = {site.number: site for site in recorded.sites}
        self.memory: list[tuple[float, str, int, int]] = []
        """Changes of memory: when, on which device, by how many bytes, and how many are allocated then."""
        self.frames: list[tuple[float, int]] = []
        """Frames of instructions: when they arrived, and their bytes."""
        self.spans = self._spans()
        self.kernels: list[KernelSpan] = []
        self.calls: list[CallSpan] = []
        for work in recorded.devices:
            self._add_device(work)

    def _spans(self) -> list[Span]:
        spans: list[Span] = []
        ends: list[tuple[int, Span | None]] = []
        if self.recorded.sequence and not self.recorded.dropped:
            ends.append((self.recorded.sequence, None))
        nodes: list[tuple[int, Span]] = []
        descriptors, clock = self.recorded.descriptors, self.clock
        for number, row in enumerate(self.recorded.rows(), 1):
            descriptor = descriptors[row.descriptor]
            if descriptor.kind == recording.MEMORY:
                device = self.recorded.memory_devices[descriptor.device]
                self.memory.append((clock(row.begin), device, row.first, row.launches))
            elif descriptor.kind == recording.FRAME:
                self.frames.append((clock(row.begin), row.first))
                ends.append((row.sequence, None))
            elif not descriptor.name.endswith(_OWN_QUERIES):
                span = Span(number, descriptor, row, clock)
                spans.append(span)
                if span.kind == recording.NODE:
                    nodes.append((row.sequence, span))
                else:
                    ends.append((row.sequence, span))
        _link(nodes, ends)
        in_order = spans.copy()
        spans.sort(key=lambda span: (span.begin, -span.end, -span.number))
        nest(spans)
        self._launched_for: dict[tuple[int, int], Span] = {}
        for span in in_order:  # what ended first is innermost
            for launch in range(span.first, span.first + span.count):
                self._launched_for.setdefault((span.device, launch), span)
        return spans

    def _add_device(self, work: DeviceWork) -> None:
        clock, device = self.clock, work.device
        calls = {
            row.correlation: CallSpan(work.names[row.name], clock(row.begin), clock(row.end), row.correlation)
            for row in rows_of(CallRow, work.calls)
        }
        kernels = [KernelSpan(row, work.names[row.name], device, clock) for row in rows_of(KernelRow, work.kernels)]
        for kernel in kernels:
            kernel.call = calls.get(kernel.row.correlation)
        kernels.sort(key=lambda kernel: (kernel.call.begin if kernel.call else kernel.begin, kernel.begin))
        if work.times == recording.EVENT_TIMES:
            kernels = [kernel for kernel in kernels if self._is_innermost(device, kernel)]
        else:
            self._attribute(work, kernels)
        self.calls += sorted(calls.values(), key=lambda call: call.begin)
        self.kernels += sorted(kernels, key=lambda kernel: kernel.begin)

    def _is_innermost(self, device: int, kernel: KernelSpan) -> bool:
        """Give a time between two events to its operation; returns whether no operation within it has its own."""
        span = self._launched_for.get((device, kernel.row.correlation))
        if span is not None and any([child.count for child in span.children]):
            return False
        if span is not None:
            kernel.name = f"{span.name} (time between events)"
        self._give(kernel, span)
        return True

    def _attribute(self, work: DeviceWork, kernels: list[KernelSpan]) -> None:
        flushes = list(rows_of(FlushRow, work.flushes))
        begins = [self.clock(flush.begin) for flush in flushes]
        waited: dict[int, list[KernelSpan]] = {}
        finder = Finder(self.spans)
        for kernel in kernels:
            at = kernel.call.begin if kernel.call is not None else kernel.begin
            place = bisect_right(begins, at) - 1
            if place >= 0 and at <= self.clock(flushes[place].end):
                waited.setdefault(place, []).append(kernel)
            else:
                self._give(kernel, finder.innermost(at))
        for place, together in waited.items():
            flush = flushes[place]
            for kernel, launch in zip(together, launches_of(together, flush.launches), strict=True):
                span = self._launched_for.get((work.device, flush.first + launch))
                self._give(kernel, span or finder.innermost(self.clock(flush.begin)))

    def _give(self, kernel: KernelSpan, span: Span | None) -> None:
        kernel.parent = span
        if span is not None:
            span.kernels.append(kernel)
        if kernel.call is not None:
            kernel.call.parent = kernel.call.parent or span


def _link(nodes: list[tuple[int, Span]], ends: list[tuple[int, Span | None]]) -> None:
    """Tell spans of nodes which operation has made the node: the first to end after it was made.

    ``ends`` are in the order in which they were noted. What was made before the first is not known.
    """
    numbers = [number for number, _ in ends]
    for number, node in nodes:
        place = bisect_right(numbers, number)
        maker = ends[place][1] if 0 < place < len(ends) else None
        if maker is not None and maker.kind == recording.OPERATION:
            node.forward = maker
            node.sequence = maker.sequence = number


def launches_of(kernels: list[KernelSpan], count: int) -> list[int]:
    """Return for kernels that were launched together which of ``count`` launches each belongs to.

    Mostly there is one kernel to a launch. A library may need several: cuBLASLt adds up parts of a product in a second
    one. What is left over after that is spread evenly.
    """
    numbers, number = [], -1
    for kernel in kernels:
        number += not (number >= 0 and len(kernels) > count and "splitKreduce" in kernel.name)
        numbers.append(number)
    if not numbers or number < count:
        return numbers
    return [place * count // len(kernels) for place in range(len(kernels))]


class Finder:
    """Finds the innermost span at a time, for times that mostly rise."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = spans
        self._begins = [span.begin for span in spans]

    def innermost(self, at: float) -> Span | None:
        """Return the innermost span that has begun and not ended at a time; None where there is none."""
        place = bisect_right(self._begins, at) - 1
        span = self._spans[place] if place >= 0 else None
        while span is not None and span.end < at:
            span = span.parent
        return span


def nest(spans: Iterable[Any]) -> None:
    """Set parents and children of spans that are in the order of their beginnings, longer ones first."""
    open_spans: list[Any] = []
    for span in spans:
        while open_spans and not (span.begin < open_spans[-1].end and span.end <= open_spans[-1].end):
            open_spans.pop()
        if open_spans:
            span.parent = open_spans[-1]
            span.parent.children.append(span)
        open_spans.append(span)


_ATEN = {
    "cross_entropy": "cross_entropy_loss", "_embedding": "embedding",
    "nll_loss": "nll_loss_nd",
}  # fmt: skip
"""Operations that PyTorch's dispatcher has under another name than the function that users call."""


def shown_name(descriptor: Descriptor) -> str:
    """Return the name that PyTorch's profiler shows: ``aten::mul`` for an operation ``mul`` or ``mul.out``."""
    name = descriptor.name
    if descriptor.kind != recording.OPERATION or "::" in name:
        return name
    base = name.partition(".")[0]
    return f"aten::{_ATEN.get(base, base)}"


_TYPES = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "bool": "bool",
    "int8": "signed char", "int16": "short int", "int32": "int", "int64": "long int", "uint8": "unsigned char",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip


def shown_type(kind: str) -> str:
    """Return how PyTorch's profiler names a type of elements: as C++ does."""
    return _TYPES.get(kind, kind)


def overload_name(descriptor: Descriptor) -> str:
    """Return what follows the dot in an operation's name: ``out`` of ``mul.out``."""
    return descriptor.name.partition(".")[2] if descriptor.kind == recording.OPERATION else ""
