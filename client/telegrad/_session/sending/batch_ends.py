"""Where full batches end: before a line that an earlier batch began with, so that a loop sends the same batches again.

The server executes calls as one that came before, and knows them by the batch that they come in. Batches of a fixed
number of instructions begin anywhere in a loop's body, and it takes many turns until one begins there again. A batch
also ends before the line of an outer loop, which is met less often than others, wherever it is: whatever has cut a
batch short before, from there on all are as in the last turn. Where there is one loop, any of its lines is taken that a
batch began with. A batch may also hold a whole turn, where the program has sent so much since it last waited that
nobody notices what is sent later: the server then executes a turn as one.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final, NamedTuple

from telegrad_protocol import messages

_LOOKED_AT: Final = 32
"""So many instructions at the end of a batch are left for the next one at most: half of a full batch."""
_MOST_LINES: Final = 4096
"""What is known of lines is forgotten when they are so many."""
_RARER: Final = 3
"""A line that was met so many times less often than another one belongs to an outer loop."""
_LONG_TURN: Final = 128
"""A batch ends before an outer loop's line wherever this is, if so many instructions were sent since the last time."""
_SHORTEST: Final = 16
"""No batch is made shorter than this."""
_LONGEST: Final = 512
"""No batch is made longer than this."""
_MARGIN: Final = 4
"""Turns whose lengths differ by no more are of one length: so many instructions of the next one show that it ended."""
_MOST_UNSEEN: Final = 3
"""Where the line of the outer loop was sent unseen in so many turns, it may not come any more."""
_UNNOTICED: Final = 2
"""A batch may hold a turn if so many times more was sent since the program last waited."""

LEAVABLE: Final[frozenset[type]] = frozenset(
    (
        messages.Backward,
        messages.Gradient,
        messages.Free,
        messages.DropGrads,
        messages.SetGrad,
        messages.SetRequiresGrad,
        messages.TakePlace,
    )
)
"""Instructions, beside calls, that may be left for the next batch. They are part of no line."""

Places = dict[int, list[int]]
"""By its line, where calls begin in a batch that are of this line, in order."""


class Turns(NamedTuple):
    """Where the line of an outer loop was met last, and how many instructions there were from each time to the next."""

    line: int
    at: int
    before: int
    last: int

    def met_at(self, now: int) -> Turns:
        """Return what is known once the line was met there.

        Where it is met several times in a turn the first time counts. Whole turns in which it was sent unseen, as when
        time was up, change nothing.
        """
        length = now - self.at
        if length < _LONG_TURN:
            return self
        count = round(length / self.last) if self.last else 1
        if count > 1 and abs(length - count * self.last) <= _MARGIN:
            return self._replace(at=now)
        return Turns(self.line, now, self.last, length)


class Met(NamedTuple):
    """A line of a batch: in how many calls it was met before, and where it begins in the batch."""

    times: int
    place: int
    line: int


def places_of(batch: list[Any]) -> Places:
    """Return where calls of each line begin, behind the last instruction that may not be left for the next batch.

    C does this for all sessions where there is a compiler (0087).
    """
    places: Places = {}
    line: int | None = None
    for place, one in enumerate(batch):
        if one.__class__ is tuple:  # under modes that are not the default ones
            one = one[1]
        if one.__class__ is not messages.Call:
            if one.__class__ not in LEAVABLE:
                places.clear()
            line = -1
        elif line != one.site:
            is_begin, line = line != -1, one.site
            if is_begin:
                begins = places.get(line)
                if begins is None:
                    places[line] = [place]
                else:
                    begins.append(place)
    return places


