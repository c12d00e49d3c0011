"""Who is told of a session's allocations on one device, or makes them, while a graph is captured or replayed.

A replay runs the same kernels on the same memory. What they allocate on the way, results and scratch memory alike, gets
the addresses that it had when the graph was captured. Memory that others ask for meanwhile is the allocator's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from server.allocator import Block, CachingAllocator
from server.allocator.cache.shadow_blocks import ShadowBlock
from telegrad_protocol.errors import CaptureError

Allocate = Callable[[int, int, int], Block]
Allocation = tuple[int, ShadowBlock]
"""How many bytes were asked for, and the memory that was given."""


class Source(Protocol):
    """Serves the requests of one session."""

    def allocate(self, nbytes: int, stream: int, owner: int, allocate: Allocate) -> Block:
        """Return memory; ``allocate`` is the allocator's function."""


class Noting:
    """Lets the allocator serve requests, and notes those made by operations that are noted.

    ``made`` has the requests since an operation began, None between operations. ``memory`` has by address the memory
    that operations took. ``outside`` serves what is asked for between them: a replay must not write to it, as it may to
    memory that a graph has used.
    """

    def __init__(self, outside: Callable[[Callable[[], Block]], Block]) -> None:
        self.made: list[Allocation] | None = None
        self.memory: dict[int, ShadowBlock] = {}
        self._outside = outside

    def allocate(self, nbytes: int, stream: int, owner: int, allocate: Allocate) -> Block:
        """Return memory, and note it."""
        if self.made is None:
            return self._outside(lambda: allocate(nbytes, stream, owner))
        block = allocate(nbytes, stream, owner)
        if nbytes > 0:
            self.memory[block.pointer] = shadow = ShadowBlock(block)
            self.made.append((nbytes, shadow))
        return block


class Again:
    """Serves requests by the memory of those that an operation made when it was noted.

    An operation that asks for something else gets other memory; with ``is_strict`` that is a CaptureError.
    """

    def __init__(self) -> None:
        self.is_strict = False
        self._expected: Sequence[Allocation] = ()
        self._at = 0

    def expect(self, allocations: Sequence[Allocation]) -> None:
        """Begin an operation that made these requests."""
        self._expected, self._at = allocations, 0

    def allocate(self, nbytes: int, stream: int, owner: int, allocate: Allocate) -> Block:
        """Return the memory that was given before; requests that were made once only are passed over."""
        expected = self._expected
        for at in range(self._at, len(expected) if nbytes > 0 else 0):
            if expected[at][0] == nbytes:
                self._at = at + 1
                return expected[at][1]
        if self.is_strict and nbytes > 0:
            raise CaptureError(f"allocate: {nbytes} bytes that were not asked for when the graph was captured")
        return allocate(nbytes, stream, owner)


class _Router:
    """Stands before an allocator's ``allocate`` as long as the requests of some session go elsewhere."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self.allocator = allocator
        self.sources: dict[int, Source] = {}
        self._allocate = allocator.allocate

    def set(self, owner: int, source: Source | None) -> Source | None:
        """Let a source serve a session, or with None the allocator; return what served it before."""
        before = self.sources.pop(owner, None)
        if source is not None:
            self.sources[owner] = source
        self.allocator.allocate = self.allocate if self.sources else self._allocate
        return before

    def allocate(self, nbytes: int, stream: int = 0, owner: int = 0) -> Block:
        source = self.sources.get(owner)
        if source is None:
            return self._allocate(nbytes, stream, owner)
        return source.allocate(nbytes, stream, owner, self._allocate)


_routers: dict[CachingAllocator, _Router] = {}
"""Those that stand before their allocators now."""


def route(allocator: CachingAllocator, owner: int, source: Source | None) -> Source | None:
    """Let a source serve a session's requests from here on, or with None the allocator; return what did before."""
    router = _routers.get(allocator)
    if router is None:
        router = _routers[allocator] = _Router(allocator)
    before = router.set(owner, source)
    if not router.sources:
        del _routers[allocator]
    return before


@contextmanager
def routed(allocator: CachingAllocator, owner: int, source: Source | None) -> Iterator[None]:
    """Let a source serve a session's requests within the block."""
    before = route(allocator, owner, source)
    try:
        yield
    finally:
        route(allocator, owner, before)
