"""Switches of precision and determinism, tunable operations, cuDNN: as modes and questions in the stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from server.engine.switches import NAMES
from telegrad_protocol.errors import ArgumentError

from .memory_queries import Question

if TYPE_CHECKING:
    from .session import Session

_CUDNN = {"cudnn_allow_tf32": "allow_tf32", "cudnn_deterministic": "deterministic", "cudnn_benchmark": "benchmark"}


def _set_switch(name: str, session: Session, value: Any) -> None:
    session.context.switches = session.context.switches.but(name, value)


def _set_cudnn(name: str, session: Session, value: Any) -> None:
    if type(value) is not bool:
        raise TypeError("not a bool")
    session.context.cudnn = session.context.cudnn._replace(**{name: value})


def _set_tunable(session: Session, value: Any) -> None:
    """``[enabled, tunes, milliseconds, iterations]``; results stay while tunable operations are off."""
    enabled, tunes, milliseconds, iterations = value
    if not (type(enabled) is type(tunes) is bool and type(milliseconds) is type(iterations) is int):
        raise TypeError("not two bools and two integers")
    tuner = session.context.tuner
    tuner.set(tunes, milliseconds, iterations)
    session.context.switches = session.context.switches.tuned_by(tuner if enabled else None)


def _results(session: Session) -> list[list[str]]:
    return session.context.tuner.lines()


def _validators(session: Session) -> list[list[str]]:
    device = next((d for d in session.context.backends if d.type == "cuda"), None)
    if device is None:
        return [["GPU_NAME", "none"]]
    from server.engine.cuda.gemm import tunable

    return tunable.validators(session.context.backends[device])


def _cudnn_graphs(session: Session) -> dict[str, Any]:
    """cuDNN's version, 0 without it, and what the first uses of shapes have cost in this process."""
    if not any(device.type == "cuda" for device in session.context.backends):
        return {"version": 0, "graphs": 0, "refused": 0, "seconds": 0.0}
    from server.engine.cuda.runtime import cudnn_graph

    built = cudnn_graph.BUILT
    return {
        "version": cudnn_graph.version(), "graphs": built.graphs, "refused": built.refused, "seconds": built.seconds,
    }  # fmt: skip


def _load(session: Session, lines: list[Any]) -> int:
    """Take over results that were written earlier; tells how many are known then."""
    for line in lines:
        if not (isinstance(line, list) and len(line) == 4 and all(isinstance(item, str) for item in line)):
            raise ArgumentError(f"tunable: expected lines of four texts, got {line!r:.80}")
    context = session.context
    context.tuner.load(lines)
    if context.switches.tuner is not None:
        context.switches = context.switches.tuned_by(context.tuner)
    return len(context.tuner.results)


SETTERS: dict[str, Callable[[Session, Any], None]] = {
    **{name: partial(_set_switch, name) for name in NAMES},
    **{mode: partial(_set_cudnn, name) for mode, name in _CUDNN.items()},
    "tunable": _set_tunable,
}
QUESTIONS: dict[str, Question] = {
    "tunable_results": Question(_results),
    "tunable_validators": Question(_validators),
    "tunable_load": Question(_load, (list,), 1),
    "cudnn_graphs": Question(_cudnn_graphs),
}
