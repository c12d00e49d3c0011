"""Which tensors a part of a batch takes each time that it comes: the same ones, others that move, or any.

Most tensors of a batch move as it does: they were made so many calls before it. Parameters are the same each time. What
a program has kept for a while, in a variable that only one branch of it sets, is neither: its number is read from the
bytes of each batch. Knows bytes, and nothing of instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from telegrad_protocol import wire

_WIDTHS: Final = {0xCE: 4, 0xCF: 8}
"""By the byte before them, how many bytes have numbers that are read: all but those of a session's first tensors."""


class Taken:
    """The tensors that a part takes, by position: their numbers the first time, and whether these move.

    ``anywhere`` says by position where the bytes of numbers begin that are read from each batch.
    """

    __slots__ = ("_anywhere", "_moving", "first", "holes")

    def __init__(
        self, first: Sequence[int], moving: Sequence[bool], anywhere: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:  # fmt: skip
        self.first = tuple(first)
        self._moving = tuple(moving)
        self._anywhere = tuple(anywhere.items())
        self.holes = [place for places in anywhere.values() for place in places]
        """Where bytes of a batch begin and end that may be others."""

    def at(self, distance: int, body: memoryview | bytes, last: int) -> list[int] | None:
        """Return the numbers that a batch has, whose numbers that move are so far from the first ones.

        None where what is read from it cannot be: a tensor that comes twice, or one after ``last``, which the part
        itself makes.
        """
        ids = [id + distance if moves else id for id, moves in zip(self.first, self._moving)]
        if not self._anywhere:
            return ids
        for position, places in self._anywhere:
            read = {bytes(body[begin:end]) for begin, end in places}
            ids[position] = int.from_bytes(read.pop(), "big")
            if read or ids[position] > last:
                return None
        return ids if len(set(ids)) == len(ids) else None


def places_of(here: bytes, there: bytes, id: int, other: int) -> list[tuple[int, int]]:
    """Return where two instructions have the bytes of a number each, without those that tell how many these are."""
    wanted, instead = wire.encoder.encode(id), wire.encoder.encode(other)
    width = _WIDTHS.get(wanted[0], 0)
    if not width or len(here) != len(there) or len(wanted) != len(instead):
        return []
    places, at = [], here.find(wanted)
    while at >= 0:
        if there[at : at + 1 + width] == instead:
            places.append((at + 1, at + 1 + width))
        at = here.find(wanted, at + 1)
    return places
