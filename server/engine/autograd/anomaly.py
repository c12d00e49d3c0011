"""Anomaly mode: notes which line of the program has made each node, and looks for NaN in what nodes compute.

What notes is in the place of the trace that the dispatcher writes, so that nothing of it is on the path of an operation
otherwise. Knows nothing of sessions, which name their lines.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from server.engine import context
from server.engine import functional as F
from server.engine.context import Held
from server.engine.value import Value
from telegrad_protocol.dtypes import FLOAT
from telegrad_protocol.errors import AutogradError, TelegradError

from .graph import Node, next_sequence
from .graph_task import GraphTask
from .stream_graph_task import StreamGraphTask

_MOST_NOTED: Final = 1 << 16
_NOTE_BYTES: Final = 80
_MARK: Final = "Error detected in "
"""Begins the line of a message that names the node, and where it was made."""


class AnomalyTrace:
    """Which line each of the last operations came from, by the number of the node that comes next."""

    def __init__(self, line: Callable[[], str], checks_nan: bool) -> None:
        """``line`` names the program's line that is being executed; empty where that is not known."""
        self.checks_nan = checks_nan
        self._line = line
        self._sequences: deque[int] = deque(maxlen=_MOST_NOTED)
        self._lines: deque[str] = deque(maxlen=_MOST_NOTED)
        self._held = Held(context.current.host_memory, _MOST_NOTED * _NOTE_BYTES)

    def append(self, text: str) -> None:
        """Note the operation that is dispatched."""
        self._sequences.append(next_sequence())
        self._lines.append(self._line())

    def line_of(self, node: Node) -> str:
        """Return the line that has made a node; empty where none was noted."""
        place = bisect_right(self._sequences, node.sequence) - 1
        return next(islice(self._lines, place, None), "") if place >= 0 else ""

    def check(self, node: Node, gradients: Sequence[Value | None] | None) -> None:
        """Raise AutogradError if there is NaN in what a node has computed."""
        if not self.checks_nan or gradients is None or not node.edges:
            return
        for number, gradient in enumerate(gradients):
            if gradient is not None and gradient.meta.dtype.category >= FLOAT and _has_nan(gradient):
                raise AutogradError(f"Function '{node.name}' returned nan values in its {number}th output.")


def _has_nan(value: Value) -> bool:
    with context.grad_mode(False):
        found = F.any(F.isnan(value), None, False)
    return bool(found.backend.host_array(found).item())


def _describing(trace: AnomalyTrace, node: Node, error: TelegradError) -> TelegradError:
    """Return the error, with the line of the node that it is about."""
    line = trace.line_of(node)
    if not line or _MARK in error.message:
        return error
    return type(error)(f"{error.message}\n{_MARK}{node.name}: {line}")


class AnomalyTask(GraphTask):
    """A pass that looks at what every node computes."""

    __slots__ = ()

    def visit(self, node: Node, wanted: set[Node] | None) -> Sequence[Value | None] | None:
        trace = context.current.trace
        if not isinstance(trace, AnomalyTrace):
            return super().visit(node, wanted)
        try:
            gradients = super().visit(node, wanted)
            trace.check(node, gradients)
            return gradients
        except TelegradError as error:
            described = _describing(trace, node, error)
            if described is error:
                raise
            raise described from error


class AnomalyStreamTask(AnomalyTask, StreamGraphTask):
    """The same, of a session that uses streams of its own."""


def new_task(retain_graph: bool, create_graph: bool, capture: Sequence[tuple[Node, int]]) -> GraphTask:
    """Return the pass that the session's modes ask for."""
    current = context.current
    is_anomaly = isinstance(current.trace, AnomalyTrace)
    if current.own_streams.left_default:
        return (AnomalyStreamTask if is_anomaly else StreamGraphTask)(retain_graph, create_graph, capture)
    return (AnomalyTask if is_anomaly else GraphTask)(retain_graph, create_graph, capture)
