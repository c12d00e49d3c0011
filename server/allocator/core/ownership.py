"""Whose data each part of a segment may still hold, for segments that more than one session has used.

A free block is merged from pieces that different sessions had. Without this, all of it would have to be zeroed again
each time that one of them takes a part of it.
"""

from __future__ import annotations

from bisect import bisect_left

CLEAN = -1  # memory that was never handed out, or is known to be zero
MIXED = -2  # memory that more than one session has written


def merged_owner(one: int, other: int) -> int:
    """Return whose data a piece of memory may hold that is merged from pieces of ``one`` and ``other``."""
    if one == other or other == CLEAN:
        return one
    return other if one == CLEAN else MIXED


class OwnerMap:
    """The owners of a segment's bytes, as ranges in order; bytes that nobody claimed may hold anybody's data."""

    __slots__ = ("_owners", "_starts")

    def __init__(self) -> None:
        self._starts = [0]
        self._owners = [MIXED]

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._starts)

    def claim(self, begin: int, end: int, owner: int) -> list[tuple[int, int]]:
        """Make ``owner`` the owner of these bytes; return the offset and size of the parts that others have owned."""
        first, last = self._cut(begin), self._cut(end)
        edges = [*self._starts[first:last], end]
        foreign = [
            (edges[k], edges[k + 1] - edges[k])
            for k, other in enumerate(self._owners[first:last])
            if other != owner
        ]  # fmt: skip
        if first and self._owners[first - 1] == owner:
            first -= 1
            begin = self._starts[first]
        if last < len(self._owners) and self._owners[last] == owner:
            last += 1
        self._starts[first:last], self._owners[first:last] = [begin], [owner]
        return foreign

    def _cut(self, offset: int) -> int:
        """The number of the range that begins here, after one that spans this place was split."""
        at = bisect_left(self._starts, offset)
        if at == len(self._starts) or self._starts[at] != offset:
            self._starts.insert(at, offset)
            self._owners.insert(at, self._owners[at - 1])
        return at
