"""A host that pretends to capture work: what is captured is run, and memory is put back as it was.

To launch it is to run it once more at the same addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from server.allocator import Block
from server.engine.device.cpu_backend import CpuBackend
from server.engine.device.interface import NoCounter
from server.engine.programs.described import Description
from server.engine.programs.recorded.relocated import Work
from server.engine.value import Storage


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


class Elsewhere:
    """Work that was noted, and is done again on other memory: it is executed anew, and what it makes is copied."""

    nbytes = 1 << 10
    counts: Sequence[int] = ()

    def __init__(self, work: Work) -> None:
        self._executable = work.executable

    def launch_on(self, values: Sequence[Any], made: Sequence[Storage]) -> bool:
        execution = self._executable.begin(values)
        execution.advance()
        found = Description(values, execution.outputs()).made
        for source, target in zip(found, made, strict=True):
            bytes_of(target.block)[: source.nbytes] = bytes_of(source.block)[: source.nbytes]
        return True


def bytes_of(block: Block) -> np.ndarray[Any, Any]:
    """The memory of a block on the host."""
    return np.frombuffer(block.segment.buffer, np.uint8)[block.offset : block.offset + block.size]


class _Noting(NoCounter):
    """Counts no launches, and has none to forget."""

    def forget(self) -> None:
        """Do nothing."""


def _relocatable(self: CpuBackend, work: Work) -> Elsewhere | None:
    return Elsewhere(work) if work.note(_Noting()) else None


def simulate_captures(monkeypatch: pytest.MonkeyPatch, relocates: bool = False) -> None:
    """Have the host capture work until the test ends; or note its launches, and make them again on other memory."""
    monkeypatch.setattr(CpuBackend, "can_capture", True)
    monkeypatch.setattr(CpuBackend, "gains_by_stretches", True)
    monkeypatch.setattr(CpuBackend, "capture", _capture)
    monkeypatch.setattr(CpuBackend, "place", lambda self: ())
    monkeypatch.setattr(CpuBackend, "random_state", lambda self: NoState())
    if relocates:
        monkeypatch.setattr(CpuBackend, "relocatable", _relocatable)
