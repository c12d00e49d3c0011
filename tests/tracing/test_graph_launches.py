"""Launches of CUDA graphs while CUPTI has the times, on a fake of CUDA's runtime: whose kernels these are."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from server.engine import context
from server.engine.device import cuda_graphs
from server.engine.device.cuda_graphs import CudaGraph, GraphCounter, captured_launches
from server.engine.device.launch_queue import LaunchQueue
from server.engine.profiling.cuda_work import CuptiTracer
from server.engine.profiling.traced_launches import traced, untraced
from server.engine.replay.launch_sequences import LaunchSequences
from telegrad_protocol.meta import Device

from .test_event_pairs import STREAM, FakeRuntime, RefusedError
from .test_event_pairs import runtime as runtime

GPU = Device("cuda:0")
_GRAPH = 41


class FakeDriver:
    """Tells of the graph that is being captured; ``nodes`` is how many it has."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=0)
    CUstream = CUgraph = staticmethod(int)

    def __init__(self) -> None:
        self.nodes, self.status = 0, 0

    def cuStreamGetCaptureInfo(self, stream: int) -> tuple[Any, ...]:
        assert stream == STREAM
        return self.status, 1, 5, _GRAPH, [], [], 0

    def cuGraphGetNodes(self, graph: int, most: int) -> tuple[int, list[int], int]:
        assert graph == _GRAPH
        return 0, list(range(self.nodes)), most

    def cuGraphNodeGetType(self, node: int) -> tuple[int, int]:
        """Return that of a kernel, a copy, a fill and of what is nothing of these, in turn."""
        return 0, (0, 1, 2, 7)[node % 4]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, runtime: FakeRuntime) -> FakeDriver:
    made = FakeDriver()
    monkeypatch.setattr(cuda_graphs, "driver", made)
    monkeypatch.setattr(cuda_graphs, "_nodes_of", lambda graph: made.nodes)
    return made


@pytest.fixture
def tracer(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[CuptiTracer]:
    """A tracer, which the current context has for its profile."""
    monkeypatch.setattr(CuptiTracer, "_note_streams", lambda self: None)
    queue = LaunchQueue(CudaGraph.of, lambda stream: True)
    backend: Any = SimpleNamespace(index=0, device=GPU, launches=queue, stream=STREAM)
    activity: Any = SimpleNamespace(use=lambda: None, leave=lambda: None, offset=lambda: (0, 0))
    made = CuptiTracer(backend, SimpleNamespace(own_streams=None), activity)  # type: ignore[arg-type]
    monkeypatch.setattr(context.current, "profiler", SimpleNamespace(tracers={GPU: made}))
    yield made
    made.stop()
    assert CudaGraph.launch.__name__ == "launch", "graphs are launched as ever where nothing is traced"
    made.release()
    assert type(queue) is LaunchQueue


def test_in_a_capture_the_work_in_the_graph_is_counted(tracer: CuptiTracer, driver: FakeDriver) -> None:
    assert tracer.log is not None
    tracer.log.made = 9
    assert tracer.begin() == 9
    counts = []

    def work() -> bool:
        for nodes in (0, 1, 1, 5):
            driver.nodes = nodes
            counts.append(tracer.begin())
        return CudaGraph.is_capturing

    assert CudaGraph.of(STREAM, work) is not None
    assert counts == [0, 1, 1, 4] and tracer.begin() == 9 and not CudaGraph.is_capturing


@pytest.mark.parametrize(("nodes", "counts"), [((0, 1, 1, 3), (0, 1, 1, 3)), ((0, 1, 4), ()), ((0, -1, 2), ())])
def test_nodes_of_what_is_captured_are_counted_where_each_is_work(
    driver: FakeDriver, nodes: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    """The fourth node is no work. A count of -1 is of a capture that has failed, which is no error of the counter."""
    counter = GraphCounter(STREAM)

    def work() -> bool:
        counted = []
        for driver.nodes in nodes:
            driver.status = int(driver.nodes < 0)
            counted.append(counter.begin())
        driver.status = 0
        counter.note_counts(counted)
        return True

    graph = CudaGraph.of(STREAM, work)
    assert graph is not None and graph.counts == counts


@pytest.mark.parametrize(("nodes", "counts"), [([1, 1, 1], ()), ([1, 0, 2], (0, 1, 1, 3)), ([2, 2, 1], (0, 2, 4, 5))])
def test_launches_of_several_kernels_are_counted_when_they_are_captured(
    driver: FakeDriver, nodes: list[int], counts: tuple[int, ...]
) -> None:
    """Whether somebody profiles or not, since the graph may be launched under a profile later."""

    def make(stream: int, number: int) -> None:
        driver.nodes += nodes[number]

    sequence = tuple([(make, STREAM, number) for number in range(len(nodes))])
    sequences = LaunchSequences(captured_launches, lambda stream: True)
    assert not sequences.replay(sequence)
    sequences.note_made(len(sequence), 0)
    assert [sequences.replay(sequence) for _ in range(2)] == [True, True]
    assert sequences.launched is not None and sequences.launched.counts == counts


def test_parts_of_a_graph_that_are_not_one_kernel_are_noted() -> None:
    """Of three launches the second is two kernels; before and after they are made otherwise."""
    graph: Any = SimpleNamespace(counts=(0, 1, 3, 4), launch=lambda: True)
    queue = LaunchQueue(lambda stream, work: graph, lambda stream: True)
    log = traced(queue, waits=True)
    try:
        for _ in range(3):
            queue.waiting += [(_note, STREAM, number) for number in range(3)]
            queue.flush()
        assert list(log.parts) == [4, 2, 7, 2] and log.made == 9
    finally:
        untraced(queue)


def _note(stream: int, number: int) -> None:
    """Launch nothing."""


def test_what_cannot_be_counted_is_not_captured(tracer: CuptiTracer, driver: FakeDriver) -> None:
    driver.status = 1

    def work() -> bool:
        with pytest.raises(RuntimeError, match="cannot be told"):
            tracer.begin()
        return False

    assert CudaGraph.of(STREAM, work) is None


def test_only_a_graph_that_is_expected_has_launches_of_its_own(
    tracer: CuptiTracer, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(CudaGraph, "counted", (1, 3, 5))
    graph, log = CudaGraph(1, STREAM, 4), tracer.log
    assert log is not None
    assert graph.launch() and log.graph is None and not log.rows
    log.expect_graph(True)
    assert graph.launch()
    assert graph.launch(), "the next one is another"
    begin, end, first, count = log.rows
    assert (first, count, log.made) == (0, 4, 4) and log.graph == (begin, end, 0, (1, 3, 5))
    context.current.profiler = None
    log.expect_graph(True)
    assert graph.launch() and log.graph is None, "a session that is not profiled has launched it"


def test_a_graph_that_cuda_refuses_to_launch_leaves_numbers_in_order(
    tracer: CuptiTracer, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def refuse(graph: int, stream: int) -> None:
        raise RefusedError("cudaErrorInvalidValue")

    monkeypatch.setattr(runtime, "graphLaunch", refuse)
    assert tracer.log is not None
    monkeypatch.setattr(CudaGraph, "counted", (0, 3))
    tracer.log.expect_graph(True)
    assert not CudaGraph(1, STREAM, 3).launch()
    assert tracer.begin() == tracer.log.made == 3
