"""A tracer of captured work that counts its nodes, as one of a GPU does, for a host that pretends to capture."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from server.engine.device.cpu_backend import CpuBackend
from server.engine.profiling import recorder
from server.engine.profiling.traced_launches import LaunchLog
from server.session.profiling import profiles
from telegrad_protocol.meta import CPU
from telegrad_protocol.tracing import recording

from ..support.captures import Again, simulate_captures


class NodeTracer:
    """Traces the host as if it were a GPU: each step that is captured is a node, and a kernel of each launch."""

    def __init__(self) -> None:
        self.log = LaunchLog([])
        self._kernels, self._calls = array("q"), array("q")
        self._launches = 0
        self.captured = 0

    def begin(self) -> int:
        return self.log.made

    def note_counts(self, counts: Sequence[int]) -> None:
        """Do nothing: these are counts of launches, which are made already."""

    def capture(self, capture: Callable[..., Any]) -> Callable[..., Any]:
        def captured(backend: CpuBackend, work: Callable[[], bool]) -> Any:
            counter = backend.nodes = _Nodes()  # type: ignore[attr-defined]
            graph = capture(backend, work)
            self.captured += 1
            return graph and _Graph(self, graph, counter.counts)

        return captured

    def launch(self, again: Again, counts: Sequence[int]) -> bool:
        begin = recorder.now()
        assert again.launch()
        self.log.note_graph(begin, counts)
        called_until, count = recorder.now(), 0 if self.log.graph is None else self.log.rows[-1]
        self._launches += 1
        self._calls.extend((0, begin, called_until, self._launches))
        for node in range(count):
            at = called_until + node
            self._kernels.extend((node, 0, at, at + 1, self._launches, 7, 1, 0, 1, 1, 0, 0))
        return True

    def stop(self) -> None:
        """There is nothing to stop."""

    release = stop

    def result(self, began: int, ended: int, is_final: bool = True) -> recording.DeviceWork:
        names = [f"node {number}" for number in range(100)]
        return recording.DeviceWork(
            0, recording.CUPTI_TIMES, "", names, self._kernels.tobytes(), self._calls.tobytes(),
            self.log.rows.tobytes(), {},
        )  # fmt: skip


class _Nodes:
    """Counts the steps that are captured, of which each is a node."""

    def __init__(self) -> None:
        self.counts: Sequence[int] = ()
        self._nodes = -1

    def begin(self) -> int:
        self._nodes += 1
        return self._nodes

    def note_counts(self, counts: Sequence[int]) -> None:
        self.counts = tuple(counts)


class _Graph:
    """What is launched with the tracer's knowledge."""

    def __init__(self, tracer: NodeTracer, again: Again, counts: Sequence[int]) -> None:
        self.nbytes = again.nbytes
        self._tracer, self._again, self._counts = tracer, again, counts

    def launch(self) -> bool:
        return self._tracer.launch(self._again, self._counts)


def tracing_nodes(monkeypatch: pytest.MonkeyPatch) -> NodeTracer:
    """Have captures be simulated until the test ends, and their nodes be counted by what is returned."""
    simulate_captures(monkeypatch)
    tracer = NodeTracer()
    monkeypatch.setattr(CpuBackend, "capture", tracer.capture(CpuBackend.capture))
    monkeypatch.setattr(CpuBackend, "captured_work", lambda self: self.nodes)
    return tracer


def trace_devices(monkeypatch: pytest.MonkeyPatch, tracer: NodeTracer) -> None:
    """Have profiles of this test be traced by a tracer, as those of a GPU are."""
    monkeypatch.setattr(profiles, "_tracers", lambda state: {CPU: tracer})
    start = profiles.start_profile
    monkeypatch.setattr(profiles, "start_profile", lambda state, _, __, *rest: start(state, False, True, *rest))
