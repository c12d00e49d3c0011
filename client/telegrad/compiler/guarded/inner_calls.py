"""Calls of a layer within a compiled function, whose instructions are queued without its Python once they are known."""

from __future__ import annotations

from typing import Any, Final

from telegrad._session.parts.repeating import Stretch
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import DEFAULT, thread
from telegrad.nn.modules.module import Module
from telegrad_protocol.messages import Call

from .arguments import Arguments
from .notes import Notes
from .plain_run import ImpureError, PlainRun
from .record import InnerRecord
from .situation import Situation
from .watcher import watched

_MOST_RECORDS: Final = 8
_MOST_FAILED: Final = 64
_TRIALS: Final = 16
"""So many calls are looked at; calls that are left out pay for more."""
_PRICE: Final = 16
_FEWEST_INSTRUCTIONS: Final = 8


class InnerCalls:
    """What is known of the calls of one layer."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._records: list[InnerRecord] = []
        self._run: PlainRun | None = None
        self._is_due = False
        self._looked_at = 0
        self.replayed = 0
        self.reason = ""
        """Why the last call that was watched cannot be left out."""

    def made(self, layer: Module, args: Any, kwargs: Any) -> Any:
        """Return what calling the layer returns, without its Python where a record stands for the call."""
        is_spent = self._looked_at >= _TRIALS + self.replayed // _PRICE
        if is_spent and not self._records:
            return layer(*args, **kwargs)
        situation, given = Situation.of(self._session), Arguments(args, kwargs)
        for record in self._records:
            if record.matches(situation, given):
                found = record.found()
                if found is not None:
                    self.replayed += 1
                    return record.replay(given.tensors, found)
                if record.failed >= _MOST_FAILED:
                    self._records.remove(record)
                    break
        if is_spent:
            return layer(*args, **kwargs)
        self._looked_at += 1
        return self._looked_at_call(layer, args, kwargs, situation, given)

    def _looked_at_call(self, layer: Module, args: Any, kwargs: Any, situation: Situation, given: Arguments) -> Any:
        """Make a call and look at what it queues; two that are alike are followed by one that is watched."""
        notes = Notes() if self._is_due else None

        def make(first: int) -> Any:
            return layer(*args, **kwargs) if notes is None else watched(layer, args, kwargs, given, notes, first)

        result, stretch = self._session.stretch_of(make)
        try:
            if stretch is None or len(stretch.entries) < _FEWEST_INSTRUCTIONS:
                raise ImpureError("it queues next to nothing, or waits")
            run = _run_of(stretch)
            if notes is None:
                self._is_due = self._run is not None and self._run.inputs_of(stretch.entries, stretch.first) is not None
                self._run = run
            else:
                self._is_due = False
                self._records.insert(0, self._record(situation, given, notes, stretch, result))
                del self._records[_MOST_RECORDS:]
        except (ImpureError, TypeError) as error:
            self.reason = str(error)
        return result

    def _record(
        self, situation: Situation, given: Arguments, notes: Notes, stretch: Stretch, result: Any
    ) -> InnerRecord:  # fmt: skip
        if notes.reason or notes.gradients or notes.effects:
            raise ImpureError(notes.reason or "it has to do with gradients, or has effects")
        run = self._run
        inputs = None if run is None else run.inputs_of(stretch.entries, stretch.first)
        if run is None or inputs is None:
            raise ImpureError("the call before was not like it")
        return InnerRecord(situation, given, notes, run, inputs, stretch.first, result)


def _run_of(stretch: Stretch) -> PlainRun:
    """Return what a call has queued, without what was freed with its first instruction because it had died before."""
    modes, (first, *rest) = thread.modes, stretch.entries
    if any([(entry[0] if entry.__class__ is tuple else DEFAULT) is not modes for entry in stretch.entries]):
        raise ImpureError("it changes modes within")
    one = first[1] if first.__class__ is tuple else first
    if one.__class__ is not Call:
        raise ImpureError(f"it begins with {type(one).__name__}")
    freed = [id for id in one.freed if id not in stretch.freed]
    call = Call(one.op, one.site, one.outs, one.args, freed)
    unfreed = [id for id in stretch.unfreed if id not in stretch.freed]
    return PlainRun([(first[0], call) if first.__class__ is tuple else call, *rest], stretch.first, unfreed)
