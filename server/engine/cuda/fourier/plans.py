"""cuFFT's plans through nvmath's bindings: made once for a layout, kept, and run on any stream."""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import Any, NamedTuple

from telegrad_protocol.dtypes import uint8
from telegrad_protocol.meta import Meta

try:
    from nvmath.bindings import cufft
except ImportError:
    cufft = None

IS_AVAILABLE = cufft is not None

FORWARD, BACKWARD = -1, 1
C2C, R2C, C2R = range(3)
_TYPES = {"F": (0x29, 0x2A, 0x2C), "D": (0x69, 0x6A, 0x6C)}
"""cuFFT's types of transforms, for complex numbers of single and of double precision."""
MOST_DIMENSIONS = 3
_MOST_PLANS = 1024
_KEPT_SCRATCH = 32 << 20
"""Scratch memory up to so many bytes is the stream's own; more is allocated for the call."""


class Layout(NamedTuple):
    """How the points of a batch of transforms lie in memory, in elements; ``embed`` are the sizes around the points."""

    embed: tuple[int, ...]
    stride: int
    distance: int


class Description(NamedTuple):
    """All that a plan depends on."""

    lengths: tuple[int, ...]
    source: Layout
    target: Layout
    type: int
    batch: int


class Plan:
    """One plan of cuFFT, which is destroyed with this object."""

    __slots__ = ("_scratch", "_stream", "handle", "nbytes")

    def __init__(self, described: Description) -> None:
        lengths, source, target, kind, batch = described
        self.handle = cufft.create()
        cufft.set_auto_allocation(self.handle, 0)
        self.nbytes = cufft.make_plan_many64(
            self.handle, len(lengths), list(lengths), list(source.embed), source.stride, source.distance,
            list(target.embed), target.stride, target.distance, kind, batch,
        )  # fmt: skip
        self._stream = self._scratch = -1

    def __del__(self, destroy: Any = cufft and cufft.destroy) -> None:
        destroy(self.handle)

    def run(self, backend: Any, source: int, target: int, direction: int) -> None:
        """Transform what lies at one address to another, on the backend's current stream; it may wait there."""
        nbytes = self.nbytes
        if nbytes > _KEPT_SCRATCH:
            taken = backend.empty(Meta.of((nbytes,), uint8, backend.device))  # held until the plan was launched
            scratch = taken.storage.block.pointer
        else:
            scratch = backend.workspace(nbytes).pointer if nbytes else 0
        backend.launches.launch(self._perform, backend.stream, scratch, source, target, direction)

    def _perform(self, stream: int, scratch: int, source: int, target: int, direction: int) -> None:
        if stream != self._stream:
            cufft.set_stream(self.handle, stream)
            self._stream = stream
        if scratch != self._scratch:
            cufft.set_work_area(self.handle, scratch)
            self._scratch = scratch
        cufft.xt_exec(self.handle, source, target, direction)


class Plans:
    """The plans of one device; those that were not used for longest go first."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Description, Plan] = OrderedDict()

    def of(self, described: Description) -> Plan:
        """The plan for a layout, made if there is none yet."""
        plan = self._plans.get(described)
        if plan is None:
            plan = self._plans[described] = Plan(described)
            if len(self._plans) > _MOST_PLANS:
                self._plans.popitem(last=False)
        else:
            self._plans.move_to_end(described)
        return plan


@functools.cache
def plans_on(device: int) -> Plans:
    """The plans of a device, by its index."""
    return Plans()


def kind_of(which: int, complex_char: str) -> int:
    """cuFFT's number of a type of transform, given the character of its complex type."""
    return _TYPES[complex_char][which]
