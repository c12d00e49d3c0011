"""What stops a session, a failed instruction or an interrupt, and the messages that tell the client.

After a failure only frees, sites, modes and the notes that the client makes on its tensors are executed, until the
client has seen the failure and sends ``Resume``. This goes for the instructions of the client's thread that the failed
one came from; those of other threads are executed, and fail if they use what was not computed. Results that were not
computed are marked as absent, with the reason.

An interrupt overtakes the queue, so the worker learns of it after the instruction that it is executing. From then on
instructions are passed over in the same way, up to ``Interrupt``, which the client has queued where it was interrupted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from server.disclosure import defect, traceback_for
from server.engine.value import Value
from telegrad_protocol import messages
from telegrad_protocol.errors import ArgumentError, NotComputedError, OutOfMemoryError, TelegradError
from telegrad_protocol.ops import Op
from telegrad_protocol.programs.messages import DefineProgram, RunProgram

from .arguments import BY_INDEX, describe_operands
from .call_stack import describe_site
from .programs.ending import STRETCHES, EndOfRun, EndOfVerification, RestOfRun, RunStretch
from .state import SessionState

ALWAYS_EXECUTED: frozenset[type] = frozenset(
    (
        messages.Free,
        messages.Site,
        messages.Mode,
        messages.Resume,
        messages.Interrupt,
        messages.Detach,
        messages.Attach,
        messages.EndCapture,
        DefineProgram,
        RunProgram,
        EndOfRun,
        EndOfVerification,
        RestOfRun,
        *STRETCHES,
    )
)
_LONGEST_TEXT: Final = 1 << 15
_NOTES: frozenset[type] = frozenset(
    (messages.SetGrad, messages.DropGrads, messages.SetRequiresGrad, messages.RetainGrad, messages.TakePlace)
)


def as_telegrad_error(error: Exception, operation: str) -> TelegradError:
    """Return ``error`` as one of our types; one that nobody foresaw is a defect of the server and says so."""
    if isinstance(error, TelegradError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"{operation}: out of memory on the server's host: {error}")
    if isinstance(error, OverflowError) or (isinstance(error, ZeroDivisionError) and "float" in str(error)):
        return ArgumentError(f"{operation}: a number among the arguments leads beyond what can be computed: {error}")
    return defect(error, operation)


def shortened(text: str) -> str:
    """Return a text of a failure without its middle, where what a client has sent makes it long."""
    half = _LONGEST_TEXT // 2
    return text if len(text) <= _LONGEST_TEXT else f"{text[:half]} ... {text[-half:]}"


def results_of(instruction: Any) -> Collection[int]:
    """Return the ids that an instruction defines when it succeeds."""
    if isinstance(instruction, (messages.Upload, messages.LoadModule, messages.DefineKernel)):
        return (instruction.id,)
    if isinstance(instruction, RunStretch):
        return instruction.stretch.made(instruction.ids)  # type: ignore[no-any-return]
    outs = [id for id in getattr(instruction, "outs", ()) if id is not None]
    if isinstance(instruction, (messages.Backward, messages.GiveGradients, messages.EndPass)):
        outs.extend([grad for _, grad in instruction.leaves])
    return outs


class FailStop:
    """Stops one session at a failure, and says what its following instructions come to."""

    def __init__(
        self, state: SessionState, handlers: Mapping[type, Callable[[Any], Any]],
        check_devices: Callable[[Exception], None], free_before: Callable[[SessionState, messages.Call], None],
    ) -> None:  # fmt: skip
        self._state = state
        self._handlers = handlers
        self._check_devices = check_devices
        self._free_before = free_before
        state.fail = self.fail

    def fail(self, instruction: Any, error: Exception) -> None:
        """Stop: tell the client, and compute nothing more until it says ``Resume``."""
        self._check_devices(error)
        state = self._state
        state.failures += 1
        state.failure = state.failures
        state.update_stop()
        failure = _describe(state, instruction, error)
        where = f" at {failure.site}" if failure.site else ""
        state.failure_reason = f"{failure.operation} failed{where}: {failure.message}"
        state.mark_absent(results_of(instruction), state.failure_reason)
        if state.upload is not None:
            state.mark_absent((state.upload.id,), state.failure_reason)
            state.upload = None
        state.last_failure = failure
        state.replies.add(failure)
        state.on_failure(failure)

    def pass_over(self, instruction: Any) -> None:
        """Do with an instruction what a stopped session does."""
        if instruction.__class__ in _NOTES:
            self._follow(instruction)
        else:
            self.skip(instruction)

    def skip(self, instruction: Any) -> None:
        """Leave an instruction undone: its results become absent, and its request is answered with the failure."""
        state = self._state
        if instruction.__class__ is messages.Call and instruction.freed:
            self._free_before(state, instruction)
        if not state.failure:
            self._drop(instruction)
            return
        state.mark_absent(results_of(instruction), state.failure_reason)
        request = getattr(instruction, "request", None)
        if request is not None and state.last_failure is not None:
            state.replies.add(msgspec.structs.replace(state.last_failure, request=request))

    def _drop(self, instruction: Any) -> None:
        """Leave undone what an interrupt drops; who asked for something is told."""
        state, results = self._state, results_of(instruction)
        request = getattr(instruction, "request", None)
        if not results and request is None:
            return
        operation = name_of(state, instruction)
        site = describe_site(state, instruction)
        state.mark_absent(results, f"an interrupt dropped {operation}{f' at {site}' if site else ''} before it ran")
        if request is not None:
            message = f"{operation}: an interrupt dropped this request before it was answered"
            code = NotComputedError.__name__
            state.replies.add(messages.Failure(messages.DROPPED, request, code, message, operation, "", "", ""))

    def _follow(self, instruction: Any) -> None:
        """Execute a note. The client's tensors have changed already; the server's follow where they were computed."""
        values = self._state.values
        if isinstance(instruction, messages.SetGrad) and not isinstance(values.get(instruction.grad or 0), Value):
            instruction = messages.SetGrad(instruction.id, None)
        with contextlib.suppress(TelegradError):
            self._handlers[instruction.__class__](instruction)


def begin_interrupt(state: SessionState, number: int) -> None:
    """Execute nothing up to the client's interrupt of this number, unless the stream has passed it already."""
    if number <= max(state.passed_interrupt, state.interrupt):
        return
    state.interrupt = number
    state.update_stop()
    if state.upload is not None:
        state.mark_absent((state.upload.id,), "an interrupt dropped the upload before it was complete")
        state.upload = None


