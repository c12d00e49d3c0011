"""Profiling one session: its operations, its other instructions, its frames and its devices' work are noted.

While nobody asks for it nothing of this is there: the handlers are the ordinary ones, and no call has the Profiler key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from server.engine import context, keys
from server.engine.profiling import kernel
from server.engine.profiling.emitter import emits
from server.engine.profiling.recorder import MOST_BYTES, Recorder, now
from server.engine.user_kernels.kernel import UserKernel
from server.engine.value import Backend
from telegrad_protocol import dtypes, messages
from telegrad_protocol.errors import ArgumentError, OutOfMemoryError
from telegrad_protocol.meta import CPU, Device, Meta
from telegrad_protocol.programs.messages import RunProgram
from telegrad_protocol.tracing import queries, recording
from telegrad_protocol.tracing.recording import Recording, SiteName

from ..programs.ending import RestOfRun, RestOfStretch, RunStretch
from ..requests import Deferred, answers
from ..state import SessionState

UNNOTED: Final = frozenset((messages.Free, messages.Site, messages.Mode, messages.Resume, messages.Interrupt))
"""Instructions that take next to no time."""
LEAST_BYTES: Final = 1 << 16


def check_unprofiled(state: SessionState, what: str) -> None:
    """Refuse where something looks on already at what the session executes."""
    ctx = state.context
    if ctx.profiler is not None:
        one = "emits ranges for another profiler" if ctx.profiler.emits else "is profiled"
        raise ArgumentError(f"{what}: this session {one} already; stop that first")


def start_profile(state: SessionState, with_memory: bool, with_devices: bool, limit: int, wraps: bool = False) -> None:
    """Note what the session executes from here on; ``wraps``: of much that is noted the latest is kept."""
    ctx = state.context
    check_unprofiled(state, "profile")
    if not LEAST_BYTES <= limit <= MOST_BYTES:
        raise ArgumentError(f"profile: expected a limit of {LEAST_BYTES} to {MOST_BYTES} bytes, got {limit}")
    host = state.backend(CPU.name)
    tracers = _tracers(state) if with_devices else {}
    ctx.profiler = Recorder(state, ctx, host, tracers, with_memory, limit, wraps)
    ctx.included |= keys.PROFILER
    kernel.begin(state.number)
    _note_handlers(state)


def end_profile(state: SessionState) -> Recorder | None:
    """Note nothing any more; return what notes were taken by, None if nothing was."""
    ctx = state.context
    recorder: Recorder | None = ctx.profiler
    if recorder is None:
        return None
    recorder.end()
    state.drawn += recorder.drawn
    ctx.profiler = None
    ctx.included &= ~(keys.PROFILER | keys.RANGES)
    kernel.end(state.number)
    state.handlers.update(state.plain_handlers)
    state.plain_handlers.clear()
    for tracer in recorder.tracers.values():
        tracer.stop()
    return recorder


def numbers_drawn(state: SessionState) -> int:
    """Return how many numbers of nodes of the backward graph were drawn for notes, of which no nodes were made."""
    recorder: Recorder | None = state.context.profiler
    return state.drawn if recorder is None else state.drawn + recorder.drawn


def drop_profile(state: SessionState) -> None:
    """Note nothing any more, and forget what was noted."""
    recorder = end_profile(state)
    for tracer in recorder.tracers.values() if recorder is not None else ():
        tracer.release()


def recorded(state: SessionState, recorder: Recorder) -> Recording:
    """Return what was noted, with the lines of the client's program that it refers to."""
    return recorder.result(_sites(state))


def noted_so_far(state: SessionState, last: int) -> Recording:
    """Return the latest events while more are being noted."""
    recorder: Recorder | None = state.context.profiler
    if recorder is None or recorder.emits:
        raise ArgumentError("trace: this session is not watched; PUT /v1/sessions/{id}/trace begins to")
    recorder.spill()
    return recorder.result(_sites(state), last)


def _sites(state: SessionState) -> list[SiteName]:
    return [SiteName(site.number, site.file, site.line, site.function) for site in state.sites.values()]


def _tracers(state: SessionState) -> dict[Device, Any]:
    ctx = state.context
    return {device: backend.trace_work(ctx) for device, backend in state.backends.items() if device.type != "cpu"}


def _note_handlers(state: SessionState) -> None:
    """Put handlers that note what they do in the place of the ordinary ones."""
    state.plain_handlers.update(state.handlers)
    for kind, handler in state.plain_handlers.items():
        if kind is messages.LaunchKernel:
            state.handlers[kind] = _noting_launch(state, handler)
        elif kind in (RunStretch, RestOfStretch):
            state.handlers[kind] = _noting(state, handler, _note_stretch)
        elif kind in (RunProgram, RestOfRun):
            state.handlers[kind] = _noting(state, handler, _note_run)
        elif kind not in UNNOTED:
            state.handlers[kind] = _noting(state, handler, partial(_note_instruction, name_of_kind(kind)))


