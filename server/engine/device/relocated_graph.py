"""Graphs of noted launches, whose kernels are given other memory and other numbers each time they are launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from server.engine.in_c.launches import relocated

from .cuda_graphs import GRAPH_BYTES, NODE_BYTES, CudaGraph
from .cupy_module import runtime
from .launch_queue import LaunchQueue


class RelocatedGraph(CudaGraph):
    """Launches of kernels in a row. The memory that they share with nobody must still be theirs at each launch."""

    __slots__ = ("_made", "_run", "_values")

    def __init__(self, run: Any, stream: int, nodes: int, counts: Sequence[int]) -> None:
        self.nbytes = GRAPH_BYTES + nodes * NODE_BYTES
        self.counts = tuple(counts)
        self.index = runtime.getDevice()
        self._run, self._stream = run, stream
        self._values: Sequence[Any] = ()
        self._made: Sequence[Any] = ()

    @classmethod
    def noted(
        cls, queue: LaunchQueue, stream: int, work: Callable[[], bool], rows: Callable[[], Sequence[Any]],
        counts: Sequence[int],
    ) -> RelocatedGraph | None:  # fmt: skip
        """Note what ``work`` launches; ``rows`` says then what of it is others each time. None where that cannot be.

        Rows are as `in_c.launches.relocated` takes them; ``counts`` is how many launches waited at which step.
        """
        launches = None if queue.chains is None else queue.noted(work)
        run = relocated(queue.chains, launches, tuple(rows())) if launches else None
        return None if run is None or launches is None else cls(run, stream, len(launches), counts)

    def launch_on(self, values: Sequence[Any], made: Sequence[Any]) -> bool:
        """Launch it on the memory of values, for the storages of what it makes; False if the device refuses.

        They are kept for ``_start``: a profiler may stand before ``launch``, which takes no arguments.
        """
        self._values, self._made = values, made
        try:
            return self.launch()
        finally:
            self._values = self._made = ()

    def _start(self) -> bool:
        return self._run.launch(self._stream, self._values, self._made)  # type: ignore[no-any-return]

    def __del__(self) -> None:
        """Do nothing: the graph goes with what launches it."""


class WaitingCounter:
    """Counts the launches that are being noted in a queue; ``counts`` has them before the first step and after each."""

    def __init__(self, queue: LaunchQueue) -> None:
        self._queue = queue
        self.counts: list[int] = []

    def begin(self) -> int:
        return len(self._queue.waiting)

    def forget(self) -> None:
        """Forget the launches that were noted so far."""
        self._queue.waiting.clear()

    def note_counts(self, counts: Sequence[int]) -> None:
        """Keep how many launches waited before the first step and after each, as the program found them."""
        self.counts[:] = counts
