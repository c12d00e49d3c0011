"""What a timeline is made of: spans of the worker, calls of CUDA, and work of GPUs, with their names and nesting.

Times are those of the reader's clock, in microseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

from . import recording
from .recording import Descriptor, KernelRow

Clock = Callable[[int], float]
"""Converts the worker's nanoseconds to microseconds of the reader's clock."""


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
    return name_of_operation(descriptor.name) if descriptor.kind == recording.OPERATION else descriptor.name


def name_of_operation(name: str) -> str:
    """Return the name that PyTorch's profilers show for an operation of this name."""
    if "::" in name:
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
