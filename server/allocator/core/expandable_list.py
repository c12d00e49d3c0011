"""The free blocks of expandable segments: those that can grow are kept apart.

Knows blocks and where they can grow; nothing of how memory is obtained.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator

from server.allocator.core.block import Block, FreeList, Pool, UnmappedBlock


def _size_and_address(block: Block) -> tuple[int, int]:
    return block.size, block.pointer


def address_of(block: Block) -> int:
    """Return the address that lists of blocks are ordered by."""
    return block.pointer


def is_growable(block: Block) -> bool:
    """Whether memory can be put right behind the block."""
    return block.next is not None and not block.next.mapped


def _size_when_grown(growable: Block) -> int:
    """How many bytes the block has once all addresses behind it have memory."""
    return growable.size + (growable.next.size if growable.next is not None else 0)


class ExpandableFreeList(FreeList):
    """A free list that keeps blocks apart that can grow, since they are for larger requests if any other block fits."""

    __slots__ = ("_notify", "growable", "is_ambiguous", "unmapped")

    expands = True

    def __init__(self, pool: Pool, stream: int, notify: Callable[[], None]) -> None:
        super().__init__(pool, stream)
        self.growable: list[Block] = []
        self.unmapped: list[UnmappedBlock] = []
        # Set while growable blocks have equal sizes: then the one that can grow least is preferred, not the lowest one.
        self.is_ambiguous = False
        self._notify = notify

    def add(self, block: Block) -> None:
        """Make a block available, in a bin or among those that can grow."""
        if not is_growable(block):
            super().add(block)
            return
        block.is_free = True
        block.bin = None
        insort(self.growable, block, key=_size_and_address)
        self._compare_growable()

    def remove(self, block: Block) -> None:
        """Take a block out; it is no longer available."""
        if block.bin is not None:
            super().remove(block)
            return
        block.is_free = False
        self.growable.remove(block)
        self._compare_growable()

    def _compare_growable(self) -> None:
        is_ambiguous = len({growable.size for growable in self.growable}) < len(self.growable)
        if is_ambiguous != self.is_ambiguous:
            self.is_ambiguous = is_ambiguous
            self._notify()

    def best_fit(self, size: int) -> Block | None:
        """Return the smallest free block of at least ``size`` bytes, as PyTorch chooses it.

        Of growable blocks that follow one another in the order of size, the first is chosen whose successor can grow as
        much or more. A block that cannot grow is preferred if it is smaller than the growable one could become.
        """
        self.coalesce_deferred()
        inner = self.best_in_bins(size)
        chosen: Block | None = None
        for growable in self.growable:
            if growable.size < size:
                continue
            if inner is not None and _size_and_address(inner) < _size_and_address(growable):
                break
            if chosen is not None and _size_when_grown(growable) >= _size_when_grown(chosen):
                return chosen
            chosen = growable
        if inner is None or (chosen is not None and inner.size >= _size_when_grown(chosen)):
            return chosen
        return inner

    def best_to_split(self, size: int) -> Block | None:
        """Return what ``best_fit`` would, without coalescing; None where only ``best_fit`` can tell."""
        remainder, growable = self.remainder, self.growable[0] if self.growable else None
        remainder_grows = remainder is not None and is_growable(remainder)
        if len(self.growable) + remainder_grows > 1:
            return None
        inner = self.best_in_bins(size)
        if self.remainder_size >= size and not remainder_grows and (inner is None or inner.size > self.remainder_size):
            inner = remainder
        grown = remainder if remainder_grows else growable
        if inner is None or grown is None:
            return inner or grown
        return inner if self._size(inner) < self._size(grown) + _size_when_grown(grown) - grown.size else None

    def _size(self, block: Block) -> int:
        return self.remainder_size if block is self.remainder else block.size

    def blocks(self) -> Iterator[Block]:
        """Yield all free blocks, ordered by size and address."""
        yield from sorted([*super().blocks(), *self.growable], key=_size_and_address)
