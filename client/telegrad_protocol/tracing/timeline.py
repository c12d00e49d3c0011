"""A recording as a tree of spans, with the work of GPUs given to the operations that asked for it.

The worker has one thread, so that what lies within another span was done for it. ``attribution`` says whom the work
of a GPU was done for. Times are those of the reader's clock.
"""

from __future__ import annotations

from bisect import bisect_right

from . import recording
from .attribution import Attribution
from .recording import CallRow, DeviceWork, KernelRow, Recording, rows_of
from .spans import CallSpan, Clock, KernelSpan, Span, nest

_OWN_QUERIES = ("profile_clock", "start_profile", "stop_profile")


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
        if work.times == recording.EVENT_TIMES:
            kernels = [kernel for kernel in kernels if self._is_innermost(device, kernel)]
        else:
            owners = Attribution(self.spans, self._launched_for, clock).owners(work, kernels)
            for kernel, span in sorted(owners, key=lambda owner: owner[0].begin):
                self._give(kernel, span)
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
