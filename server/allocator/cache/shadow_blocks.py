"""Blocks that stand for memory which they do not own, and runs that take all their memory from one block."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from server.allocator.core.block import Block
from telegrad_protocol.errors import InternalError

_ALIGNMENT: Final = 512


class ReplayMismatch(InternalError):
    """A dry run asks for other memory than the recorded calls did."""


class ShadowBlock(Block):
    """Stands for a block in a dry run: the same memory as that of ``real``, which it does not own."""

    __slots__ = ("real",)

    owns_memory = False

    def __init__(self, real: Block) -> None:
        super().__init__(real.segment, real.offset, real.size, real.stream, real.owner)
        self.is_free = True  # to be taken back, it has nothing to give
        self.requested = real.requested
        self.real = real


class Arena:
    """Serves the requests of one run from a block: where each lies depends on nothing but the requests before it.

    Those whose numbers are in ``apart`` lie from ``behind`` on, in bytes, where nothing else ever lies.
    """

    def __init__(self, block: Block, null: Block, apart: Collection[int] = (), behind: int = 0) -> None:
        self._block = block
        self._apart, self._behind = apart, behind
        self.numbers: dict[Block, int] = {}
        """Of what was taken, as how-manieth."""
        self._null = null
        self._free = [(0, behind if apart else block.size)]
        """Offsets and sizes of what is free, by offset."""
        self._taken: dict[Block, int] = {}
        self.most = 0
        """How many bytes of the block were used, up to the highest address."""
        self.is_too_small = False
        self.queued_frees: list[Block] = []
        """Blocks of others that were freed meanwhile; they are freed after the run."""

    @property
    def taken(self) -> set[Block]:
        """What is in use."""
        return set(self._taken)

    def shadow(self, block: Block) -> Block:
        """Return a stand-in for a block of somebody else."""
        return block if block is self._null else ShadowBlock(block)

    def take(self, nbytes: int) -> Block:
        """Return the first free part that is large enough; ReplayMismatch where there is none."""
        size = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        if len(self.numbers) in self._apart:
            offset, self._behind = self._behind, self._behind + size
            if self._behind <= self._block.size:
                return self._part(offset, size, nbytes)
            self._free = []
        for place, (offset, room) in enumerate(self._free):
            if room >= size:
                self._free[place : place + 1] = [(offset + size, room - size)] if room > size else []
                return self._part(offset, size, nbytes)
        self.is_too_small = True
        raise ReplayMismatch(f"arena: {nbytes} bytes do not fit")

    def _part(self, offset: int, size: int, nbytes: int) -> Block:
        block = self._block
        part = Block(block.segment, block.offset + offset, size, block.stream, block.owner)
        part.requested = nbytes
        shadow = ShadowBlock(part)
        self._taken[shadow] = offset
        self.numbers[shadow] = len(self.numbers)
        self.most = max(self.most, offset + size)
        return shadow

    def allocate(self, nbytes: int, stream: int, owner: int) -> Block:
        """Return a part for a request of the session whose block it is; ReplayMismatch for those of others."""
        if nbytes <= 0:
            return self._null
        if (stream, owner) != (self._block.stream, self._block.owner):
            raise ReplayMismatch("arena: memory for another stream or owner")
        return self.take(nbytes)

    def free(self, block: Block) -> None:
        """Take a part back."""
        offset = self._taken.pop(block, None)
        if offset is not None:
            self._give_back(offset, block.size)
        elif block.__class__ is not ShadowBlock and block is not self._null:
            self.queued_frees.append(block)

    def _give_back(self, offset: int, size: int) -> None:
        merged: list[tuple[int, int]] = []
        for start, room in sorted([*self._free, (offset, size)]):
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + room)
            else:
                merged.append((start, room))
        self._free = merged
