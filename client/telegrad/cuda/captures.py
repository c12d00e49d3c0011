"""CUDA graphs under PyTorch's names: work is captured once, and replayed on the same memory by one instruction.

Within a capture the program queues its work as ever, and nothing of it is seen to be done. The server keeps the memory
of all results, so that a replay writes them anew where they are: see docs/cuda-graphs.md.
"""

from __future__ import annotations

import warnings
from itertools import count
from pathlib import Path
from typing import Any, Final

from telegrad._session.current import current_session
from telegrad._session.devices import gpu_of
from telegrad._session.parts.capturing import active, current
from telegrad._session.thread_modes import thread
from telegrad._tensor.number_checks import is_number
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, CaptureError, NotSupportedError
from telegrad_protocol.messages import BeginCapture, EndCapture, ReplayGraph

from .streams import Stream, StreamContext, current_stream

PoolId = tuple[int, int]
_GRAPHS: Final = 1
"""What the id of a pool of graphs begins with; that of a `MemPool` begins with 0."""
_ERROR_MODES: Final = ("global", "thread_local", "relaxed")
_next_pool = count(1).__next__


def is_current_stream_capturing() -> bool:
    """Whether this thread captures a graph."""
    return current() is not None


def graph_pool_handle() -> PoolId:
    """Return the id of a new pool of memory, which graphs may share; it has memory as long as one of them is there."""
    return _GRAPHS, _next_pool()


class CUDAGraph:
    """Work of a GPU that is captured between ``capture_begin`` and ``capture_end``, and done again by ``replay``.

    ``keep_graph`` lets ``instantiate`` be called apart, as in PyTorch; the server needs no call.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> CUDAGraph:
        """Make one of the class: subclasses pass ``keep_graph`` on, as they have to in PyTorch."""
        return super().__new__(cls)

    def __init__(self, keep_graph: bool = False) -> None:
        self._session: Any = None
        self._id = 0
        self._pool: PoolId | None = None
        self._keeps, self._debugs = bool(keep_graph), False
        self._is_captured = self._is_valid = False

    def capture_begin(
        self, pool: PoolId | None = None, capture_error_mode: str = "global", check_input_liveness: bool = False
    ) -> None:
        """Capture what this thread has the current GPU do from here on.

        ``pool`` is the id of the memory that results come from: what ``graph_pool_handle``, another graph's ``pool`` or
        ``MemPool.id`` gave; by default the graph has its own. Inputs live as long as the graph, so that
        ``check_input_liveness`` has nothing to find. Waits for nothing; CaptureError within a capture.
        """
        if capture_error_mode not in _ERROR_MODES:
            raise ArgumentError(f"capture_begin: capture_error_mode is one of {', '.join(_ERROR_MODES)}")
        if self._is_captured:
            raise CaptureError(
                "capture_begin: this CUDAGraph instance already owns a captured graph; to capture a new graph, create "
                "a new instance, or reset() this one"
            )
        if current() is not None:
            raise CaptureError(
                "capture_begin: operation not permitted when stream is capturing; end that capture first"
            )
        device = gpu_of("capture_begin", None).name
        if not current_stream().stream_id:
            raise CaptureError(
                "capture_begin: CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok "
                "to replay them on the default stream.)"
            )
        self._session, self._pool = current_session(), graph_pool_handle() if pool is None else _checked(pool)
        session, self._id = self._session, self._session.new_id()
        session.submit(BeginCapture(self._id, session.sites.current(), device, self._pool), thread.modes)
        self._is_valid = True
        active.graph = self

    def capture_end(self) -> None:
        """End the capture, and raise what failed in it. One round trip."""
        if current() is not self:
            raise CaptureError("capture_end: this graph is not being captured by this thread")
        is_valid = self._is_valid
        self._end(is_valid)
        if not is_valid:
            raise CaptureError("capture_end: operation failed due to a previous error during capture")
        self._session.synchronize()
        self._is_captured = True

    def _end(self, is_whole: bool) -> None:
        active.graph = None
        session = self._session
        if session.is_open:
            session.submit(EndCapture(self._id, session.sites.current(), is_whole), thread.modes)

    @property
    def has_session(self) -> bool:
        """Whether the session is there that captures it."""
        return bool(self._session.is_open)

    def invalidate(self) -> None:
        """Note that something was tried that is not permitted in a capture: there will be no graph."""
        self._is_valid = False

    def abandon(self) -> None:
        """End the capture without a graph: something else has failed, and is being raised."""
        if active.graph is self:
            self._end(False)

    def instantiate(self) -> None:
        """Do nothing, since the server makes graphs of the device when they are first replayed."""
        self._require("instantiate")
        if not self._keeps:
            raise CaptureError(
                "instantiate: only graphs that were made with keep_graph=True are instantiated by a call"
            )

    def replay(self) -> None:
        """Do the captured work again, on the current stream."""
        self._require("replay")
        session = self._session
        session.submit(ReplayGraph(self._id, session.sites.current()), thread.modes)

    def reset(self) -> None:
        """Forget what was captured; memory that no tensor uses goes back."""
        self.abandon()
        if self._is_captured:
            self._is_captured = False
            self._session.free(self._id)

    def pool(self) -> PoolId:
        """Return the id of the graph's memory, for other graphs to share it."""
        self._require("pool")
        return self._pool  # type: ignore[return-value]

    def register_generator_state(self, generator: Any) -> None:
        """Do nothing: every generator that a captured operation draws from goes on with each replay."""

    def enable_debug_mode(self) -> None:
        """Let ``debug_dump`` write what will be captured."""
        self._debugs = True

    def debug_dump(self, debug_path: str) -> None:
        """Write the captured operations to a file, in the DOT language. One round trip."""
        self._require("debug_dump")
        if not self._debugs:
            warnings.warn("DOT file is not dumped: call enable_debug_mode() before the capture", stacklevel=2)
            return
        names = self._operations()
        nodes = [f'  n{number} [label="{name}"];' for number, name in enumerate(names)]
        edges = [f"  n{number} -> n{number + 1};" for number in range(len(names) - 1)]
        Path(debug_path).write_text("\n".join(["digraph captured {", *nodes, *edges, "}", ""]), encoding="utf-8")

    def get_graph_data(self) -> dict[str, Any]:
        """Describe the captured operations, each of which depends on the one before. One round trip."""
        self._require("get_graph_data")
        names = self._operations()
        nodes = [
            {
                "index": number, "node_type": "OPERATION", "tools_id": number, "graph_id": self._id, "node_id": number,
                "kernel_name": name, "dependencies": [number - 1] if number else [],
                "dependents": [number + 1] if number + 1 < len(names) else [],
            }
            for number, name in enumerate(names)
        ]  # fmt: skip
        return {"exec_graph_id": self._id, "nodes": nodes}

    def _operations(self) -> list[str]:
        names: list[str] = self._session.query("graph_operations", self._id)
        return names

    def raw_cuda_graph(self) -> int:
        """Refuse: the graph is the server's, and its address is of no use here."""
        self._require("raw_cuda_graph")
        raise NotSupportedError("raw_cuda_graph: the graph lives on the server; debug_dump(path) shows what is in it")

    raw_cuda_graph_exec = raw_cuda_graph

    def _require(self, name: str) -> None:
        if not self._is_captured:
            raise CaptureError(f"{name}: called CUDAGraph.{name} without a preceding successful capture")

    def __del__(self) -> None:
        if getattr(self, "_is_captured", False) and self._session.is_open:
            self._session.free(self._id)


