"""Which values are computed again: those that lower the most that is held at once, as long as little more is moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from server.engine.programs.analysis import EVERYTHING, Analysis
from server.engine.programs.graph import Slot, Step
from server.engine.programs.grouping import Group
from server.engine.programs.temporaries import moved_bytes

from .again import Recomputing
from .draft import Change, Draft

PART_MOVED: Final = 50
"""Of so many bytes that a program reads and writes, one more may be moved to hold less."""
_PART_HELD: Final = 256
"""Values of a smaller part of all that is held are not looked at."""
_MOST_TRIES: Final = 256
"""Changes that are looked at for one program."""


def recomputed(
    steps: Sequence[Step], groups: Sequence[Group], analysis: Analysis, outputs: Sequence[Slot], keys: Any,
    part_moved: int = PART_MOVED,
) -> tuple[list[Step], frozenset[Slot]] | None:  # fmt: skip
    """Steps that hold less at once and make the same values, and the slots of those made again; None for no such.

    ``groups`` are those in which the steps are executed, in order.
    """
    if EVERYTHING in analysis.written:
        return None
    draft = Draft(groups, steps, analysis, outputs, keys)
    allowed = moved_bytes([group.positions for group in groups], steps, analysis) // part_moved
    finder, tries, made = Recomputing(draft, keys), _MOST_TRIES, 0
    while tries > 0:
        most, time = draft.peak()
        chosen, tried = _lower(draft, finder, most, time, allowed, tries)
        tries -= tried
        if chosen is None:
            break
        draft.make(chosen)
        allowed -= chosen.moved
        made += 1
    return draft.result() if made else None


def _lower(
    draft: Draft, finder: Recomputing, most: int, time: float, allowed: int, tries: int
) -> tuple[Change | None, int]:  # fmt: skip
    """The first change that lowers what is held at a time, and how many were looked at."""
    count = 0
    for change in finder.changes_at(time, most // _PART_HELD):
        if count >= tries:
            break
        count += 1
        if change.moved <= allowed:
            then, at = draft.peak(change)
            if then < most or (then == most and at > time):  # it may be reached several times
                return change, count
    return None, count
