"""Parts of a session's queue that are sent in another form: marks in the queue, and what takes them out."""

from __future__ import annotations

from typing import Any, Protocol

from .template_runs import expanded, further


class Part:
    """Marks the beginning of a part in the queue. Ids above ``first`` were given out since.

    ``replaced`` is how many entries of the queue the part has, and what stands for them; None while they are sent as
    they are. ``stands_for`` is how many instructions there would be, where none were queued at all.
    """

    __slots__ = ("first", "replaced", "stands_for")

    def __init__(self, first: int) -> None:
        self.first = first
        self.replaced: tuple[int, list[Any]] | None = None
        self.stands_for = 0


class Holder(Protocol):
    """What keeps the instructions of a part together in the queue."""

    def holds(self) -> bool:
        """Whether what is queued waits although there is enough for a batch."""

    def pause(self, why: Any) -> Holder | None:
        """End the part, since an instruction is sent at once; returns itself if ``resume`` is to begin another one."""

    def resume(self) -> None:
        """Begin a part after such an instruction."""


def stood_for(queued: list[Any]) -> int:
    """Return how many instructions entries stand for that are none: parts of which none are queued, and templates."""
    return sum([entry.stands_for for entry in queued if type(entry) is Part]) + further(queued)


def without_parts(queued: list[Any]) -> list[Any]:
    """Return what is sent for the entries of a queue."""
    sent: list[Any] = []
    place = 0
    while place < len(queued):
        entry = queued[place]
        place += 1
        if type(entry) is not Part:
            sent.append(entry)
        elif entry.replaced is not None:
            count, instructions = entry.replaced
            sent += instructions
            place += count
    return expanded(sent)
