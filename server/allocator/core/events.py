"""Blocks that were freed while other streams still use them, until the work queued on those streams is done.

Knows blocks and the upstream's events; nothing of pools or statistics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from server.allocator.core.block import Block
from server.allocator.core.upstream import Upstream


class EventQueue:
    """The pending events of every stream, in the order they were recorded, with the block that waits for each."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._queues: dict[int, deque[tuple[Any, Block]]] = {}
        # How many events a block waits for; 0 while its events are deferred.
        self._waits: dict[Block, int] = {}
        self._deferred: dict[Block, set[int]] = {}

    def __contains__(self, block: Block) -> bool:
        return block in self._waits

    def __bool__(self) -> bool:
        return bool(self._queues)

    def insert(self, block: Block, streams: set[int]) -> None:
        """Record an event on every stream that the block waits for."""
        self._waits[block] = len(streams)
        for stream in sorted(streams):
            event = self._upstream.record_event(stream)
            self._queues.setdefault(stream, deque()).append((event, block))

    def defer(self, block: Block, streams: set[int]) -> None:
        """Hold a block back without an event, which would become part of a graph that is being captured."""
        self._waits[block] = 0
        self._deferred[block] = streams

    def insert_deferred(self, owner: int) -> None:
        """Record the events of a session's blocks that were deferred."""
        for block in [block for block in self._deferred if block.owner == owner]:
            self.insert(block, self._deferred.pop(block))

    def completed(self) -> Iterator[Block]:
        """Yield the blocks whose last event has passed; a slow stream does not hold up the others."""
        for stream, queue in list(self._queues.items()):
            while queue and self._upstream.is_done(queue[0][0]):
                yield from self._pop(queue)
            if not queue:
                del self._queues[stream]

    def awaited(self) -> Iterator[Block]:
        """Wait for every event, and yield all blocks."""
        for queue in self._queues.values():
            while queue:
                self._upstream.wait_for(queue[0][0])
                yield from self._pop(queue)
        self._queues.clear()

    def _pop(self, queue: deque[tuple[Any, Block]]) -> Iterator[Block]:
        block = queue.popleft()[1]
        self._waits[block] -= 1
        if not self._waits[block]:
            del self._waits[block]
            yield block
