"""Switches of precision and determinism, tunable operations, cuDNN: as modes and questions in the stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from server.engine.switches import NAMES
from telegrad_protocol import queries
from telegrad_protocol.errors import ArgumentError

from .requests import answers
from .state import SessionState

_CUDNN = {
    "cudnn_allow_tf32": "allow_tf32",
    "cudnn_deterministic": "deterministic",
    "cudnn_benchmark": "benchmark",
    "cudnn_enabled": "enabled",
}


def _set_switch(name: str, state: SessionState, value: Any) -> None:
    state.context.switches = state.context.switches.with_setting(name, value)


def _set_cudnn(name: str, state: SessionState, value: Any) -> None:
    if type(value) is not bool:
        raise TypeError("not a bool")
    state.context.cudnn = state.context.cudnn._replace(**{name: value})


def _set_tunable(state: SessionState, value: Any) -> None:
    """``[enabled, tunes, milliseconds, iterations]``; results stay while tunable operations are off."""
    enabled, tunes, milliseconds, iterations = value
    if not (type(enabled) is type(tunes) is bool and type(milliseconds) is type(iterations) is int):
        raise TypeError("not two bools and two integers")
    tuner = state.context.tuner
    tuner.set(tunes, milliseconds, iterations)
    state.context.switches = state.context.switches.with_tuner(tuner if enabled else None)


@answers(queries.TunableResults)
def _results(state: SessionState, query: queries.TunableResults) -> list[list[str]]:
    return state.context.tuner.lines()


@answers(queries.TunableValidators)
def _validators(state: SessionState, query: queries.TunableValidators) -> list[list[str]]:
    device = next((d for d in state.context.backends if d.type == "cuda"), None)
    if device is None:
        return [["GPU_NAME", "none"]]
    from server.engine.cuda.gemm import tunable

    return tunable.validators(state.context.backends[device])


@answers(queries.CudnnGraphs)
def _cudnn_graphs(state: SessionState, query: queries.CudnnGraphs) -> dict[str, Any]:
    """cuDNN's version, 0 without it, and what the first uses of shapes have cost in this process."""
    if not any(device.type == "cuda" for device in state.context.backends):
        return {"version": 0, "graphs": 0, "refused": 0, "seconds": 0.0}
    from server.engine.cuda.runtime import cudnn_graph

    built = cudnn_graph.BUILT
    return {
        "version": cudnn_graph.version(), "graphs": built.graphs, "refused": built.refused, "seconds": built.seconds,
    }  # fmt: skip


@answers(queries.TunableLoad)
def _load(state: SessionState, query: queries.TunableLoad) -> int:
    """Take over results that were written earlier; tells how many are known then."""
    for line in query.lines:
        if not (isinstance(line, list) and len(line) == 4 and all(isinstance(item, str) for item in line)):
            raise ArgumentError(f"tunable: expected lines of four texts, got {line!r:.80}")
    context = state.context
    context.tuner.load(query.lines)
    if context.switches.tuner is not None:
        context.switches = context.switches.with_tuner(context.tuner)
    return len(context.tuner.results)


SETTERS: dict[str, Callable[[SessionState, Any], None]] = {
    **{name: partial(_set_switch, name) for name in NAMES},
    **{mode: partial(_set_cudnn, name) for mode, name in _CUDNN.items()},
    "tunable": _set_tunable,
}
