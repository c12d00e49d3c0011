"""What captured work of a device holds: graphs that CUDA keeps memory for, and memory of their own.

The least recently launched go first: where there are too many, and all of them where the device is out of memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

MOST_BYTES: Final = 512 << 20
"""So many bytes CUDA may hold for captured work of one device, as far as is known."""


class _Entry(NamedTuple):
    nbytes: int
    owner: int
    drop: Callable[[], object]


class GraphMemory:
    """Captured work by the number of the object that holds it: its bytes, and what has it dropped."""

    __slots__ = ("_kept", "nbytes")

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Entry] = OrderedDict()
        self.nbytes = 0

    def add(self, captured: object, nbytes: int, owner: int, drop: Callable[[], object]) -> None:
        """Note captured work; others are dropped where all together hold too much. ``drop`` may not hold the work."""
        self._kept[id(captured)] = _Entry(nbytes, owner, drop)
        self.nbytes += nbytes
        while self.nbytes > MOST_BYTES and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def note_launch(self, captured: object) -> None:
        """Note that the work was launched."""
        self._kept.move_to_end(id(captured))

    def forget(self, captured: object) -> None:
        """Note that its holder has dropped the work."""
        entry = self._kept.pop(id(captured), None)
        if entry is not None:
            self.nbytes -= entry.nbytes

    def drop_all(self, owner: int | None = None) -> bool:
        """Have all work of a session dropped, or of all with None, since memory is short; returns whether any was."""
        numbers = [number for number, entry in self._kept.items() if owner in (None, entry.owner)]
        for number in numbers:
            self._drop(number)
        return bool(numbers)

    def _drop(self, number: int) -> None:
        entry = self._kept.pop(number, None)
        if entry is None:  # its holder has ended meanwhile, such as by the garbage collector
            return
        self.nbytes -= entry.nbytes
        entry.drop()
