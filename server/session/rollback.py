"""Deferred checks: what a device finds wrong after the host has gone on puts the session back to where it should stop.

While checks are outstanding, the instructions that are executed are remembered. What only makes new tensors is undone
by marking them absent; what changes anything else, or is answered from anything but the device's own stream, is held
back until the checks before it have been seen to be good. Knows the engine's checks and no device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.engine.checks import Fault
from server.engine.operators import BY_INDEX, OPERATORS
from telegrad_protocol import messages
from telegrad_protocol.programs.messages import DefineProgram, RunProgram

from .failures import results_of
from .programs.ending import STRETCHES, EndOfRun, EndOfVerification, RestOfRun
from .state import Absent, SessionState
from .uploads import Chunk

_REPEATABLE: frozenset[type] = frozenset(
    (messages.Free, messages.Site, messages.Upload, Chunk, messages.Mode, messages.Read, messages.Resume,
     messages.Interrupt, messages.SetRequiresGrad, messages.RetainGrad, messages.RecordEvent, messages.WaitEvent,
     messages.RecordStream, DefineProgram, RunProgram, EndOfRun, RestOfRun,
     EndOfVerification, *STRETCHES)
)  # fmt: skip
"""May be executed while a check is outstanding: these are executed after failures too, or can be undone."""
_MUTATING = frozenset(operator.op.index for operator in BY_INDEX if operator.op.mutates)
_MAY_MUTATE = {
    operator.op.index: [parameter.name for parameter in operator.op.params].index(name)
    for operator, name in ((OPERATORS["batch_norm"], "training"), (OPERATORS["embedding"], "max_norm"))
}
"""Composites that change what they are given where this argument, by its place, is neither None nor False."""
_LOOKS = 16
"""How often to look before other sessions get their turn: a device that is nearly there is waited for."""


class Rollback:
    """One session's instructions that may yet have to be undone.

    ``fail`` fails the session at an instruction, ``skip`` treats an instruction as one that came after the failure.
    """

    def __init__(
        self, state: SessionState, fail: Callable[[Any, Exception], None], skip: Callable[[Any], None]
    ) -> None:
        self._state = state
        self._fail = fail
        self._skip = skip
        self._checks = state.context.checks
        self._checks.instruction = lambda: state.instruction
        self.outstanding = self._checks.outstanding
        self.done: list[Any] = []
        """Instructions that were executed since the first outstanding check was made."""
        self.holds = False
        """Whether the next instruction is held back until a device has come to the last check."""

    def must_wait(self, instruction: Any) -> bool:
        """Return whether ``instruction`` is held back until the outstanding checks are seen to be good."""
        if self._state.is_stopped or not (self._checks.are_too_many or _is_final(instruction)):
            return False
        for _ in range(_LOOKS):
            self.look()
            if not self.outstanding:
                return False
        self.holds = True
        return True

    def look(self) -> None:
        """Roll back if devices have found something wrong, where they have come as far as the last check."""
        self._finish_checks(wait=False)

    def explains(self) -> bool:
        """Wait for the device, and return whether an error came of something that had gone wrong before it."""
        before = self._state.failures
        self._finish_checks(wait=True)
        return self._state.failures > before

    def verify(self) -> None:
        """Wait for the device, and raise what it found wrong with work that no instruction has brought."""
        fault = self._checks.poll(wait=True) if self.outstanding else None
        if fault is not None:
            if fault.instruction is None:
                raise fault.error
            self._undo(fault)

    def close(self) -> None:
        """Forget everything; devices have done what they were given."""
        self.done.clear()
        self.outstanding.clear()
        self._checks.records.clear()
        self.holds = False

    def _finish_checks(self, wait: bool) -> None:
        if self.outstanding:
            fault = self._checks.poll(wait)
            if fault is not None:
                self._undo(fault)

    def _undo(self, fault: Fault) -> None:
        """Fail as if nothing had been executed since; replies to what came before still arrive."""
        state, done = self._state, self.done
        first = next((at for at, instruction in enumerate(done) if instruction is fault.instruction), len(done))
        later = done[first + 1 :]
        done.clear()
        undone = (fault.instruction, *later)
        results = {id: _makes_results(instruction) for instruction in undone for id in results_of(instruction)}
        present = state.values.keys() & results
        self._fail(fault.instruction, fault.error)
        state.replies.withdraw({getattr(instruction, "request", None) for instruction in later})
        for instruction in later:
            self._skip(instruction)
        self._forget(results, present)

    def _forget(self, results: dict[int, bool], present: set[int]) -> None:
        """Mark new results absent; what was freed stays so, and what would only have been changed stays as it is."""
        values, reason = self._state.values, self._state.failure_reason
        for id, is_new in results.items():
            if id not in present:
                values.pop(id, None)
            elif is_new:
                values[id] = Absent(reason)


def _makes_results(instruction: Any) -> bool:
    return not (isinstance(instruction, messages.Call) and instruction.op in _MUTATING)


def _is_final(instruction: Any) -> bool:
    """Return whether what an instruction does, or tells the client, cannot be undone."""
    kind = instruction.__class__
    if kind is messages.Call:
        return instruction.op in _MUTATING or _changes_by_argument(instruction)
    if kind is messages.Mode:
        return bool(instruction.name == "thread")  # what is undone is one thread's
    if kind is messages.Query:
        return bool(instruction.what != "synchronize")
    return kind not in _REPEATABLE


def _changes_by_argument(call: messages.Call) -> bool:
    place = _MAY_MUTATE.get(call.op)
    if place is None or place >= len(call.args):  # too few arguments are refused where the call is executed
        return False
    return call.args[place] is not None and call.args[place] is not False
