"""Modes that travel in the stream of instructions: each holds from its place on, whatever failed before."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from server.engine import autocast, switches
from server.engine.autograd.anomaly import AnomalyTrace
from server.engine.context import CudnnModes
from server.engine.device import threads
from telegrad_protocol import dtypes, messages
from telegrad_protocol.autocast import Autocast
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.programs.messages import VERIFIES

from . import switches as switching
from .call_stack import describe_site
from .profiling.profiles import drop_profile
from .profiling.ranges import mark, stop_ranges
from .state import MOST_LINES, SessionState
from .streams import set_stream


def set_mode(state: SessionState, mode: messages.Mode) -> None:
    """Set a mode; ``ProtocolError`` where there is none of the name, or no such value of it."""
    setter = _SETTERS.get(mode.name)
    try:
        if setter is not None:
            setter(state, mode.value)
            return
    except (ValueError, TypeError, IndexError):
        pass
    raise ProtocolError(f"unknown mode {mode.name!r} or value {mode.value!r}")


def reset_modes(state: SessionState) -> None:
    """Give every mode its default, as in a new session; results of tuning stay."""
    context = state.context
    context.grad_enabled = True
    context.set_inference(False)
    autocast.set_autocast(context, None)
    autocast.clear_cache(context)
    context.trace = None
    drop_profile(state)
    context.cudnn, context.switches = CudnnModes(), switches.DEFAULT
    context.tuner.reset()
    context.threads = math.inf
    state.verifies_programs = False
    for device in list(context.streams):
        context.backends[device].use_stream(context, 0)
    _set_default_dtype(state, dtypes.float32.code)


def _set_grad(state: SessionState, enabled: Any) -> None:
    state.context.grad_enabled = bool(enabled)


def _set_inference(state: SessionState, enabled: Any) -> None:
    state.context.set_inference(bool(enabled))


def _set_thread(state: SessionState, number: Any) -> None:
    if type(number) is not int or number < 0:
        raise ValueError("no number of a thread")
    state.switch_thread(number)


def _set_trace(state: SessionState, enabled: Any) -> None:
    state.context.trace = deque(maxlen=MOST_LINES) if enabled else None


def _set_anomaly(state: SessionState, level: Any) -> None:
    """Note lines of nodes from level 1 on, and look for NaN in passes from level 2 on."""
    if type(level) is not int or not 0 <= level <= 2:
        raise ValueError("no level of anomaly mode")
    if level:
        state.context.trace = AnomalyTrace(lambda: describe_site(state, state.instruction), level > 1)
    elif isinstance(state.context.trace, AnomalyTrace):
        state.context.trace = None


def _set_default_dtype(state: SessionState, code: Any) -> None:
    if type(code) is not int or code < 0:
        raise ValueError("no code of a type")
    dtypes.set_default_dtype(dtypes.ALL[code])
    state.default_dtype = dtypes.ALL[code]


def _note_range(state: SessionState, mark: Any) -> None:
    """Note the beginning of a range, ``[number, name]``, or its end, ``[number]``, if something looks on."""
    number, *name = mark
    if type(number) is not int or any([type(text) is not str for text in name]):
        raise ValueError("no mark of a range")
    recorder = state.context.profiler
    if recorder is None:
        return
    if name:
        recorder.open_range(number, name[0])
    else:
        recorder.close_range(number)


def _set_threads(state: SessionState, number: Any) -> None:
    if type(number) is not int or number < 1:
        raise ValueError("no number of threads")
    state.context.threads = number
    threads.bound(number)


def _set_autocast(state: SessionState, settings: Any) -> None:
    autocast.set_autocast(state.context, None if settings is None else Autocast.decode(settings))


def _clear_casts(state: SessionState, nothing: Any) -> None:
    autocast.clear_cache(state.context)


def _set_verification(state: SessionState, enabled: Any) -> None:
    state.verifies_programs = bool(enabled)


_SETTERS: dict[str, Callable[[SessionState, Any], None]] = {
    "grad": _set_grad, "inference": _set_inference, "trace": _set_trace, "default_dtype": _set_default_dtype,
    "thread": _set_thread, "autocast": _set_autocast, "autocast_cache": _clear_casts, "stream": set_stream,
    "range": _note_range, "mark": mark, "stop_ranges": stop_ranges, "anomaly": _set_anomaly,
    "num_threads": _set_threads, VERIFIES: _set_verification,
    **switching.SETTERS,
}  # fmt: skip
