"""What sessions and reports ask of the layers below them.

Knows the core; not which layers there are, nor why they defer calls.
"""

from __future__ import annotations

from typing import Protocol

from server.allocator.core.block import Block
from server.allocator.core.block_cache import BlockCache


class CacheLayer(Protocol):
    """The outermost layer that hands out blocks. It may defer what calls amount to, until somebody wants to see it."""

    core: BlockCache

    def allocate(self, nbytes: int, stream: int, owner: int) -> Block: ...
    def free(self, block: Block) -> None: ...
    def set_quota(self, owner: int, nbytes: int | None, most: int | None = None) -> None: ...
    def allocated_bytes(self, owner: int | None = None) -> int: ...
    def end_session(self, owner: int) -> None: ...

    def flush_totals(self) -> None:
        """Bring the ledgers up to date."""

    def flush_deferred(self) -> None:
        """Bring the ledgers and the blocks of all segments up to date."""

    def detach(self) -> None:
        """Bring everything up to date, before blocks or segments are changed past this layer."""

    def invalidate(self) -> None:
        """Bring everything up to date and remember no calls, because they will have other outcomes from now on."""
