"""Where full batches end: before a line that an earlier batch began with, so that a loop sends the same batches again.

The server executes calls as one that came before, and knows them by the batch that they come in. Batches of a fixed
number of instructions begin anywhere in a loop's body, and it takes many turns until one begins there again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from telegrad_protocol import messages

_LOOKED_AT: Final = 32
"""So many instructions at the end of a batch are left for the next one at most: half of a full batch."""
_MOST_STARTS: Final = 256
"""The lines that batches began with are forgotten when they are so many."""
_RARER: Final = 3
"""A line that was met so many times less often than another one belongs to an outer loop."""


class _Start:
    """A line that a batch began with: how many were known before it, and how often it was met at the end of one."""

    __slots__ = ("met", "number")

    def __init__(self, number: int) -> None:
        self.number, self.met = number, 0

    def is_better(self, than: _Start) -> bool:
        """Whether batches are to begin here, rather than there: with an outer loop, else where they have longest."""
        if self.met * _RARER < than.met:
            return True
        return self.number < than.number and self.met < than.met * _RARER


class BatchEnds:
    """The lines that the batches of one session began with.

    Of several such lines at the end of a batch one is chosen that is rarer than the others, which is the begin of an
    outer loop, so that all turns of this are sent alike.
    """

    __slots__ = ("_begins_anywhere", "_starts")

    def __init__(self) -> None:
        self._starts: dict[int, _Start] = {}
        self._begins_anywhere = False

    def note_early(self) -> None:
        """Note that a batch was sent before it was full, since time was up: the next one may begin anywhere."""
        self._begins_anywhere = True

    def count(self, batch: Sequence[Any]) -> int:
        """Return how many instructions of a full batch are to be sent now; others begin the next batch.

        All are where something but calls would be left, or no earlier batch began with one of the last lines.
        """
        self._note_start(batch)
        starts, end = self._starts, len(batch)
        best: _Start | None = None
        for place in range(end - 1, max(end - _LOOKED_AT, 0), -1):
            one = batch[place]
            if one.__class__ is tuple:  # under modes that are not the default ones
                one = one[1]
            if one.__class__ is not messages.Call:
                break
            start = starts.get(one.site)
            if start is not None:
                start.met += 1
                if best is None or start.is_better(best):
                    best, end = start, place
        return end

    def _note_start(self, batch: Sequence[Any]) -> None:
        begins_anywhere, self._begins_anywhere = self._begins_anywhere, False
        if begins_anywhere:
            return
        for one in batch:
            if one.__class__ is tuple:
                one = one[1]
            if one.__class__ is messages.Call:
                if len(self._starts) >= _MOST_STARTS:
                    self._starts.clear()
                self._starts.setdefault(one.site, _Start(len(self._starts)))
                return
