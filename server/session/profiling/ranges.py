"""Ranges around what one session executes, for a profiler that is attached to the worker.

While a session asks for none nothing of this is there: the handlers are the ordinary ones, and no call has the Ranges
key. The program's own ranges and marks are modes in the stream of instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.engine import keys
from server.engine.profiling import kernel, nvtx
from server.engine.profiling.emitter import Emitter, emits
from server.engine.profiling.nvtx import Library
from server.engine.user_kernels.kernel import UserKernel
from telegrad_protocol import messages
from telegrad_protocol.programs.messages import RunProgram
from telegrad_protocol.tracing import queries

from ..programs.ending import STRETCHES, RestOfRun
from ..requests import answers
from ..state import SessionState
from .profiles import UNNOTED, check_unprofiled, drop_profile, name_of_kind, name_of_launch, shown_name

_EXPANDED = frozenset((RunProgram, RestOfRun, *STRETCHES))
"""Instructions that have others be next, which have ranges of their own."""


def start_ranges(state: SessionState, library: Library, with_shapes: bool) -> None:
    """Emit a range around everything that the session executes from here on."""
    ctx = state.context
    emitter = ctx.profiler = Emitter(ctx, library, with_shapes)
    ctx.included |= keys.RANGES
    kernel.begin(state.number)
    state.plain_handlers.update(state.handlers)
    for kind, handler in state.plain_handlers.items():
        if kind not in UNNOTED and kind not in _EXPANDED:
            state.handlers[kind] = _emitting(state, emitter, name_of_kind(kind), handler)


def _emitting(
    state: SessionState, emitter: Emitter, name: str, handler: Callable[[Any], Any]
) -> Callable[[Any], Any]:  # fmt: skip
    """Return the handler, which does what it does in a range."""

    def handle(instruction: Any) -> Any:
        return emitter.around(_shown(state, name, instruction), lambda: handler(instruction))

    return handle


def _shown(state: SessionState, name: str, instruction: Any) -> str:
    if instruction.__class__ is not messages.LaunchKernel:
        return shown_name(name, instruction)
    launched = state.values.get(instruction.kernel)
    return name_of_launch(launched) if isinstance(launched, UserKernel) else name


@answers(queries.StartRanges)
def _start(state: SessionState, query: queries.StartRanges) -> str:
    profiler = state.context.profiler
    if profiler is None or not profiler.wraps:
        check_unprofiled(state, "emit_nvtx")
    library = nvtx.find_library(list(state.backends))
    if isinstance(library, str):
        return library
    drop_profile(state)  # of a session that is watched
    start_ranges(state, library, query.shapes)
    return ""


def stop_ranges(state: SessionState, nothing: Any) -> None:
    """Emit nothing any more, if the session emits ranges."""
    if emits(state.context):
        drop_profile(state)


def mark(state: SessionState, name: Any) -> None:
    """Mark a moment of the program, if the session emits ranges."""
    if type(name) is not str:
        raise ValueError("no name of a mark")
    if emits(state.context):
        state.context.profiler.ranges.mark(name)
