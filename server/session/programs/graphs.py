"""A session's CUDA graphs: a thread of the client captures what it does on a device, and has it done again.

Reads of the device fail while it is captured. What fails in a capture, or is dropped by an interrupt, leaves no graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from server.allocator.core.mem_pool import MemPool
from server.engine.graphs.capture import NOT_PERMITTED, Capture
from server.engine.graphs.graph import CapturedGraph
from server.engine.value import Backend, Value
from server.session.requests import answers
from server.session.state import SessionState
from telegrad_protocol import messages
from telegrad_protocol.errors import ArgumentError, CaptureError, NotSupportedError, ProtocolError
from telegrad_protocol.programs.graphs import GraphOperations

MOST_GRAPHS: Final = 1 << 12
"""A session has so many graphs at most."""
_MEM_POOL: Final = 0
"""What the id of a pool begins with that is no graph's."""


class _ThreadCapture:
    """A capture by one thread of the client."""

    def __init__(self, state: SessionState, number: int, backend: Backend, pool: MemPool) -> None:
        self.number = number
        self.random_states: dict[int, Any] = {}
        self._state = state
        self._thread = state.thread
        self._failures, self._interrupts = state.failures, state.passed_interrupt
        self.capture = Capture(state.context, backend, pool, lambda: state.thread == self._thread)

    @property
    def is_sound(self) -> bool:
        """Whether all of it was executed."""
        state = self._state
        return (state.failures, state.passed_interrupt) == (self._failures, self._interrupts) and not state.is_stopped

    def _concerns(self, backend: Backend) -> bool:
        return backend is self.capture.backend and self._state.thread == self._thread

    def refuse(self, backend: Backend, name: str) -> None:
        if self._concerns(backend):
            raise CaptureError(
                f"{name}: {NOT_PERMITTED}: nothing is computed before the graph is replayed; do this after a replay"
            )

    def refuse_code(self, name: str) -> None:
        if self._state.thread == self._thread:
            raise CaptureError(f"{name}: {NOT_PERMITTED}: what an extension's C++ does is not noted; call it outside")

    def execute(self, name: str, backend: Backend | None, run: Callable[[tuple[Any, ...]], Any], args: Any) -> None:
        if self._concerns(backend or self.capture.backend):
            self.capture.execute(name, run, args)
        else:
            run(args)

    def keep_uploaded(self, value: Value) -> Value:
        if not self._concerns(value.backend):
            return value
        return value.clone()  # type: ignore[no-any-return]

    def abandon(self) -> None:
        self._state.close_graph(self.capture.end())


def begin_capture(state: SessionState, message: messages.BeginCapture) -> None:
    """Handle the instruction."""
    if state.capture is not None:
        raise CaptureError("capture_begin: a graph is being captured already; end that capture first")
    if len(state.graphs) >= MOST_GRAPHS:
        raise ArgumentError(f"capture_begin: a session has at most {MOST_GRAPHS} graphs; reset() some")
    if message.graph in state.graphs:
        raise ProtocolError(f"capture_begin: there is a graph number {message.graph} already")
    backend = state.backend(message.device)
    if backend.device.type == "cpu":
        raise NotSupportedError("capture_begin: graphs are captured on GPUs; on the CPU call the function itself")
    pool = _pool(state, backend, message.pool)
    try:
        state.capture = _ThreadCapture(state, message.graph, backend, pool)
    except BaseException:
        state.close_graph(CapturedGraph(backend, state.number, pool, ()))
        raise


def _pool(state: SessionState, backend: Backend, id: tuple[int, int]) -> MemPool:
    """Return the pool of this id, with a use of it for the graph."""
    with backend.exclusive_allocator() as allocator:
        place = backend.device, id[1]
        known = allocator.mem_pool(id, state.number) if id[0] == _MEM_POOL else state.graph_pools.get(place)
        if known is None:
            pool: MemPool = allocator.new_mem_pool(state.number)
            state.graph_pools[place] = pool
            return pool
    known.uses += 1
    return known


def end_capture(state: SessionState, message: messages.EndCapture) -> None:
    """Handle the instruction, also after a failure or an interrupt: nothing remains of the capture then."""
    going: Any = state.capture
    if going is None or going.number != message.graph:
        if state.is_stopped or not message.is_whole:
            return
        raise CaptureError("capture_end: no graph is being captured; call capture_begin() first")
    state.capture = None
    is_sound = going.is_sound
    graph = going.capture.end()
    if not (message.is_whole and is_sound):
        state.close_graph(graph)
        if message.is_whole and not state.is_stopped:
            raise CaptureError("capture_end: operation failed due to a previous error during capture")
        return
    try:
        state.graphs[message.graph] = graph
    except BaseException:
        state.close_graph(graph)
        raise


def replay_graph(state: SessionState, message: messages.ReplayGraph) -> int:
    """Handle the instruction; return what the turn is to count."""
    graph = state.graphs.get(message.graph)
    if graph is None:
        raise CaptureError("replay: there is no captured graph; its capture failed, or it was reset")
    if state.capture is not None:
        state.capture.refuse(graph.backend, "replay")
    graph.replay(message)
    return len(graph.operations) // 16


@answers(GraphOperations)
def _graph_operations(state: SessionState, query: GraphOperations) -> list[str]:
    graph = state.graphs.get(query.graph)
    return [] if graph is None else [operation.name for operation in graph.operations]


HANDLERS: Final[dict[type, Callable[[SessionState, Any], int | None]]] = {
    messages.BeginCapture: begin_capture, messages.EndCapture: end_capture, messages.ReplayGraph: replay_graph,
}  # fmt: skip
"""What handles the instructions about graphs."""
