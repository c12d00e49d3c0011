"""Pieces of memory that were in use: each has a key, and a block that stands for it once calls on it are remembered.

Knows blocks and their segments; nothing of states, calls or sessions' turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import TypeAlias

from server.allocator.core.block import Block, Segment
from server.allocator.core.splitting import replace_block

Piece: TypeAlias = tuple[int, int, int, int]
"""Place, size, requested bytes and session."""


class Pieces:
    """The pieces by what they are, each with its key or with the block that stands for it."""

    __slots__ = ("new_key", "table")

    def __init__(self) -> None:
        self.table: dict[Piece, int | Block] = {}
        self.new_key: Callable[[], int] = partial(Random().getrandbits, 128)
        """Returns a number that nobody can foresee; exclusive ors of such numbers are equal for equal ones alone."""

    def name(self, block: Block, piece: Piece) -> int:
        """Give a block in use the key of its piece, which is made if need be, and return it."""
        known = self.table.get(piece)
        if known is None:
            known = self.table[piece] = self.new_key()
        elif isinstance(known, Block):
            known = known.key
        block.key = known
        return known

    def name_of_all(self, segments: Iterable[Segment]) -> int:
        """Return the exclusive or of the keys of all blocks in use."""
        name = 0
        for segment in segments:
            for block in segment.blocks():
                if block.mapped and not block.is_free:
                    name ^= self.name(block, piece_of(block))
        return name

    def recognize(self, block: Block) -> Block:
        """Return the block that stands for this piece of memory, put in the place of the one that was just cut.

        The new block itself will stand for the piece if that was in use before, and not if it is used for the first
        time.
        """
        piece = piece_of(block)
        known = self.table.get(piece)
        if isinstance(known, Block):
            known.bin, known.split, known.is_free = block.bin, block.split, False
            replace_block(block, known)
            return known
        self.name(block, piece)
        block.is_stable = False
        if known is not None:
            self._let_stand(block, piece)
        return block

    def representative(self, block: Block) -> Block | None:
        """Return the block that stands for the piece that this one is in use for; None if the piece is not known."""
        if block.is_stable:
            return block
        piece = piece_of(block)
        known = self.table.get(piece)
        if known is None or isinstance(known, Block):
            return known
        self._let_stand(block, piece)
        return block

    def _let_stand(self, block: Block, piece: Piece) -> None:
        block.is_stable = True
        block.array = block.meta = None
        self.table[piece] = block

    def forget(self) -> None:
        """Forget all pieces; no block stands for one then."""
        for known in self.table.values():
            if known.__class__ is not int:
                known.is_stable = False  # type: ignore[union-attr]
        self.table.clear()


def piece_of(block: Block) -> Piece:
    """Return what a block in use is a piece of."""
    return block.pointer, block.size, block.requested, block.owner