def _checked(pool: Any) -> PoolId:
    if isinstance(pool, tuple) and len(pool) == 2 and all(map(is_number, pool)):
        return int(pool[0]), int(pool[1])
    raise ArgumentTypeError(
        f"capture_begin: a pool is what graph_pool_handle(), CUDAGraph.pool() or MemPool.id gives, not {pool!r}"
    )


class graph:
    """Within the block, what is submitted is captured into ``cuda_graph``.

    ``stream``, or ``default_capture_stream`` where none is given, is the current one meanwhile. An exception ends the
    capture without a graph, and goes on.
    """

    default_capture_stream: Stream | None = None
    """The side stream of the last graphs that were given none; one of the current GPU and session."""

    def __init__(
        self, cuda_graph: CUDAGraph, pool: PoolId | None = None, stream: Stream | None = None,
        capture_error_mode: str = "global", enable_annotations: bool = False, check_input_liveness: bool = False,
    ) -> None:  # fmt: skip
        if not isinstance(cuda_graph, CUDAGraph):
            raise ArgumentTypeError(f"graph: expected a CUDAGraph, not {type(cuda_graph).__name__}")
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_stream = self._own_stream() if stream is None else stream
        self.stream_ctx = StreamContext(self.capture_stream)
        self.capture_error_mode = capture_error_mode

    @classmethod
    def _own_stream(cls) -> Stream:
        chosen, known = current_stream(), cls.default_capture_stream
        if known is None or (known._session, known._device) != (chosen._session, chosen._device):
            known = cls.default_capture_stream = Stream()
        return known

    def __enter__(self) -> None:
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self.stream_ctx.__exit__()
            raise

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            if kind is None:
                self.cuda_graph.capture_end()
            else:
                self.cuda_graph.abandon()
        finally:
            self.stream_ctx.__exit__(kind, error, traceback)
