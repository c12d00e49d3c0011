"""What a failed instruction does to its session: fail-stop, and the messages that tell the client.

After a failure only frees, sites, modes and the notes that the client makes on its tensors are executed, until the
client has seen the failure and sends ``Resume``. This goes for the instructions of the client's thread that the failed
one came from; those of other threads are executed, and fail if they use what was not computed. Results that were not
computed are marked as absent, with the reason.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from server.engine.value import Value
from telegrad_protocol import messages
from telegrad_protocol.errors import InternalError, OutOfMemoryError, TelegradError

from .arguments import BY_INDEX, describe_operands
from .call_stack import describe_site
from .state import SessionState

ALWAYS_EXECUTED: frozenset[type] = frozenset(
    (messages.Free, messages.Site, messages.Mode, messages.Resume, messages.Detach, messages.Attach)
)
_NOTES: frozenset[type] = frozenset(
    (messages.SetGrad, messages.DropGrads, messages.SetRequiresGrad, messages.RetainGrad)
)


def as_telegrad_error(error: Exception, operation: str) -> TelegradError:
    """Return ``error`` as one of our types; one that nobody foresaw is a defect of the server and says so."""
    if isinstance(error, TelegradError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"{operation}: out of memory on the server's host: {error}")
    return InternalError(f"{operation}: {type(error).__name__}: {error}")


def results_of(instruction: Any) -> Collection[int]:
    """Return the ids that an instruction defines when it succeeds."""
    if isinstance(instruction, messages.Upload):
        return (instruction.id,)
    if isinstance(instruction, messages.Backward):
        return [grad for _, grad in instruction.leaves]
    outs = getattr(instruction, "outs", ())
    return [id for id in outs if id is not None]


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

    def fail(self, instruction: Any, error: Exception) -> None:
        """Stop: tell the client, and compute nothing more until it says ``Resume``."""
        self._check_devices(error)
        state = self._state
        state.failures += 1
        state.failure = state.failures
        failure = _describe(state, instruction, error)
        where = f" at {failure.site}" if failure.site else ""
        state.failure_reason = f"{failure.operation} failed{where}: {failure.message}"
        state.mark_absent(results_of(instruction))
        if state.upload is not None:
            state.mark_absent((state.upload.id,))
            state.upload = None
        state.last_failure = failure
        state.replies.add(failure)

    def pass_over(self, instruction: Any) -> None:
        """Do with an instruction what a failed session does."""
        if instruction.__class__ in _NOTES:
            self._follow(instruction)
        else:
            self.skip(instruction)

    def skip(self, instruction: Any) -> None:
        """Leave an instruction undone: its results become absent, and its request is answered with the failure."""
        state = self._state
        if instruction.__class__ is messages.Call and instruction.freed:
            self._free_before(state, instruction)
        state.mark_absent(results_of(instruction))
        request = getattr(instruction, "request", None)
        if request is not None and state.last_failure is not None:
            state.replies.add(msgspec.structs.replace(state.last_failure, request=request))

    def _follow(self, instruction: Any) -> None:
        """Execute a note. The client's tensors have changed already; the server's follow where they were computed."""
        values = self._state.values
        if isinstance(instruction, messages.SetGrad) and not isinstance(values.get(instruction.grad or 0), Value):
            instruction = messages.SetGrad(instruction.id, None)
        with contextlib.suppress(TelegradError):
            self._handlers[instruction.__class__](instruction)


def _describe(state: SessionState, instruction: Any, error: Exception) -> messages.Failure:
    """Return the message that tells the client which operation failed, on which operands, and on which of its lines."""
    op = BY_INDEX[instruction.op].op if _names_operation(instruction) else None
    operation = op.public if op else type(instruction).__name__.lower()
    known = as_telegrad_error(error, operation)
    return messages.Failure(
        state.failure, getattr(instruction, "request", None), known.code, known.message, operation,
        describe_operands(state, op, instruction.args) if op else "",
        describe_site(state, instruction), "".join(traceback.format_exception(error)), state.thread,
    )  # fmt: skip


def _names_operation(instruction: Any) -> bool:
    return isinstance(instruction, messages.Call) and 0 <= instruction.op < len(BY_INDEX)
