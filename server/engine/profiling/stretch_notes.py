"""What a profile says of calls that are executed as one: the events of their operations, known beforehand.

They are the events of an execution call by call, which is the one that is recorded. Of later ones times, results and
launches differ. Where the steps are executed one by one, each operation has the time of its own; where all of them are
one launch, each has an equal share of what that took the host.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter, sub
from typing import Any, Final, NamedTuple, Protocol

from server.engine.autograd.graph import next_sequence
from telegrad_protocol.tracing.recording import OPERATION, EventRow

from .recorder import COLUMNS, FULL, Recorder

_COLUMN: Final = {name: place for place, name in enumerate(EventRow._fields)}


class Stamps(Protocol):
    """When each step began and ended, and how many launches there were before the first and after each."""

    @property
    def starts(self) -> Sequence[int]: ...

    @property
    def ends(self) -> Sequence[int]: ...

    @property
    def counts(self) -> Sequence[int]: ...


class Shares(NamedTuple):
    """Stamps of steps that were launched as one."""

    starts: Sequence[int]
    ends: Sequence[int]
    counts: Sequence[int]

    @staticmethod
    def of(steps: int, begin: int, end: int, first: int, captured: Sequence[int]) -> Shares:
        """Return equal shares of the time; ``captured`` counts launches before the first step and after each."""
        share = (end - begin) // steps
        bounds = [*range(begin, begin + share * steps, share), end] if share else [begin] * steps + [end]
        counts = list(map((first - captured[0]).__add__, captured)) if captured else [first] * (steps + 1)
        return Shares(bounds[:-1], bounds[1:], counts)


class Watch:
    """Looks on while calls are executed one by one: ``times`` has when each step was, in order.

    ``numbered`` has the step and the position of each number that is another one each time.
    """

    def __init__(self, recorder: Recorder) -> None:
        recorder.spill()  # so that there is room for what is to be noted
        self._recorder, self._pending, self._first = recorder, recorder.pending, len(recorder.pending)
        self.times: list[int] = []
        self.numbered: list[tuple[int, int]] = []
        self.with_memory = recorder.with_memory

    @property
    def is_whole(self) -> bool:
        """Whether all that was noted of the calls is still known."""
        return self._recorder.pending is self._pending

    def notes(self, ids: Sequence[int]) -> StretchNotes:
        """Return what was noted of the calls, whose results have these ids by slot."""
        pending = self._pending
        places = {id: place for place, id in enumerate(ids)}
        events = [pending[at : at + COLUMNS] for at in range(self._first, len(pending), COLUMNS)]
        rows = [Row.of(EventRow(*event), self.times, places) for event in events if event[0].kind == OPERATION]
        return StretchNotes(len(self.times), rows, self.numbered)


class Row(NamedTuple):
    """An operation: the steps that it consists of, and which id its first result has."""

    description: Any
    site: int
    result: int | None
    first: int
    last: int

    @staticmethod
    def of(event: EventRow, times: Sequence[int], places: dict[int, int]) -> Row:
        first, last = bisect_left(times, event.begin), bisect_right(times, event.end) - 1
        return Row(event.descriptor, event.site, places.get(event.out), first, last)

    @property
    def is_empty(self) -> bool:
        """Whether it has come to nothing that is executed."""
        return self.last < self.first


class StretchNotes:
    """The events of one stretch. Everything is made for all of them at once, by functions of Python's own.

    Numbers that are others each time are told as they are then: ``numbered`` is as a ``Watch`` has it.
    """

    def __init__(self, steps: int, rows: Sequence[Row], numbered: Sequence[tuple[int, int]] = ()) -> None:
        self.steps = steps
        self._count = len(rows)
        self._fields: list[Any] = [0] * (COLUMNS * len(rows))
        self._fields[_COLUMN["descriptor"] :: COLUMNS] = [row.description for row in rows]
        self._fields[_COLUMN["site"] :: COLUMNS] = [row.site for row in rows]
        self._results = _picker([-1 if row.result is None else row.result for row in rows])
        after = [row.first if row.is_empty else row.last + 1 for row in rows]
        # Of what is executed in no time both are places among the ends of steps, after that of nothing.
        self._begins = _picker([steps + row.first if row.is_empty else row.first for row in rows])
        self._ends = _picker([steps + place for place in after])
        self._firsts, self._afters = _picker([row.first for row in rows]), _picker(after)
        row_of = {row.first: number for number, row in enumerate(rows) if row.first == row.last}
        self._numbered: dict[int, list[tuple[int, int]]] = {}
        """By the place of a row's description, positions among operands, and which of the numbers is there."""
        for place, (step, position) in enumerate(numbered):
            if step in row_of:
                self._numbered.setdefault(COLUMNS * row_of[step] + _COLUMN["descriptor"], []).append((position, place))

    def note(
        self, recorder: Recorder, ids: Sequence[int], stamps: Stamps, numbers: Sequence[float] = ()
    ) -> None:  # fmt: skip
        """Note an execution with these numbers, whose results have these ids by slot."""
        fields, counts = self._fields.copy(), stamps.counts
        for place, taken in self._numbered.items():
            fields[place] = fields[place].with_numbers([(position, numbers[one]) for position, one in taken])
        starts = stamps.starts
        times = [*starts, starts[0], *stamps.ends]
        firsts = self._firsts(counts)
        fields[_COLUMN["begin"] :: COLUMNS] = self._begins(times)
        fields[_COLUMN["end"] :: COLUMNS] = self._ends(times)
        fields[_COLUMN["out"] :: COLUMNS] = self._results([*ids, 0])
        fields[_COLUMN["first"] :: COLUMNS] = firsts
        fields[_COLUMN["launches"] :: COLUMNS] = list(map(sub, self._afters(counts), firsts))
        fields[_COLUMN["sequence"] :: COLUMNS] = [next_sequence()] * self._count
        recorder.undrawn += self._count - 1
        recorder.pending += fields
        if len(recorder.pending) >= FULL:
            recorder.spill()


def _picker(places: Sequence[int]) -> Callable[[Sequence[int]], Sequence[int]]:
    """Return a function that picks what is at these places."""
    return itemgetter(*places) if len(places) > 1 else lambda numbers: [numbers[place] for place in places]
