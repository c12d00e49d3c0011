"""CUDA graphs: what a thread launches on a stream, noted once and launched as one from then on."""

from __future__ import annotations

import logging
from collections.abc import Callable

from .cupy_module import runtime

log = logging.getLogger(__name__)
_DONE = 0
"""cudaSuccess; while there is work left it is cudaErrorNotReady."""


class CudaGraph:
    """Launches that were noted. Their arguments are those of then: the memory that they name must still be theirs."""

    __slots__ = ("_launches", "_stream")

    def __init__(self, launches: int, stream: int) -> None:
        self._launches = launches
        self._stream = stream

    @classmethod
    def of(cls, stream: int, work: Callable[[], bool]) -> CudaGraph | None:
        """What ``work`` launches on a raw stream; None where it says False, or does what cannot be noted."""
        graph, is_whole = 0, False
        try:
            runtime.streamBeginCapture(stream, runtime.streamCaptureModeThreadLocal)
            try:
                is_whole = work()
            finally:
                graph = _end(stream)
            return cls(runtime.graphInstantiate(graph), stream) if is_whole and graph else None
        except runtime.CUDARuntimeError as error:
            log.warning("a graph could not be made", extra={"cause": str(error)})
            return None
        finally:
            if graph:
                runtime.graphDestroy(graph)

    def launch(self) -> bool:
        try:
            runtime.graphLaunch(self._launches, self._stream)
        except runtime.CUDARuntimeError as error:
            log.warning("a graph could not be launched", extra={"cause": str(error)})
            return False
        return True

    def __del__(self) -> None:
        try:
            runtime.graphExecDestroy(self._launches)  # one that is being run is freed after
        except Exception:  # the device may be gone, or the process be ending
            return


def _end(stream: int) -> int:
    """The graph of what was noted; 0 where something could not be."""
    try:
        return int(runtime.streamEndCapture(stream))
    except runtime.CUDARuntimeError:
        return 0


def is_idle(stream: int) -> bool:
    """Whether a raw stream has done all that it was given."""
    return bool(runtime.streamQuery(stream) == _DONE)
