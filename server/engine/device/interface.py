"""What a device hands out for work in progress: copies in both directions, events and captured work; and what it tells.

Below values and backends, so that everything above can name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from telegrad_protocol.errors import DeviceError
from telegrad_protocol.meta import Device


class Upload(Protocol):
    """The receiving end of a copy from the host to a device."""

    def write(self, offset: int, data: memoryview) -> None:
        """Store bytes at an offset, counted in bytes from the first element."""


class Download(Protocol):
    """A copy on its way from a device to the host."""

    def is_ready(self) -> bool:
        """Whether all bytes have arrived."""

    def bytes(self) -> memoryview:
        """The bytes; waits for them if they have not arrived."""


class Mark(Protocol):
    """A point in the work of a device."""

    def is_ready(self) -> bool:
        """Whether the device has done all work before this point."""


class Event(Mark, Protocol):
    """A mark that can be recorded again, that streams can wait for, and that may measure time."""

    is_timed: bool

    def record(self, stream: int) -> None:
        """Become the point after all work that a raw stream has been given so far."""

    def hold(self, stream: int) -> None:
        """Make later work of a raw stream wait for this event."""

    def milliseconds_to(self, later: Any) -> float:
        """The milliseconds between two timed events, both of which the device has reached."""


class Counter(Protocol):
    """Counts what was launched on a device, or what the graph has that is being captured."""

    def begin(self) -> int:
        """Return how much there was so far."""

    def note_counts(self, counts: Sequence[int]) -> None:
        """Note what was counted before the first step and after each, once all were made."""


class NoCounter:
    """Counts the launches of a device that has none, or where nobody asks."""

    begin = staticmethod(int)
    """Returns 0, and is no function of Python's, since each step is counted."""

    def note_counts(self, counts: Sequence[int]) -> None:
        """Do nothing."""


class Capture(Protocol):
    """Work that was captured instead of executed, such as a CUDA graph.

    ``nbytes`` is about what host and driver hold for it. ``counts`` is how many kernels and copies it has before its
    first part and after each; empty where nobody has counted, or every part is one.
    """

    nbytes: int

    @property
    def counts(self) -> Sequence[int]: ...

    def launch(self) -> bool:
        """Execute the work on the stream that it was captured on; False if the device refused and did nothing."""


class NotingCounter(Counter, Protocol):
    """Counts launches that are being noted."""

    def forget(self) -> None:
        """Forget the launches that were noted so far."""


class RelocatableWork(Protocol):
    """Work that is noted to be done again on other memory, and with other numbers."""

    def note(self, counter: NotingCounter) -> bool:
        """Do it; returns whether all of it was done. ``counter`` counts its launches."""

    def rows(self) -> Sequence[tuple[int, int, int, int]]:
        """Return what will be others: kinds, numbers, and where memory begins and ends, as of the time it was done."""


class Relocatable(Protocol):
    """Work that was noted, and is done again on other memory: ``counts`` and ``nbytes`` are as of a capture."""

    nbytes: int

    @property
    def counts(self) -> Sequence[int]: ...

    def launch_on(self, values: Sequence[Any], made: Sequence[Any]) -> bool:
        """Do it on the memory of these values and for these storages; False if the device refused and did nothing."""


class RandomState(Protocol):
    """Where the kernels of a graph read seed and offset of a generator on the device."""

    pointer: int

    def write(self, stream: int, seed: int, offset: int) -> None:
        """Set both, in the order of a raw stream."""


class DeviceFigures:
    """What backends tell of their device. Only declared here, with defaults for devices that know nothing of it."""

    __slots__ = ()
    device: Device

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes of the device."""
        raise NotImplementedError

    def host_memory_stats(self) -> dict[str, int]:
        """Statistics of the pinned host memory that copies go through; empty where there is none."""
        return {}

    def reset_host_memory_stats(self, is_peak: bool) -> None:
        """Let the peaks of those statistics begin anew, or else the counts of what was ever added and removed."""

    def figure(self, name: str) -> Any:
        """What a GPU's management library tells, by the name of PyTorch's function, such as ``temperature``."""
        raise DeviceError(f"{name}: {self.device} is no GPU, and only GPUs tell this")

    def properties(self) -> dict[str, Any]:
        """Name, total memory and capability of the device, under PyTorch's names."""
        raise NotImplementedError
