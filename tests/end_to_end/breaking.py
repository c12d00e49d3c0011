"""Engines whose device is lost for good as soon as a segment of a certain size is wanted.

A simulated fault on the host; on a GPU a real one, by a kernel that writes where there is no memory.
"""

from __future__ import annotations

from typing import Any

from server.allocator import HostUpstream, Segment
from server.worker.host import Host

FATAL_BYTES = 78 << 20
"""What to allocate to lose the device."""

KERNEL = 'extern "C" __global__ void stray() { *reinterpret_cast<volatile int*>(16) = 1; }'


class BreakingHostUpstream(HostUpstream):
    """The host's memory, which is gone once FATAL_BYTES are asked of it."""

    broken = ""

    def obtain(self, nbytes: int, stream: int) -> Segment | None:
        if nbytes == FATAL_BYTES:
            self.broken = "simulated: an illegal memory access was encountered"
        if self.broken:
            raise RuntimeError(self.broken)
        return super().obtain(nbytes, stream)

    def fault(self) -> str:
        return self.broken


class BreakingHost(Host):
    """An engine on the host."""

    def __init__(self, devices: list[str]) -> None:
        super().__init__(["cpu"])
        self.backend("cpu").allocator.upstream.__class__ = BreakingHostUpstream


class BreakingCudaHost(Host):
    """An engine on a GPU."""

    def __init__(self, devices: list[str]) -> None:
        super().__init__(["cuda:0"])
        upstream = self.backend("cuda:0").allocator.upstream
        self._obtain, upstream.obtain = upstream.obtain, self._obtain_and_break  # type: ignore[method-assign]

    def _obtain_and_break(self, nbytes: int, stream: int) -> Any:
        segment = self._obtain(nbytes, stream)
        if nbytes == FATAL_BYTES:
            import cupy as cp

            cp.RawKernel(KERNEL, "stray")((1,), (1,), ())
        return segment
