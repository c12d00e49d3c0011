"""Where the bytes of a batch differ from those of another one that does the same: what is left tells the pattern.

Two batches of a loop differ in numbers of tensors, and all that differ do so by the same distance. So the bytes of a
batch, read as an integer, are those of an earlier one plus that distance times a constant. One product and one
comparison tell it, exactly: as long as no number comes to take more bytes, no sum carries from one into the next. Bytes
of instructions that differ in more are not looked at. Knows bytes, and nothing of instructions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Generic, Protocol, TypeVar

_WIDTHS: Final = ((1 << 7, 0, 1), (1 << 8, 1, 1), (1 << 16, 1, 2), (1 << 32, 1, 4), (1 << 64, 1, 8))
"""What numbers of a width are below, how many bytes tell the width, and how many have the number."""


class Bounded(Protocol):
    """What is known of batches with a layout: between what the first number that moves may be, and whether it holds."""

    least: int
    most: int

    @property
    def is_divided(self) -> bool: ...


Known = TypeVar("Known", bound=Bounded)


class Layout(Generic[Known]):
    """Where the numbers that move stand in batches: what these are without them tells the pattern.

    ``size`` is how many bytes are looked at, ``mask`` has the last byte of each number that moves, ``width`` is how
    many bytes the first of these takes, and ``kept`` is 0 in the bytes that may be anything.
    """

    __slots__ = ("kept", "mask", "patterns", "place", "size", "width")

    def __init__(self, size: int, mask: int, width: int, kept: int) -> None:
        self.size, self.mask, self.width, self.kept = size, mask, width, kept
        self.place = size - (mask.bit_length() + 7) // 8 + 1
        """Where the first number that moves ends."""
        self.patterns: dict[int, Known] = {}

    @property
    def places(self) -> tuple[int, int, int, int]:
        """All that two layouts of the same batches have in common."""
        return self.size, self.mask, self.width, self.kept

    def split(self, body: memoryview | bytes) -> tuple[int, int]:
        """Return the first number that moves, and the batch with all that move less by it."""
        first = int.from_bytes(body[self.place - self.width : self.place], "big")
        return first, (int.from_bytes(body[: self.size], "big") & self.kept) - first * self.mask

    def find(self, body: memoryview | bytes) -> tuple[Known, int] | None:
        """Return the pattern of a batch, and the first number that moves; None for other batches."""
        first, rest = self.split(body)
        pattern = self.patterns.get(rest)
        if pattern is None or not pattern.least <= first <= pattern.most:
            return None
        if pattern.is_divided:
            del self.patterns[rest]  # it will be taken apart in other places
            return None
        return pattern, first


def layout_of(
    first: bytes, second: bytes, size: int, distance: int, moved: Collection[int], holes: Iterable[tuple[int, int]]
) -> tuple[Layout[Known], int] | None:
    """Return the layout that two batches share, whose numbers that move differ by ``distance``; None for none.

    The first number that moves in ``first`` comes with it. ``holes`` say where bytes begin and end that may be others.
    """
    kept = bytearray(b"\xff" * size)
    for begin, end in holes:
        kept[begin:end] = bytes(end - begin)
    those = int.from_bytes(kept, "big")
    here, there = (int.from_bytes(body[:size], "big") & those for body in (first, second))
    mask, left = divmod(there - here, distance)
    if left or mask <= 0:
        return None
    layout: Layout[Known] = Layout(size, mask, 1, those)
    layout.width, at = _field_at(first, layout.place - 1, moved)
    split = layout.split(first)
    return (layout, at) if split[0] == at and split[1] == layout.split(second)[1] else None


def _field_at(body: bytes, place: int, known: Collection[int]) -> tuple[int, int]:
    """Return how many bytes the number takes whose last byte is at a place, and what it is: one of those that move."""
    for _, before, width in reversed(_WIDTHS):
        begin = place + 1 - width
        number = int.from_bytes(body[max(begin, 0) : place + 1], "big")
        if begin >= before and number in known and _width_of(number) == width:
            return width, number
    return 1, -1


def _width_of(number: int) -> int:
    return next((width for most, _, width in _WIDTHS if number < most), 8)


def least_as_wide(number: int) -> int:
    """Return the least number that takes as many bytes as this one."""
    return max([most for most, _, _ in _WIDTHS if most <= number], default=0)


def most_as_wide(number: int) -> int:
    """Return the largest number that takes as many bytes as this one."""
    return next((most for most, _, _ in _WIDTHS if number < most), 1 << 64) - 1
