"""The calls of one compiled function: which of them are watched, and which are left out."""

from __future__ import annotations

from typing import Any, Final

from telegrad._session.parts.table import Program, run_in
from telegrad._session.session import ClientSession

from . import purity
from .arguments import Arguments
from .notes import Notes
from .plain_run import ImpureError, PlainRun
from .record import Record
from .situation import Situation, is_ordinary
from .watcher import Watcher

Part = tuple[list[Any], int, list[Any] | None]
"""What a part of a call has queued, its first number, and what is sent for it."""
_MOST_RECORDS: Final = 8
_MOST_RUNS: Final = 8
_MOST_FAILED: Final = 64
"""A record whose conditions fail so often in a row is dropped."""
_BUDGET: Final = 8
"""So many calls are watched; calls that are left out pay for more."""
_PRICE: Final = 64
_FEWEST_RUNS: Final = 2
"""A call is watched once so many were runs of the same program."""
_FEWEST_INSTRUCTIONS: Final = 4


class Calls:
    """What is known of a function's calls."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._runs: dict[Program, tuple[PlainRun, int]] = {}
        self._watched = 0
        self._is_due = False
        self.reason = ""
        """Why the last call that was watched cannot be left out."""
        self.replayed = 0

    def __reduce__(self) -> Any:
        return Calls, ()  # a copy of a compiled module has calls of its own

    @property
    def is_hopeful(self) -> bool:
        """Whether calls are looked at."""
        return (bool(self._records) or self._is_due) and is_ordinary()

    def find(self, situation: Situation, given: Arguments) -> Record | None:
        """Return what stands for a call with these arguments; None where it has to be made."""
        for record in self._records:
            if record.matches(situation, given):
                if record.holds():
                    self.replayed += 1
                    return record
                if record.failed >= _MOST_FAILED:
                    self._records.remove(record)
                    break
        return None

    def watches(self) -> bool:
        """Tell whether the next call is to be watched, since it is like some before."""
        if not self._is_due or self._watched >= _BUDGET + self.replayed // _PRICE:
            return False
        self._is_due = False
        self._watched += 1
        return True

    def note(self, session: ClientSession, parts: list[Part]) -> None:
        """Note a call that was made as ever: after a few that are alike one is watched."""
        if len(parts) != 1 or self._watched >= _BUDGET + self.replayed // _PRICE:
            return
        queued, first, sent = parts[0]
        program = None if sent is None else run_in(session.programs, sent)
        if program is None or len(queued) < _FEWEST_INSTRUCTIONS:
            return
        try:
            run = PlainRun(program, queued, first)
        except ImpureError as error:
            self.reason = str(error)
            return
        count = self._runs.get(program, (run, 0))[1] + 1
        if len(self._runs) >= _MOST_RUNS and program not in self._runs:
            self._runs.clear()
        self._runs[program] = run, count % _FEWEST_RUNS
        self._is_due = self._is_due or count >= _FEWEST_RUNS

    def learn(
        self, situation: Situation, given: Arguments, notes: Notes, parts: list[Part], result: Any
    ) -> None:  # fmt: skip
        """Keep a record of a call that was watched, if it can be left out."""
        try:
            self._keep(self._record(situation, given, notes, parts, result))
        except (ImpureError, TypeError) as error:
            self.reason = str(error)

    def _record(
        self, situation: Situation, given: Arguments, notes: Notes, parts: list[Part], result: Any
    ) -> Record:  # fmt: skip
        if notes.reason:
            raise ImpureError(notes.reason)
        if len(parts) != 1:
            raise ImpureError("it has graph breaks")
        queued, first, _ = parts[0]
        for run, _ in self._runs.values():
            inputs = run.inputs_of(queued, first)
            if inputs is not None:
                return Record(situation, given, notes, run, inputs, first, result)
        raise ImpureError("no earlier call was like it")

    def _keep(self, record: Record) -> None:
        self._records.insert(0, record)
        del self._records[_MOST_RECORDS:]


def watched(function: Any, args: Any, kwargs: Any, given: Arguments, notes: Notes, first: int) -> Any:
    """Call a function, and note what the call depends on."""
    given.note_histories()
    notes.given = {id(container): container for container in given.containers}
    notes.arguments = frozenset([tensor._id for tensor in given.tensors])
    if any([tensor.__class__ not in purity.TENSORS for tensor in given.tensors]):
        notes.refuse("an argument of a class of its own")
    result = Watcher(_nothing, notes, first).call(function, *args, **kwargs)
    notes.forget()
    return result


def _nothing() -> None:
    """Stands for the function that has called the one that is watched."""
