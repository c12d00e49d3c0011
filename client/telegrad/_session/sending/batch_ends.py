"""Where full batches end: before a line that an earlier batch began with, so that a loop sends the same batches again.

The server executes calls as one that came before, and knows them by the batch that they come in. Batches of a fixed
number of instructions begin anywhere in a loop's body, and it takes many turns until one begins there again. A batch
also ends before the line of an outer loop, which is met less often than others, wherever it is: whatever has cut a
batch short before, from there on all are as in the last turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

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


class BatchEnds:
    """The lines that the batches of one session began with, and how often its lines were met."""

    __slots__ = ("_begins_anywhere", "_met", "_outer", "_since", "_starts")

    def __init__(self) -> None:
        self._met: Counter[int] = Counter()
        self._starts: dict[int, int] = {}
        """The lines that batches began with, numbered."""
        self._since = 0
        """How many instructions were sent since a batch began with an outer loop's line."""
        self._outer: dict[int, int] = {}
        """The lines of outer loops that were chosen of several, numbered."""
        self._begins_anywhere = False

    def note_early(self) -> None:
        """Note that a batch was sent before it was full, since time was up: the next one may begin anywhere."""
        self._begins_anywhere = True

    def count(self, batch: Sequence[Any]) -> int:
        """Return how many instructions of a full batch are to be sent now; others begin the next batch.

        All are where something but calls would be left, or none of its last lines is known.
        """
        lines = _lines_of(batch)
        self._note_start(lines)
        end = self._end_of(lines, len(batch))
        if len(self._met) > _MOST_LINES:
            self._met.clear()
            self._starts.clear()
            self._outer.clear()
        self._met.update([line for place, line in lines if place < end])
        return end

    def _note_start(self, lines: Sequence[tuple[int, int]]) -> None:
        begins_anywhere, self._begins_anywhere = self._begins_anywhere, False
        if lines and lines[-1][0] == 0 and not begins_anywhere:
            self._starts.setdefault(lines[-1][1], len(self._starts))

    def _end_of(self, lines: Sequence[tuple[int, int]], size: int) -> int:
        if self._since + size >= _LONG_TURN:
            place = self._outermost(lines)
            if place >= _SHORTEST and self._since + place >= _LONG_TURN:
                self._since = 0
                return place
        met, starts = self._met, self._starts
        near = [
            (met[line].bit_length(), starts[line], -place) for place, line in lines
            if place > max(size - _LOOKED_AT, 0) and line in starts
        ]  # fmt: skip
        end = -min(near)[2] if near else size
        self._since += end
        return end

    def _outermost(self, lines: Sequence[tuple[int, int]]) -> int:
        """Return where the line of an outer loop is, the same one each time; 0 where all are of one loop."""
        known = [(self._met[line], place, line) for place, line in lines if place and line in self._met]
        most = max(known, default=(0, 0, 0))[0]
        rarest = [one for one in known if one[0] * _RARER < most and one[0] <= 2 * min(known)[0]]
        if not rarest:
            return 0
        outer = self._outer
        _, place, line = min(rarest, key=lambda one: (outer.get(one[2], _MOST_LINES), one[1]))
        outer.setdefault(line, len(outer))
        return place


def _lines_of(batch: Sequence[Any]) -> list[tuple[int, int]]:
    """Return where calls begin that are of one line, and this line, from the end on to what is no call."""
    lines: list[tuple[int, int]] = []
    line, place = None, len(batch)
    for one in reversed(batch):
        if one.__class__ is tuple:  # under modes that are not the default ones
            one = one[1]
        if one.__class__ is not messages.Call:
            return lines
        site = one.site
        if site != line:
            if line is not None:
                lines.append((place, line))
            line = site
        place -= 1
    if line is not None:
        lines.append((0, line))
    return lines
