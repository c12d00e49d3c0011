"""Memory that a session holds by address instead of by tensor.

Knows sessions by number only.
"""

from __future__ import annotations

from server.allocator.core.block import Block
from server.allocator.core.layer import Layer
from telegrad_protocol.errors import ArgumentError


class RawMemory:
    """The blocks that sessions were given as addresses, until they give them back or end."""

    def __init__(self, below: Layer) -> None:
        self._allocate, self._free = below.allocate, below.free
        self._blocks: dict[int, Block] = {}

    def caching_allocator_alloc(self, nbytes: int, stream: int = 0, owner: int = 0) -> int:
        """Return the address of a block that nothing but ``caching_allocator_delete`` gives back."""
        if nbytes <= 0:
            raise ArgumentError(f"caching_allocator_alloc: cannot allocate {nbytes} bytes")
        block = self._allocate(nbytes, stream, owner)
        self._blocks[block.pointer] = block
        return block.pointer

    def caching_allocator_delete(self, pointer: int, owner: int = 0) -> None:
        """Give back what ``caching_allocator_alloc`` returned to the same session."""
        block = self._blocks.get(pointer)
        if block is None or block.owner != owner:
            raise ArgumentError(f"caching_allocator_delete: no memory was allocated at {pointer:#x}")
        del self._blocks[pointer]
        self._free(block)

    def delete_all(self, owner: int) -> None:
        """Give back all that a session holds by address."""
        for pointer in [pointer for pointer, block in self._blocks.items() if block.owner == owner]:
            self.caching_allocator_delete(pointer, owner)