class BatchEnds:
    """The lines that the batches of one session began with, and how often its lines were met."""

    __slots__ = ("_begins_anywhere", "_met", "_outer", "_sent", "_since", "_starts", "_turns")

    places_of = staticmethod(places_of)

    def __init__(self) -> None:
        self._met: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        """The lines that batches began with, numbered."""
        self._since = 0
        """How many instructions were sent since a batch began with an outer loop's line."""
        self._outer: dict[int, int] = {}
        """The lines of outer loops that were chosen of several, numbered."""
        self._sent = 0
        """How many instructions were sent."""
        self._turns = Turns(-1, 0, 0, 0)
        self._begins_anywhere = False

    def left_of_turn(self, queued: int, unwaited: int) -> int:
        """Return how many instructions are to come until a whole turn is queued, where it may be sent at once.

        ``queued`` are waiting to be sent, and ``unwaited`` were sent since the program last waited. 0 for none.
        """
        _, at, before, last = self._turns
        if abs(last - before) > _MARGIN or not _LONG_TURN <= last <= min(_LONGEST, unwaited // _UNNOTICED):
            return 0
        turns = (self._sent - at) // last
        return max(at + (turns + 1) * last + _MARGIN - self._sent - queued, 0) if turns <= _MOST_UNSEEN else 0

    def note_early(self, size: int) -> None:
        """Note that so many instructions were sent before a batch was full, since time was up.

        The next one may begin anywhere.
        """
        self._begins_anywhere = True
        self._since += size

    def note_sent(self, size: int) -> None:
        """Note that all of so many instructions were sent: a full batch, or since time was up or somebody waits."""
        self._sent += size

    def count(self, batch: list[Any]) -> int:
        """Return how many instructions of a full batch are to be sent now; others begin the next batch.

        All are where something but calls would be left, or none of its last lines is known; ``note_sent`` follows then.
        """
        places = self.places_of(batch)
        self._note_start(places)
        end = self._end_of(places, len(batch))
        self._note_turn(places, end)
        self._sent += end if end < len(batch) else 0
        met = self._met
        if len(met) > _MOST_LINES:
            met.clear()
            self._starts.clear()
            self._outer.clear()
        for line, begins in places.items():
            count = len(begins) if begins[-1] < end else bisect_left(begins, end)
            if count:
                met[line] = met.get(line, 0) + count
        return end

    def _note_start(self, places: Places) -> None:
        begins_anywhere, self._begins_anywhere = self._begins_anywhere, False
        line, begins = next(iter(places.items()), (0, None))
        if begins and begins[0] == 0 and not begins_anywhere:
            self._starts.setdefault(line, len(self._starts))

    def _note_turn(self, places: Places, end: int) -> None:
        """Note where an outer loop's line is: of those that batches ended before, one that is met least often."""
        met, (line, at, _, _) = self._met, self._turns
        found = next((one for one in self._outer if one in places and end in places[one]), line)
        if found != line and (2 * met.get(found, 0) < met.get(line, 0) or self._sent - at > 2 * _LONGEST):
            self._turns = Turns(found, self._sent + end, 0, 0)
            return
        for place in places.get(line, ()):
            if place <= end:
                self._turns = self._turns.met_at(self._sent + place)

    def _end_of(self, places: Places, size: int) -> int:
        known = self._known(places) if self._since + size >= _LONG_TURN else []
        if end := self._at_turn(_rarest(known)):
            return end
        near = self._near(places, size)
        if not near and (end := self._at_turn([one for one in known if self._began(one)])):
            return end
        self._since += near or size
        return near or size

    def _at_turn(self, known: list[Met]) -> int:
        """Return where the line of an outer loop is, the same one each time; 0 where none is, or a turn is too short.

        ``known`` are lines that it may be.
        """
        if not known:
            return 0
        outer = self._outer
        _, place, line = min(known, key=lambda one: (outer.get(one.line, _MOST_LINES), one.place))
        outer.setdefault(line, len(outer))
        if place < _SHORTEST or self._since + place < _LONG_TURN:
            return 0
        self._since = 0
        return place

    def _near(self, places: Places, size: int) -> int:
        """Return where the last instructions have a line that a batch began with; 0 for nowhere."""
        met, starts, least = self._met, self._starts, max(size - _LOOKED_AT, 0)
        near = [
            (met.get(line, 0).bit_length(), starts[line], -begins[-1]) for line, begins in places.items()
            if begins[-1] > least and line in starts
        ]  # fmt: skip
        return -min(near)[2] if near else 0

    def _began(self, known: Met) -> bool:
        """Whether batches began with a line, which was met several times."""
        return known.line in self._starts and known.times >= _RARER

    def _known(self, places: Places) -> list[Met]:
        """Return the lines of a batch that were met before, and begin behind its begin."""
        met = self._met
        return [
            Met(met[line], begins[0] or begins[1], line) for line, begins in places.items()
            if line in met and begins[-1]
        ]  # fmt: skip


def _rarest(known: list[Met]) -> list[Met]:
    """Return the lines that were met less often than others; none where all are of one loop."""
    rare = min((max(known).times - 1) // _RARER, 2 * min(known).times) if known else 0
    return [one for one in known if one.times <= rare]
