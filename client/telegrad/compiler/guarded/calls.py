"""The calls of one compiled function: which of them are watched, and which are left out."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakSet

from telegrad._session.parts.table import Program, modes_of, run_in
from telegrad._session.session import ClientSession
from telegrad._tensor.tensor import Tensor

from .arguments import Arguments
from .driving import Driver
from .gradients import Found
from .notes import Notes
from .plain_run import ImpureError, PlainRun
from .record import OuterRecord
from .situation import Situation, is_ordinary

Part = tuple[list[Any], int, list[Any] | None]
"""What a part of a call has queued, its first number, and what is sent for it."""
Standing = tuple[OuterRecord, list[Tensor], Found]
"""What stands for a call, with the tensors among its arguments and the gradients that it takes."""
_MOST_RECORDS: Final = 8
_MOST_RUNS: Final = 16
_MOST_FAILED: Final = 64
"""A record whose conditions fail so often in a row is dropped."""
_BUDGET: Final = 8
"""So many calls are watched; calls that are left out pay for more."""
_LOOKS: Final = 32
"""So many calls that could be left out are looked at: those of several sizes come in turn."""
_PRICE: Final = 64
_REST: Final = 16
_FEWEST_RUNS: Final = 2
"""A call is watched once so many were runs of the same program."""
_FEWEST_INSTRUCTIONS: Final = 4
_all: Final[WeakSet[Any]] = WeakSet()
"""The calls of all functions, as long as these live."""


class Calls:
    """What is known of a function's calls."""

    def __init__(self) -> None:
        self._records: list[OuterRecord] = []
        self._runs: dict[tuple[Program, bytes], PlainRun] = {}
        """The last run by program and constants, which differ where sizes do."""
        self._counts: dict[Program, int] = {}
        """How many runs of a program came since a call was due to be watched."""
        self._watched = 0
        self._is_due = False
        self._driver: Driver | None = None
        self._looked_at = 0
        self._impure = 0
        """How many calls could not be left out as a whole."""
        self._steps = False
        """Whether calls change gradients."""
        self._rest = 0
        """So many calls are not looked at, as one was watched in vain: layers within them are."""
        self.reason = ""
        """Why the last call that was watched cannot be left out."""
        self.replayed = 0
        _all.add(self)

    def __reduce__(self) -> Any:
        return Calls, ()  # a copy of a compiled module has calls of its own

    @staticmethod
    def forget_all() -> None:
        """Let go of what is known of all functions' calls, and of the weights that they have read."""
        for calls in tuple(_all):
            calls._forget()

    def _forget(self) -> None:
        self._records, self._driver = [], None
        self._runs.clear()
        self._counts.clear()
        self._watched = self._looked_at = self._impure = self._rest = 0
        self._is_due = self._steps = False

    @property
    def is_new(self) -> bool:
        """Whether no call was looked at yet."""
        return not self._looked_at

    @property
    def is_hopeful(self) -> bool:
        """Whether the next call may be left out, or watched."""
        return (bool(self._records) or self._is_due) and is_ordinary()

    def find(self, situation: Situation, args: Any, kwargs: Any) -> Standing | None:
        """Return what stands for a call with these arguments; None where it has to be made."""
        given: Arguments | None = None
        for record in self._records:
            tensors = record.tensors_of(situation, args, kwargs)
            if tensors is None:
                given = given or Arguments(args, kwargs)
                if not record.matches(situation, given):
                    continue
                tensors = given.tensors
            found = record.found()
            if found is not None:
                self.replayed += 1
                return record, tensors, found
            if record.failed >= _MOST_FAILED:  # another thread may have dropped it already
                self._records = [one for one in self._records if one is not record]
                break
        return None

    @property
    def inner(self) -> int:
        """How many calls of layers within it were left out."""
        return 0 if self._driver is None else self._driver.replayed

    def made(self, session: ClientSession, function: Any, args: Any, kwargs: Any) -> Any:
        """Call the function within its region, through a driver if it has effects: layers are left out then."""
        has_effects = self._impure >= _FEWEST_RUNS and not self._records
        if not (has_effects or (self._steps and self._watched)):
            return function(*args, **kwargs)
        if self._driver is None or not self._driver.serves(session):
            self._driver = Driver(session)
        return self._driver.run(function, args, kwargs)

    def watches(self) -> bool:
        """Tell whether the next call is to be watched, since it is like some before."""
        if not self._is_due or self._watched >= _BUDGET + self.replayed // _PRICE:
            return False
        self._is_due = False
        self._watched += 1
        return True

    def note(self, session: ClientSession, parts: list[Part]) -> None:
        """Note a call that was made as ever: after a few that are alike one is watched."""
        if self._rest:
            self._rest -= 1
            return
        if self._looked_at >= (_BUDGET if self._impure else _LOOKS) + self.replayed // _PRICE:
            return
        self._looked_at += 1
        if len(parts) != 1:
            self._impure += 1
            return
        queued, first, sent = parts[0]
        program = None if sent is None else run_in(session.programs, sent)
        if program is None or len(queued) < _FEWEST_INSTRUCTIONS:
            return
        try:
            run = PlainRun(queued, first, may_step=True)
        except ImpureError as error:
            self.reason = str(error)
            self._impure += 1
            return
        self._steps = self._steps or run.steps
        if run.inputs != len(program.inputs):  # some of the program's are the same tensor in this run
            return
        key = program, run.text
        count = self._counts.get(program, 0) + 1
        if len(self._runs) >= _MOST_RUNS and key not in self._runs:
            self._runs.clear()
            self._counts.clear()
        self._runs[key], self._counts[program] = run, count % _FEWEST_RUNS
        self._is_due = self._is_due or count >= _FEWEST_RUNS

    def learn(
        self, situation: Situation, given: Arguments, notes: Notes, parts: list[Part], result: Any
    ) -> None:  # fmt: skip
        """Keep a record of a call that was watched, if it can be left out."""
        try:
            self._keep(self._record(situation, given, notes, parts, result))
        except (ImpureError, TypeError) as error:
            self.reason = str(error)
            self._impure += bool(notes.reason)
            self._rest = _REST if self._steps else 0

    def _record(
        self, situation: Situation, given: Arguments, notes: Notes, parts: list[Part], result: Any
    ) -> OuterRecord:  # fmt: skip
        if notes.reason:
            raise ImpureError(notes.reason)
        if len(parts) != 1:
            raise ImpureError("it has graph breaks")
        queued, first, _ = parts[0]
        modes = modes_of(queued)
        if modes is None:
            raise ImpureError("instructions of other threads are among its own")
        for (program, _), run in self._runs.items():
            inputs = run.inputs_of(queued, first, notes.gradients.dropped)
            if inputs is not None:
                return OuterRecord(situation, given, notes, run, inputs, first, result, program, modes)
        raise ImpureError("no earlier call was like it")

    def _keep(self, record: OuterRecord) -> None:
        self._records.insert(0, record)
        del self._records[_MOST_RECORDS:]
