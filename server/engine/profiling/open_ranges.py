"""The ranges that a session has open on its thread's stack, for a profiler that is attached to the process.

The stack belongs to the thread, and sessions take turns on one thread. So what a session has open is ended where
another session's turn begins, and begun again with its own next turn.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .nvtx import Library
from .recorder import LONGEST_NAME, MOST_OPEN_RANGES


class _OpenRange(NamedTuple):
    """A range that has begun; ``number`` is what the client calls it, 0 for the worker's own."""

    number: int
    name: str


class OpenRanges:
    """One session's, from its present turn on until ``end``."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._open: list[_OpenRange] = []
        stacks.add(self)
        take_turn(self)

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def push(self, name: str, number: int = 0) -> None:
        """Begin a range."""
        name = name[:LONGEST_NAME]
        self._library.push(name)
        self._open.append(_OpenRange(number, name))

    def pop_to(self, depth: int) -> None:
        """End ranges until so many are open."""
        while len(self._open) > depth:
            self._open.pop()
            self._library.pop()

    def open(self, number: int, name: str) -> None:
        """Begin a range of the program; beyond a depth ranges are left out."""
        if len(self._open) < MOST_OPEN_RANGES:
            self.push(name, number)

    def close(self, number: int) -> None:
        """End a range of the program. Those within it that go on are ended too, and begun again without it."""
        place = next((at for at in reversed(range(len(self._open))) if self._open[at].number == number), None)
        if place is None:
            return
        within = self._open[place + 1 :]
        self.pop_to(place)
        for one in within:
            self.push(one.name, one.number)

    def mark(self, name: str) -> None:
        """Mark this moment."""
        self._library.mark(name[:LONGEST_NAME])

    def enter(self) -> None:
        """Begin what is open again: the session's turn has come."""
        for one in self._open:
            self._library.push(one.name)

    def leave(self) -> None:
        """End what is open, for as long as others have their turns."""
        for _ in self._open:
            self._library.pop()

    def end(self) -> None:
        """End what is open, for good."""
        if _turn.ranges is self:
            take_turn(None)
        self._open.clear()
        stacks.discard(self)


class _Turn:
    """Whose ranges are open on the worker's thread."""

    ranges: OpenRanges | None = None


_turn: Final = _Turn()
stacks: Final[set[OpenRanges]] = set()
"""Those of all sessions in this process; while there are any, who begins another session's turn calls ``take_turn``."""


def take_turn(ranges: OpenRanges | None) -> None:
    """End what the session before has open, and begin again what the session has open whose turn it is."""
    if _turn.ranges is not ranges:
        if _turn.ranges is not None:
            _turn.ranges.leave()
        _turn.ranges = ranges
        if ranges is not None:
            ranges.enter()
