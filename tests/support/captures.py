"""A host that pretends to capture work: what is captured is run, and memory is put back as it was.

To launch it is to run it once more at the same addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from server.engine.device.cpu_backend import CpuBackend


class Again:
    """Work that was captured."""

    nbytes = 1 << 10
    counts: Sequence[int] = ()

    def __init__(self, work: Callable[[], bool]) -> None:
        self._work = work

    def launch(self) -> bool:
        assert self._work(), "the work asked for other memory than it did when it was noted"
        return True


class NoState:
    """Where a host's kernels read no random state: what draws cannot be captured there."""

    pointer = 0

    def write(self, stream: int, seed: int, offset: int) -> None:
        raise AssertionError("nothing that draws was captured")


def _capture(self: CpuBackend, work: Callable[[], bool]) -> Again | None:
    buffers = [np.frombuffer(segment.buffer, np.uint8) for segment in self.allocator.heap.segments.values()]
    before = [buffer.copy() for buffer in buffers]
    is_whole = work()
    for buffer, data in zip(buffers, before, strict=True):
        buffer[:] = data
    return Again(work) if is_whole else None


def simulate_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the host capture work until the test ends."""
    monkeypatch.setattr(CpuBackend, "can_capture", True)
    monkeypatch.setattr(CpuBackend, "gains_by_stretches", True)
    monkeypatch.setattr(CpuBackend, "capture", _capture)
    monkeypatch.setattr(CpuBackend, "place", lambda self: ())
    monkeypatch.setattr(CpuBackend, "random_state", lambda self: NoState())
