"""CUDA graphs: work that is captured from a stream once, and launched as one from then on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from cuda.bindings import driver

from .cupy_module import runtime
from .current_device import on_its_device

log = logging.getLogger(__name__)
GRAPH_BYTES = 64 << 10
NODE_BYTES = 4 << 10
"""About what CUDA holds for a graph and for each of its nodes, on the host and the device together."""
_WORK: Final = frozenset((0, 1, 2))
"""The types of nodes that a device has work with: kernels, copies and fills. Others are events, or nothing."""
_DONE = 0
"""cudaSuccess; while there is work left it is cudaErrorNotReady."""


class CudaGraph:
    """Captured work. It uses the memory that it was captured with, which must still belong to it at each launch."""

    __slots__ = ("_launches", "_stream", "counts", "index", "nbytes")
    is_capturing: ClassVar[bool] = False
    """Whether work is being captured, of which nothing is done now: its events have no times."""
    counted: ClassVar[tuple[int, ...]] = ()
    """What was counted of the work that is being captured."""

    def __init__(self, launches: int, stream: int, nodes: int) -> None:
        self.nbytes = GRAPH_BYTES + nodes * NODE_BYTES
        self.counts = CudaGraph.counted
        """How many kernels and copies it has before the first step and after each; empty where nobody has counted."""
        self.index = runtime.getDevice()
        self._launches = launches
        self._stream = stream

    @classmethod
    def of(cls, stream: int, work: Callable[[], bool]) -> CudaGraph | None:
        """Capture what ``work`` launches on a raw stream; None if it returns False, or does what cannot be captured."""
        graph, is_whole = 0, False
        try:
            runtime.streamBeginCapture(stream, runtime.streamCaptureModeThreadLocal)
            CudaGraph.is_capturing, CudaGraph.counted = True, ()
            try:
                is_whole = work()
            finally:
                CudaGraph.is_capturing = False
                graph = _end(stream)
            return cls(runtime.graphInstantiate(graph), stream, _nodes_of(graph)) if is_whole and graph else None
        except runtime.CUDARuntimeError as error:
            log.warning("a graph could not be made", extra={"cause": str(error)})
            return None
        finally:
            CudaGraph.counted = ()
            if graph:
                runtime.graphDestroy(graph)

    @on_its_device
    def launch(self) -> bool:
        try:
            return self._start()
        except runtime.CUDARuntimeError as error:
            log.warning("a graph could not be launched", extra={"cause": str(error)})
            return False

    def _start(self) -> bool:
        runtime.graphLaunch(self._launches, self._stream)
        return True

    def __del__(self) -> None:
        try:
            runtime.graphExecDestroy(self._launches)  # CUDA frees a graph that is running when it has run
        except Exception:  # the device may be gone, or the process be ending
            return


def captured_launches(stream: int, work: Callable[..., bool]) -> CudaGraph | None:
    """Capture launches, of which ``work`` makes each and calls what it is given after it.

    Nodes are counted, since a profile that begins later has to know which of them each launch is.
    """

    def counted() -> bool:
        counts = [0]
        is_whole = work(lambda: counts.append(_nodes_of(_captured(stream))))
        CudaGraph.counted = () if counts == [*range(len(counts))] else tuple(counts)
        return is_whole

    return CudaGraph.of(stream, counted)


class GraphCounter:
    """Counts the nodes of the graph that is being captured from a raw stream.

    What was counted is of use where each node is work; others are events, which the device has no times of. It is not
    known then which of a launch's work is whose.
    """

    def __init__(self, stream: int) -> None:
        self._stream = stream

    def begin(self) -> int:
        try:
            return _nodes_of(_captured(self._stream))
        except RuntimeError:  # something could not be captured, which the end of the capture tells
            return -1

    def note_counts(self, counts: Sequence[int]) -> None:
        """Note what was counted before the first step of what is being captured, and after each."""
        is_known = min(counts) >= 0 and captured_work(self._stream) == counts[-1]
        CudaGraph.counted = tuple(counts) if is_known else ()


def captured_work(stream: int) -> int:
    """Return how many kernels, copies and fills the graph has so far that is being captured from a raw stream."""
    graph = _captured(stream)
    _, nodes, _ = driver.cuGraphGetNodes(driver.CUgraph(graph), _nodes_of(graph))
    return sum([int(driver.cuGraphNodeGetType(node)[1]) in _WORK for node in nodes or ()])


def _captured(stream: int) -> int:
    """Return the handle of the graph that is being captured from a raw stream."""
    status, _, _, graph, *_ = driver.cuStreamGetCaptureInfo(driver.CUstream(stream))
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"what is captured cannot be told: {status}")
    return int(graph)


def _nodes_of(graph: int) -> int:
    _, _, count = driver.cuGraphGetNodes(driver.CUgraph(graph))
    return int(count)


def _end(stream: int) -> int:
    """The handle of the captured graph; 0 if something could not be captured."""
    try:
        return int(runtime.streamEndCapture(stream))
    except runtime.CUDARuntimeError:
        return 0


def is_idle(stream: int) -> bool:
    """Whether a raw stream has done all work that it was given."""
    return bool(runtime.streamQuery(stream) == _DONE)