@lru_cache(None)
def name_of_kind(kind: type) -> str:
    """Return what a profile calls instructions of a kind."""
    return "telegrad::" + re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def _noting(
    state: SessionState, handler: Callable[[Any], Any], note: Callable[[Recorder, Any, int], None]
) -> Callable[[Any], Any]:  # fmt: skip
    """Return the handler, with what it has executed noted afterwards by ``note``, which is told the time before."""
    ctx = state.context

    def handle(instruction: Any) -> Any:
        recorder = ctx.profiler
        begin = now()
        try:
            return handler(instruction)
        finally:
            if recorder is not None and recorder is ctx.profiler:
                note(recorder, instruction, begin)

    return handle


def shown_name(name: str, instruction: Any) -> str:
    """Return what a profile calls an instruction whose kind has this name."""
    return f"{name}: {instruction.what}"[:100] if instruction.__class__ is messages.Query else name


def _note_instruction(name: str, recorder: Recorder, instruction: Any, begin: int) -> None:
    recorder.note(recorder.named(recording.INSTRUCTION, shown_name(name, instruction)), begin)
    if recorder.with_memory:
        recorder.note_memory()


def _note_stretch(recorder: Recorder, run: RunStretch | RestOfStretch, begin: int) -> None:
    """Note calls that came before, as a whole and one by one, where they were executed as one."""
    if recorder.executed is not None:
        recorder.note_executed(run.ids)
        recorder.note(recorder.named(recording.INSTRUCTION, "telegrad::stretch"), begin)


def _note_run(recorder: Recorder, run: RunProgram | RestOfRun, begin: int) -> None:
    """Note a run of a program, and its steps where they were executed as one."""
    recorder.note_executed(())
    _note_instruction("telegrad::run_program", recorder, run, begin)


def name_of_launch(kernel: UserKernel) -> str:
    """Return what a profile calls a launch of a kernel of the client's."""
    return f"telegrad::launch_kernel: {kernel.name}"[:100]


def _noting_launch(state: SessionState, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the handler of launches of the client's own kernels, which may wait: noted by their numbers and names."""
    ctx, values = state.context, state.values

    def handle(instruction: Any) -> Any:
        recorder = ctx.profiler
        kernel: Any = values.get(instruction.kernel)
        device = kernel.backend.device if isinstance(kernel, UserKernel) else None
        tracer = None if recorder is None or device is None else recorder.tracers.get(device)
        if recorder is None or device is None or tracer is None:
            return handler(instruction)
        first, begin = tracer.begin(), now()
        try:
            return handler(instruction)
        finally:
            if recorder is ctx.profiler:
                description = recorder.named(recording.INSTRUCTION, name_of_launch(kernel), device.index or 0)
                recorder.note(description, begin, first, tracer.end(first))
                if recorder.with_memory:
                    recorder.note_memory()

    return handle


def note_frame(state: SessionState, nbytes: int) -> None:
    """Note that a frame of instructions has arrived."""
    recorder: Recorder = state.context.profiler
    if not recorder.emits:
        recorder.note(recorder.named(recording.FRAME, "frame"), now(), nbytes)


@answers(queries.StartProfile)
def _start(state: SessionState, query: queries.StartProfile) -> int:
    if state.context.profiler is not None and state.context.profiler.wraps:
        drop_profile(state)
    start_profile(state, query.memory, query.devices, query.limit)
    return now()


@answers(queries.ProfileClock)
def _clock(state: SessionState, query: queries.ProfileClock) -> int:
    return now()


@answers(queries.StopProfile)
def _stop(state: SessionState, query: queries.StopProfile) -> Deferred:
    recorder = None if emits(state.context) else end_profile(state)
    if recorder is None:
        raise ArgumentError("profile: this session is not profiled")
    taken = recorder
    marks = [mark for backend in state.backends.values() for mark in backend.marks(state.context)]
    return Deferred(marks, lambda: _as_tensor(state, recorded(state, taken)))


def _as_tensor(state: SessionState, told: Recording) -> int | None:
    """Put a recording into a tensor of the session, without later events where there is no room; return its number.

    None where there is no room at all.
    """
    host: Backend = state.backends[CPU]
    before = context.current
    context.activate(state.context)
    try:
        while True:
            data = recording.encode(told)
            try:
                value = host.empty(Meta.of((len(data),), dtypes.uint8, CPU))
                break
            except OutOfMemoryError:
                if not told.events:
                    return None
                told.halve()
    finally:
        context.activate(before)
    value.array[...] = np.frombuffer(data, np.uint8)
    id = state.new_id()
    state.values[id] = value
    return id