def end_failure(state: SessionState, resume: messages.Resume) -> None:
    """Handle the instruction: the client has seen a failure of one of its threads."""
    state.resume(resume.failure)


def end_interrupt(state: SessionState, interrupt: messages.Interrupt) -> None:
    """Handle the instruction: execute again what comes from here on."""
    state.passed_interrupt = max(state.passed_interrupt, interrupt.number)
    if state.interrupt <= interrupt.number:
        state.interrupt = 0
        state.update_stop()


def _describe(state: SessionState, instruction: Any, error: Exception) -> messages.Failure:
    """Return the message that tells the client which operation failed, on which operands, and on which of its lines."""
    op, operation = _operation_of(instruction), name_of(state, instruction)
    known = as_telegrad_error(error, operation)
    return messages.Failure(
        state.failure, getattr(instruction, "request", None), known.code, shortened(known.message), operation,
        describe_operands(state, op, instruction.args) if op else "",
        describe_site(state, instruction), shortened(traceback_for(error)), state.thread,
    )  # fmt: skip


def _operation_of(instruction: Any) -> Op | None:
    if isinstance(instruction, messages.Call) and 0 <= instruction.op < len(BY_INDEX):
        return BY_INDEX[instruction.op].op
    return None


def name_of(state: SessionState, instruction: Any) -> str:
    """Return what users call an instruction: the operation of a call, and its kind for others."""
    if isinstance(instruction, messages.CallExtension):
        return state.extensions.name_of(instruction.function)
    if instruction.__class__ in STRETCHES:
        instruction = instruction.stretch.begins
    op = _operation_of(instruction)
    if op is not None:
        return op.public
    return _WORDS.get(type(instruction)) or type(instruction).__name__.lower()


_WORDS: Final[dict[type, str]] = {
    messages.LoadModule: "load module", messages.DefineKernel: "define kernel",
    messages.SetKernelAttribute: "set kernel attribute", messages.LaunchKernel: "launch kernel",
    messages.BeginCapture: "capture_begin", messages.EndCapture: "capture_end", messages.ReplayGraph: "replay",
    DefineProgram: "define program", RunProgram: "run program", EndOfRun: "run program", RestOfRun: "run program",
    EndOfVerification: "run program",
}  # fmt: skip
