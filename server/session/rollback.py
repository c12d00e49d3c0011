"""What a device finds wrong after the host has gone on: the session is put back to where it should have stopped.

While checks are outstanding, what is executed is remembered. What only makes new tensors is undone by calling them
absent; what changes anything else, or is answered from anything but the device's own stream, is not executed until the
checks before it have been seen to be good. Knows sessions and the engine's checks; knows no device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from server.engine.operators import BY_INDEX
from telegrad_protocol import messages

from . import failures
from .failures import Absent
from .transfers import Chunk

if TYPE_CHECKING:
    from server.engine.checks import Fault

    from .session import Session

_REPEATABLE: frozenset[type] = frozenset(
    (messages.Free, messages.Site, messages.Upload, Chunk, messages.Mode, messages.Read, messages.Resume,
     messages.SetRequiresGrad, messages.RetainGrad, messages.RecordEvent, messages.WaitEvent, messages.RecordStream)
)  # fmt: skip
"""What may be executed while a check before it is outstanding: it is executed after failures too, or can be undone."""
_MUTATING = frozenset(operator.op.index for operator in BY_INDEX if operator.op.mutates)
_LOOKS = 16
"""How often to look before others get their turn: a device that is not far behind is waited for."""


class Hindsight:
    """One session's instructions that may yet have to be undone."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._checks = session.context.checks
        self._checks.instruction = lambda: session.instruction
        self.outstanding = self._checks.outstanding
        self.done: list[Any] = []
        """Instructions since the first outstanding check was made."""
        self.holds = False
        """Whether the next instruction waits for a device."""

    def must_wait(self, instruction: Any) -> bool:
        """Whether ``instruction`` cannot be executed before the outstanding checks are seen to be good."""
        if self._session.failure or not (self._checks.are_many or _is_final(instruction)):
            return False
        for _ in range(_LOOKS):
            self.look()
            if not self.outstanding:
                return False
        self.holds = True
        return True

    def still_holds(self) -> bool:
        """Whether the device has not come far enough yet."""
        self.look()
        self.holds = bool(self.outstanding)
        return self.holds

    def look(self) -> None:
        """See what devices have found, if they have come as far as the last check."""
        self._settle(wait=False)

    def explains(self) -> bool:
        """Whether an error came of something that had gone wrong before it; waits for the device."""
        before = self._session.failures
        self._settle(wait=True)
        return self._session.failures > before

    def verify(self) -> None:
        """Raise what a request from beside the stream, which is no instruction, has made a device find."""
        fault = self._checks.settle(wait=True) if self.outstanding else None
        if fault is not None:
            if fault.instruction is None:
                raise fault.error
            self._undo(fault)

    def close(self) -> None:
        """Forget everything; devices have done what they were given."""
        self.done.clear()
        self.outstanding.clear()
        self._checks.records.clear()

    def covering(self, handler: Callable[[Any], None]) -> Callable[[Any], None]:
        """``handler``, for instructions whose indices were all checked by others before."""

        def run(instruction: Any) -> None:
            self._checks.covered = True
            try:
                handler(instruction)
            finally:
                self._checks.covered = False

        return run

    def _settle(self, wait: bool) -> None:
        if self.outstanding:
            fault = self._checks.settle(wait)
            if fault is not None:
                self._undo(fault)

    def _undo(self, fault: Fault) -> None:
        """Fail as if nothing had been executed since; what came before and is on its way still arrives."""
        session, done = self._session, self.done
        first = next((at for at, each in enumerate(done) if each is fault.instruction), len(done))
        later = done[first + 1 :]
        done.clear()
        held = {id: _is_made(each) for each in (fault.instruction, *later) for id in failures.results_of(each)}
        known = session.values.keys() & held
        session.fail(fault.instruction, fault.error)
        requests = {getattr(each, "request", None) for each in later}
        session.answers.withdraw(requests)
        for each in later:
            session.skip(each)
        self._forget(held, known)

    def _forget(self, held: dict[int, bool], known: set[int]) -> None:
        """Results are absent now; what was freed stays so, and what was only changed, which it was not, is there."""
        values, reason = self._session.values, self._session.failure_reason
        for id, is_made in held.items():
            if id not in known:
                values.pop(id, None)
            elif is_made:
                values[id] = Absent(reason)


def _is_made(instruction: Any) -> bool:
    return not (isinstance(instruction, messages.Call) and instruction.op in _MUTATING)


def _is_final(instruction: Any) -> bool:
    """Whether what an instruction does, or tells the client, cannot be undone."""
    kind = instruction.__class__
    if kind is messages.Call:
        return instruction.op in _MUTATING
    if kind is messages.Query:
        return bool(instruction.what != "synchronize")
    return kind not in _REPEATABLE
